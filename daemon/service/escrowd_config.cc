#include "daemon/service/escrowd_config.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "api/bearer_token.h"
#include "api/request_fields.h"
#include "api/tcp_address.h"
#include "daemon/import/allowed_roots.h"
#include "daemon/process/exit_status.h"
#include "daemon/service/caller.h"
#include "daemon/service/webhooks.h"
#include "session/base/error.h"
#include "session/interfaces/session_record.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;

namespace {

constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 20;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxConfigBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) {
    throw Error(Errc::bad_request, "cannot read the configuration " + path + ": " + std::strerror(errno));
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMaxConfigBytes) throw Error(Errc::bad_request, "the configuration " + path + " is over 1 MiB");
  return text;
}

std::optional<VolumePluginConfig> volume_plugin_of(api::RequestFields& fields) {
  std::optional<api::RequestFields> given = fields.object("volume_plugin");
  if (!given) return std::nullopt;
  VolumePluginConfig plugin;
  plugin.socket = given->text("socket").value_or(plugin.socket);
  plugin.runtimes = given->texts("runtimes").value_or(plugin.runtimes);
  plugin.lost_after_ms = given->number("lost_after_ms", 0, 86'400'000).value_or(plugin.lost_after_ms);
  given->refuse_others();
  return plugin;
}

std::map<std::string, Quota> quotas_of(api::RequestFields& fields) {
  static constexpr std::uint64_t kMost = std::uint64_t{1} << 50;
  std::map<std::string, Quota> quotas;
  std::optional<api::RequestFields> given = fields.object("quotas");
  if (!given) return quotas;
  for (const std::string& principal : given->names()) {
    std::optional<api::RequestFields> members = given->object(principal);
    if (!members) continue;
    quotas[principal] = {.sessions = members->number("sessions", 0, kMost),
                         .runs = members->number("runs", 0, kMost),
                         .staged_bytes = members->number("staged_bytes", 1, kMost),
                         .files = members->number("files", 1, kMost)};
    members->refuse_others();
    if (members->names().empty())
      given->refuse(principal, "is empty; leave it out, or limit sessions, runs, staged_bytes or files");
  }
  return quotas;
}

std::shared_ptr<const api::JwtKeys> read_keys(const std::string& path) {
  if (!path.starts_with('/')) {
    throw Error(Errc::bad_request, "the configuration's \"jwt_issuers\" has the keys_file '" + path +
                                       "'; give an absolute path");
  }
  return std::make_shared<const api::JwtKeys>(read_file(path), "the keys_file " + path + " of \"jwt_issuers\"");
}

JwtIssuer jwt_issuer_of(const std::string& document, const std::string& what) {
  api::RequestFields given(document, what);
  JwtIssuer issuer{.issuer = given.required_text("issuer"),
                   .audience = given.required_text("audience"),
                   .keys_file = given.required_text("keys_file")};
  for (const std::string& text : given.documents("principals")) {
    api::RequestFields members(text, what + ": \"principals\"");
    JwtIssuer::Rule rule{.claims = members.text_map("claims"), .principal = members.required_text("principal")};
    if (rule.claims.empty()) members.refuse("claims", "is missing: whose tokens these are");
    // The kind of a principal is nothing that a token says.
    const std::string fixed = rule.principal.substr(0, rule.principal.find('{'));
    session::check_principal(fixed == rule.principal ? fixed : fixed + "x", "\"jwt_issuers\"");
    members.refuse_others();
    issuer.rules.push_back(std::move(rule));
  }
  if (issuer.rules.empty()) given.refuse("principals", "is missing: for whom the tokens stand");
  given.refuse_others();
  issuer.keys = read_keys(issuer.keys_file);
  return issuer;
}

std::vector<JwtIssuer> jwt_issuers_of(api::RequestFields& fields, const std::string& path) {
  std::vector<JwtIssuer> issuers;
  const std::vector<std::string> documents = fields.documents("jwt_issuers"), members = fields.names();
  if (documents.empty() && std::find(members.begin(), members.end(), "jwt_issuers") != members.end())
    fields.refuse("jwt_issuers", "is empty; leave it out to have none");
  for (const std::string& document : documents) {
    issuers.push_back(jwt_issuer_of(document, "the configuration " + path + ": \"jwt_issuers\""));
  }
  return issuers;
}

