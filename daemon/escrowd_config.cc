#include "daemon/escrowd_config.h"

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "api/request_fields.h"
#include "daemon/allowed_roots.h"
#include "daemon/exit_status.h"
#include "session/error.h"
#include "session/session_record.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;

namespace {

constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 20;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.is_open() || file.bad()) {
    throw Error(Errc::bad_request, "cannot read the configuration " + path + ": " + std::strerror(errno));
  }
  if (text.size() > kMaxConfigBytes) throw Error(Errc::bad_request, "the configuration " + path + " is over 1 MiB");
  return text;
}

EscrowdConfig read_config(const std::string& path) {
  EscrowdConfig config;
  api::RequestFields fields(read_file(path), "the configuration " + path);
  config.socket = fields.text("socket").value_or(config.socket);
  config.socket_group = fields.text("socket_group").value_or("");
  config.state_directory = fields.text("state_directory").value_or(config.state_directory);
  config.repository_roots = fields.texts("repository_roots").value_or(config.repository_roots);
  config.mount_roots = fields.texts("mount_roots").value_or(config.mount_roots);
  config.operators = fields.texts("operators").value_or(config.operators);
  config.reviewers = fields.texts("reviewers").value_or(config.reviewers);
  config.run_as = fields.texts_map("run_as");
  config.host_network = fields.texts("host_network").value_or(config.host_network);
  config.max_runs = fields.number("max_runs", 0, 100'000).value_or(config.max_runs);
  config.keep_runs = fields.number("keep_runs", 0, 1'000'000).value_or(config.keep_runs);
  config.max_output_bytes = fields.number("max_output_bytes", 0, 1ull << 40).value_or(config.max_output_bytes);
  config.four_eyes = fields.flag("four_eyes").value_or(false);
  config.max_body_bytes = fields.number("max_body_bytes", 1024, 1u << 30).value_or(config.max_body_bytes);
  config.max_content_bytes =
      fields.number("max_content_bytes", 0, std::uint64_t{1} << 50).value_or(config.max_content_bytes);
  config.max_connections = fields.number("max_connections", 1, 1'000'000).value_or(config.max_connections);
  config.idle_timeout_ms = fields.number("idle_timeout_ms", 1, 86'400'000).value_or(config.idle_timeout_ms);
  config.request_timeout_ms = fields.number("request_timeout_ms", 1, 86'400'000).value_or(config.request_timeout_ms);
  config.verbose = fields.flag("verbose").value_or(false);
  fields.refuse_others();
  return config;
}

void check_absolute(const std::string& path, const std::string& what) {
  if (!path.starts_with('/')) {
    throw Error(Errc::bad_request, "the configuration's \"" + what + "\" is not an absolute path: '" + path + "'");
  }
}

}  // namespace

void check_config(const EscrowdConfig& config) {
  check_absolute(config.socket, "socket");
  check_absolute(config.state_directory, "state_directory");
  for (const std::string& principal : config.operators) session::check_principal(principal, "\"operators\"");
  for (const std::string& principal : config.reviewers) session::check_principal(principal, "\"reviewers\"");
  for (const std::string& principal : config.host_network) session::check_principal(principal, "\"host_network\"");
  for (const auto& [principal, committers] : config.run_as) {
    session::check_principal(principal, "\"run_as\"");
    for (const std::string& committer : committers) session::check_principal(committer, "\"run_as\"");
  }
  AllowedRoots(config.repository_roots, "repository_roots");
  AllowedRoots(config.mount_roots, "mount_roots");
}

std::optional<EscrowdInvocation> parse_escrowd_arguments(int argc, char** argv, int& exit_status) {
  CLI::App app("Serves Escrow's sessions to orchestrators: HTTP with JSON on a Unix socket", "escrowd");
  std::string file, socket, state;
  EscrowdInvocation invocation;
  bool verbose = false;
  app.add_option("--config", file, "The configuration, a JSON file")->envname("ESCROWD_CONFIG")->type_name("FILE");
  app.add_option("--socket", socket, "Where to listen")->envname("ESCROWD_SOCKET")->type_name("PATH");
  app.add_option("--state-directory", state, "What the service keeps")->envname("ESCROWD_STATE_DIRECTORY")
      ->type_name("DIR");
  app.add_flag("--check-config", invocation.check_only, "Say what is wrong with the configuration, and leave");
  app.add_flag("--verbose", verbose, "Log everything");
  app.set_version_flag("--version", std::string("escrowd ") + ESCROW_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    exit_status = app.exit(error) == 0 ? kExitSuccess : kExitUsage;
    return std::nullopt;
  }
  if (!file.empty()) invocation.config = read_config(file);
  if (!socket.empty()) invocation.config.socket = socket;
  if (!state.empty()) invocation.config.state_directory = state;
  if (verbose) invocation.config.verbose = true;
  check_config(invocation.config);
  return invocation;
}

}  // namespace escrow::daemon