Webhook webhook_of(api::RequestFields& given, const std::string& what) {
  static constexpr std::size_t kLeastSecret_bytes = 32;
  Webhook webhook{.url = given.required_text("url")};
  const std::string file = given.required_text("secret_file");
  webhook.events = given.texts("events").value_or(webhook.events);
  webhook.give_up_after_s = given.number("give_up_after_s", 1, 31'622'400).value_or(webhook.give_up_after_s);
  given.refuse_others();
  check_webhook_url(webhook.url);
  webhook.secret = read_file(file);
  while (webhook.secret.ends_with('\n')) webhook.secret.pop_back();
  if (webhook.secret.size() < kLeastSecret_bytes) {
    throw Error(Errc::bad_request, what + ": the secret_file " + file + " has fewer than 32 bytes");
  }
  return webhook;
}

std::map<std::string, Webhook> webhooks_of(api::RequestFields& fields, const std::string& path) {
  std::map<std::string, Webhook> webhooks;
  std::optional<api::RequestFields> given = fields.object("webhooks");
  if (!given) return webhooks;
  for (const std::string& name : given->names()) {
    const std::string what = "the configuration " + path + ": \"webhooks." + name + "\"";
    if (!is_repository_name(name)) throw Error(Errc::bad_request, what + " is not named by " + kRepositoryNames);
    if (std::optional<api::RequestFields> members = given->object(name)) webhooks[name] = webhook_of(*members, what);
  }
  return webhooks;
}

Retention retention_of(api::RequestFields& fields) {
  static constexpr std::uint64_t kLongest_s = std::uint64_t{100} * 366 * 86'400;
  Retention retention;
  std::optional<api::RequestFields> given = fields.object("retention");
  if (!given) return retention;
  retention.sessions_s = given->number("sessions_s", 1, kLongest_s);
  retention.events = given->number("events", 1, 10'000'000).value_or(retention.events);
  retention.events_s = given->number("events_s", 1, kLongest_s);
  retention.idempotency_keys_s =
      given->number("idempotency_keys_s", 1, kLongest_s).value_or(retention.idempotency_keys_s);
  retention.tokens_s = given->number("tokens_s", 0, kLongest_s).value_or(retention.tokens_s);
  given->refuse_others();
  return retention;
}

std::map<std::string, std::uint64_t> gc_intervals_of(api::RequestFields& fields) {
  std::map<std::string, std::uint64_t> intervals;
  std::optional<api::RequestFields> given = fields.object("gc_every_s");
  if (!given) return intervals;
  for (const std::string& repository : given->names()) {
    intervals[repository] = given->number(repository, 0, 100ull * 366 * 86'400).value_or(0);
  }
  return intervals;
}

GrantedVerb verb_of(const api::RequestFields& given, const std::string& name) {
  if (name == "read") return GrantedVerb::read;
  if (name == "open") return GrantedVerb::open;
  if (name == "commit") return GrantedVerb::commit;
  if (name == "review") return GrantedVerb::review;
  given.refuse("may", "has '" + name + "', which is not read, open, commit or review");
}

Grant grant_of(const std::string& document, const std::string& what) {
  api::RequestFields given(document, what);
  Grant grant{.repository = given.required_text("repository"), .branches = given.texts("branches")};
  if (grant.branches && (grant.branches->empty() || std::ranges::count(*grant.branches, "") > 0))
    given.refuse("branches", "is empty or has an empty name; leave it out to grant all branches");
  if (const std::optional<std::string> prefix = given.text("path_prefix")) {
    grant.prefix = session::RepoPath::parse(*prefix, what + ": \"path_prefix\"");
    if (grant.prefix.is_root()) given.refuse("path_prefix", "is empty; leave it out to grant everything");
  }
  const std::vector<std::string> names = given.texts("may").value_or(std::vector<std::string>());
  if (names.empty()) given.refuse("may", "is missing: read, open, commit, review");
  for (const std::string& name : names) grant.verbs.push_back(verb_of(given, name));
  given.refuse_others();
  return grant;
}

std::optional<std::map<std::string, std::vector<Grant>>> grants_of(api::RequestFields& fields,
                                                                   const std::string& path) {
  std::optional<api::RequestFields> given = fields.object("grants");
  if (!given) return std::nullopt;
  std::map<std::string, std::vector<Grant>> grants;
  for (const std::string& principal : given->names()) {
    std::vector<Grant>& own = grants[principal];
    const std::vector<std::string> documents = given->documents(principal);
    if (documents.empty()) given->refuse(principal, "is empty; leave the principal out to give it no grant of its own");
    for (const std::string& document : documents) {
      own.push_back(grant_of(document, "the configuration " + path + ": \"grants." + principal + "\""));
    }
  }
  return grants;
}

// A template without its value must not turn anything off: null, an empty text and an empty list are not an absent
// member.
void refuse_empty(api::RequestFields& fields) {
  fields.refuse_nulls();
  for (const char* name : {"socket_group", "tls_certificate", "tls_key"}) {
    if (fields.text(name) == "") fields.refuse(name, "is empty; leave it out to have none");
  }
  for (const char* name : {"operators", "reviewers", "host_network"}) {
    if (const auto named = fields.texts(name); named && named->empty())
      fields.refuse(name, "is empty; leave it out to name nobody");
  }
  for (const auto& [principal, committers] : fields.texts_map("run_as")) {
    if (committers.empty()) fields.refuse("run_as." + principal, "is empty; leave the principal out");
  }
}

EscrowdConfig read_config(const std::string& path) {
  EscrowdConfig config;
  const std::string text = read_file(path);
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    throw Error(Errc::bad_request, "the configuration " + path + " is empty; write {} to have all defaults");
  api::RequestFields fields(text, "the configuration " + path);
  refuse_empty(fields);
  config.socket = fields.text("socket").value_or(config.socket);
  config.socket_group = fields.text("socket_group").value_or("");
  config.listen = fields.text("listen").value_or("");
  config.tls_certificate = fields.text("tls_certificate").value_or("");
  config.tls_key = fields.text("tls_key").value_or("");
  config.tokens = fields.texts_map("tokens");
  config.accounts = fields.text_map("accounts");
  config.jwt_issuers = jwt_issuers_of(fields, path);
  config.state_directory = fields.text("state_directory").value_or(config.state_directory);
  config.repository_roots = fields.texts("repository_roots").value_or(config.repository_roots);
  config.mount_roots = fields.texts("mount_roots").value_or(config.mount_roots);
  config.source_roots = fields.texts("source_roots").value_or(config.source_roots);
  config.repositories = fields.text_map("repositories");
  config.operators = fields.texts("operators").value_or(config.operators);
  config.reviewers = fields.texts("reviewers").value_or(config.reviewers);
  config.run_as = fields.texts_map("run_as");
  config.quotas = quotas_of(fields);
  config.grants = grants_of(fields, path);
  config.retention = retention_of(fields);
  config.webhooks = webhooks_of(fields, path);
  config.gc_every_s = gc_intervals_of(fields);
  config.host_network = fields.texts("host_network").value_or(config.host_network);
  config.max_runs = fields.number("max_runs", 0, 100'000).value_or(config.max_runs);
  config.max_processes = fields.number("max_processes", 1, kMostProcesses).value_or(config.max_processes);
  config.max_memory_bytes = fields.number("max_memory_bytes", kLeastMemory_bytes, kMostMemory_bytes);
  config.max_millicpus = fields.number("max_millicpus", kLeastMillicpus, kMostMillicpus);
  config.keep_runs = fields.number("keep_runs", 0, 1'000'000).value_or(config.keep_runs);
  config.max_output_bytes = fields.number("max_output_bytes", 0, 1ull << 40).value_or(config.max_output_bytes);
  config.four_eyes = fields.flag("four_eyes").value_or(false);
  config.max_body_bytes = fields.number("max_body_bytes", 1024, 1u << 30).value_or(config.max_body_bytes);
  config.max_content_bytes =
      fields.number("max_content_bytes", 0, std::uint64_t{1} << 50).value_or(config.max_content_bytes);
  config.max_connections = fields.number("max_connections", 1, 1'000'000).value_or(config.max_connections);
  config.idle_timeout_ms = fields.number("idle_timeout_ms", 1, 86'400'000).value_or(config.idle_timeout_ms);
  config.request_timeout_ms = fields.number("request_timeout_ms", 1, 86'400'000).value_or(config.request_timeout_ms);
  config.stop_grace_ms = fields.number("stop_grace_ms", 0, 86'400'000).value_or(config.stop_grace_ms);
  config.volume_plugin = volume_plugin_of(fields);
  config.verbose = fields.flag("verbose").value_or(false);
  fields.refuse_others();
  return config;
}

void check_absolute(const std::string& path, const std::string& what) {
  if (!path.starts_with('/')) {
    throw Error(Errc::bad_request, "the configuration's \"" + what + "\" is not an absolute path: '" + path + "'");
  }
}

[[noreturn]] void refuse_configuration(const std::string& why) {
  throw Error(Errc::bad_request, "the configuration's " + why);
}

void check_tcp(const EscrowdConfig& config) {
  for (const auto& [principal, hashes] : config.tokens) {
    session::check_principal(principal, "\"tokens\"");
    for (const std::string& hash : hashes) {
      if (!api::is_token_hash(hash))
        refuse_configuration("\"tokens\" has '" + hash + "'; escrowd --make-token makes a hash");
    }
  }
  const bool has_tls = !config.tls_certificate.empty();
  if (has_tls != !config.tls_key.empty())
    refuse_configuration("\"tls_certificate\" and \"tls_key\" are only of use together");
  if (has_tls) api::check_tls_files(config.tls_certificate, config.tls_key);
  if (config.listen.empty()) return;
  const api::TcpAddressKind kind = api::kind_of_tcp_address(config.listen);
  if (kind == api::TcpAddressKind::none)
    refuse_configuration("\"listen\" is not a numeric ADDRESS:PORT: '" + config.listen + "'");
  if (kind == api::TcpAddressKind::network && !has_tls) {
    refuse_configuration("\"listen\" is " + config.listen +
                         ", where tokens could be read on their way; give \"tls_certificate\" and "
                         "\"tls_key\", or listen on 127.0.0.1");
  }
}

// Whoever is to be root comes as root.
void check_accounts(const EscrowdConfig& config) {
  for (const auto& [principal, user] : config.accounts) {
    session::check_principal(principal, "\"accounts\"");
    const Account account = account_of(config, principal);
    if (account.uid == kOverflowId) {
      refuse_configuration("\"accounts\" gives " + principal + " the account '" + user +
                           "', and no user of this machine is one");
    }
    if (account.uid == 0)
      refuse_configuration("\"accounts\" gives " + principal + " the account of root; choose another user");
  }
}

void check_volume_plugin(const VolumePluginConfig& plugin) {
  check_absolute(plugin.socket, "volume_plugin.socket");
  for (const std::string& runtime : plugin.runtimes) {
    if (runtime.starts_with("unix:///")) continue;
    refuse_configuration("\"volume_plugin.runtimes\" has '" + runtime + "'; a runtime is unix:///PATH");
  }
}

int print_new_token() {
  const std::string token = api::make_token();
  std::printf("token %s\nhash  %s\n", token.c_str(), api::hash_token(token).c_str());
  return kExitSuccess;
}

}  // namespace

bool is_repository_name(const std::string& name) {
  static constexpr std::size_t kMaxName = 64;
  const auto is_fine = [](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') ||
           letter == '-' || letter == '_' || letter == '.';
  };
  return !name.empty() && name.size() <= kMaxName && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), is_fine);
}

void check_config(const EscrowdConfig& config) {
  check_absolute(config.socket, "socket");
  check_absolute(config.state_directory, "state_directory");
  check_tcp(config);
  check_accounts(config);
  if (config.volume_plugin) check_volume_plugin(*config.volume_plugin);
  for (const auto& [name, path] : config.repositories) {
    if (!is_repository_name(name))
      refuse_configuration("\"repositories\" has '" + name + "', which is not " + kRepositoryNames);
    check_absolute(path, "repositories." + name);
  }
  for (const std::string& principal : config.operators) session::check_principal(principal, "\"operators\"");
  for (const std::string& principal : config.reviewers) session::check_principal(principal, "\"reviewers\"");
  for (const std::string& principal : config.host_network) session::check_principal(principal, "\"host_network\"");
  for (const auto& [principal, own] : config.grants.value_or(std::map<std::string, std::vector<Grant>>())) {
    if (principal != kEverybody) session::check_principal(principal, "\"grants\"");
    for (const Grant& grant : own) {
      if (grant.repository == kEverybody || is_repository_name(grant.repository)) continue;
      refuse_configuration("\"grants\" has the repository '" + grant.repository + "', which is neither * nor " +
                           kRepositoryNames);
    }
  }
  for (const auto& [repository, interval] : config.gc_every_s) {
    if (repository == kEverybody || is_repository_name(repository)) continue;
    refuse_configuration("\"gc_every_s\" has '" + repository + "', which is neither * nor " + kRepositoryNames);
  }
  for (const auto& [principal, quota] : config.quotas) {
    if (principal != kEverybody) session::check_principal(principal, "\"quotas\"");
  }
  for (const auto& [principal, committers] : config.run_as) {
    session::check_principal(principal, "\"run_as\"");
    for (const std::string& committer : committers) session::check_principal(committer, "\"run_as\"");
  }
  AllowedRoots(config.repository_roots, "repository_roots");
  AllowedRoots(config.mount_roots, "mount_roots");
  AllowedRoots(config.source_roots, "source_roots");
}

std::uint64_t gc_every_s(const EscrowdConfig& config, const std::string& repository) {
  const auto own = config.gc_every_s.find(repository);
  if (own != config.gc_every_s.end()) return own->second;
  const auto everybodys = config.gc_every_s.find(kEverybody);
  return everybodys == config.gc_every_s.end() ? kUsualGcEvery_s : everybodys->second;
}

Quota quota_of(const EscrowdConfig& config, const std::string& principal) {
  const auto own = config.quotas.find(principal);
  if (own != config.quotas.end()) return own->second;
  const auto everybodys = config.quotas.find(kEverybody);
  return everybodys == config.quotas.end() ? Quota() : everybodys->second;
}

std::vector<std::string> fixed_members_that_differ(const EscrowdConfig& one, const EscrowdConfig& other) {
  std::vector<std::string> names;
  const auto compare = [&](const char* name, const auto& mine, const auto& theirs) {
    if (mine != theirs) names.emplace_back(name);
  };
  compare("socket", one.socket, other.socket);
  compare("socket_group", one.socket_group, other.socket_group);
  compare("listen", one.listen, other.listen);
  compare("tls_certificate", one.tls_certificate.empty(), other.tls_certificate.empty());
  compare("state_directory", one.state_directory, other.state_directory);
  compare("stop_grace_ms", one.stop_grace_ms, other.stop_grace_ms);
  compare("volume_plugin", one.volume_plugin, other.volume_plugin);
  compare("verbose", one.verbose, other.verbose);
  return names;
}

std::optional<EscrowdInvocation> parse_escrowd_arguments(int argc, char** argv, int& exit_status) {
  CLI::App app("Serves Escrow's sessions to orchestrators: HTTP with JSON on a Unix socket or over TLS", "escrowd");
  std::string file, socket, state, plugin;
  EscrowdInvocation invocation;
  bool verbose = false, make_token = false;
  app.add_option("--config", file, "The configuration, a JSON file")->envname("ESCROWD_CONFIG")->type_name("FILE");
  app.add_option("--socket", socket, "Where to listen")->envname("ESCROWD_SOCKET")->type_name("PATH");
  app.add_option("--state-directory", state, "What the service keeps")->envname("ESCROWD_STATE_DIRECTORY")
      ->type_name("DIR");
  app.add_option("--volume-plugin", plugin, "Serve container volumes there")->envname("ESCROWD_VOLUME_PLUGIN")
      ->type_name("PATH");
  app.add_flag("--check-config", invocation.check_only, "Say what is wrong with the configuration, and leave");
  app.add_flag("--make-token", make_token, "Print a new token for a client, and its hash for \"tokens\", and leave");
  app.add_flag("--verbose", verbose, "Log everything");
  app.add_subcommand("reload", "Have the service that runs read its configuration again")->fallthrough();
  app.set_version_flag("--version", std::string("escrowd ") + ESCROW_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    exit_status = app.exit(error) == 0 ? kExitSuccess : kExitUsage;
    return std::nullopt;
  }
  invocation.reload = app.got_subcommand("reload");
  if (make_token) {
    exit_status = print_new_token();
    return std::nullopt;
  }
  if (!file.empty()) invocation.config = read_config(file);
  if (!socket.empty()) invocation.config.socket = socket;
  if (!state.empty()) invocation.config.state_directory = state;
  if (!plugin.empty()) {
    if (!invocation.config.volume_plugin) invocation.config.volume_plugin.emplace();
    invocation.config.volume_plugin->socket = plugin;
  }
  if (verbose) invocation.config.verbose = true;
  check_config(invocation.config);
  return invocation;
}

}  // namespace escrow::daemon
