#include "daemon/host/session_run.h"
#include "daemon/service/http/service_requests.h"

#include <charconv>
#include <set>
#include <utility>

#include "api/bearer_token.h"
#include "api/problem.h"
#include "api/request_fields.h"
#include "api/session_routes.h"
#include "daemon/process/confinement.h"
#include "daemon/service/http/request_options.h"

namespace escrow::daemon {

using api::Problem;
using api::ProblemCode;
using api::RequestFields;
using session::Reason;

namespace {

constexpr std::size_t kMaxPath = 4096;
constexpr std::size_t kMaxMessage = 65536;
constexpr std::size_t kMaxLabels = 64;
constexpr std::uint64_t kMaxSessionsPage = 1000;
constexpr std::uint64_t kMaxTerm_ms = 366ull * 24 * 60 * 60 * 1000;
constexpr std::uint64_t kMaxTime_ms = 30ull * 24 * 60 * 60 * 1000;
constexpr std::uint64_t kMaxGrace_ms = 60'000;
constexpr std::uint64_t kTokenTerm_s = 90ull * 24 * 60 * 60;
constexpr std::uint64_t kMaxTokenTerm_s = 3660ull * 24 * 60 * 60;
constexpr std::uint64_t kMaxSince_ms = 1000ull * 366 * 24 * 60 * 60 * 1000;

// Text without a NUL and of a bounded size.
std::string short_text(RequestFields& fields, const std::string& name, std::size_t most) {
  std::string text = fields.text(name).value_or("");
  if (text.size() > most) fields.refuse(name, "is longer than " + std::to_string(most) + " bytes");
  if (text.find('\0') != std::string::npos) fields.refuse(name, "has a NUL byte");
  return text;
}

// What is kept with the commit or the session and shown in lists.
std::string audit_text(RequestFields& fields, const std::string& name) {
  std::string text = short_text(fields, name, 1024);
  try {
    session::check_audit_value(text, "it");
  } catch (const session::Error& error) {
    fields.refuse(name, std::string("cannot be recorded: ") + error.what());
  }
  return text;
}

// Runs a check of the core, and says which field failed it.
template <typename Check>
auto checked(const RequestFields& fields, const std::string& name, Check check) {
  try {
    return check();
  } catch (const session::Error& error) {
    fields.refuse(name, std::string("is refused: ") + error.what());
  }
}

std::map<std::string, std::string> labels_of(RequestFields& fields) {
  std::map<std::string, std::string> labels = fields.text_map("labels");
  if (labels.size() > kMaxLabels) fields.refuse("labels", "has more than 64 members");
  for (const auto& [name, value] : labels) {
    const bool fits = !name.empty() && name.size() <= 255 && value.size() <= 1024 &&
                      name.find('\0') == std::string::npos && value.find('\0') == std::string::npos;
    if (!fits) fields.refuse("labels", "has a name or value that is empty, too long or has a NUL byte");
  }
  return labels;
}

// What a session and a run are opened with alike.
ServiceSessions::OpenRequest opening_of(RequestFields& fields, const api::HttpRequest& request) {
  ServiceSessions::OpenRequest opening;
  // What opens a session is also another route's: each has its own keys.
  if (request.idempotency_key) opening.request_key = request.target + " " + *request.idempotency_key;
  opening.repository = fields.required_text("repository");
  opening.mountpoint = short_text(fields, "mountpoint", kMaxPath);
  opening.external_id = audit_text(fields, "external_id");
  opening.labels = labels_of(fields);
  opening.lease_ms = fields.number("lease_ms", 1, kMaxTerm_ms).value_or(0);
  opening.timeout_ms = fields.number("timeout_ms", 1, kMaxTerm_ms).value_or(0);
  opening.session.umask = "077";
  opening.session.symlinks = "contained";
  read_session_request(fields, opening.session, {RequestPart::commit, RequestPart::view, RequestPart::mount});
  return opening;
}

// Words of a command: not empty, without a NUL.
std::vector<std::string> command_of(RequestFields& fields) {
  std::vector<std::string> command = fields.texts("command").value_or(std::vector<std::string>());
  if (command.empty() || command.front().empty()) fields.refuse("command", "is missing: a program and its arguments");
  for (const std::string& word : command) {
    if (word.find('\0') != std::string::npos) fields.refuse("command", "has a NUL byte");
  }
  return command;
}

std::vector<std::string> environment_of(RequestFields& fields) {
  std::vector<std::string> environment;
  for (const auto& [name, value] : fields.text_map("env")) {
    const bool fits = !name.empty() && name.find('=') == std::string::npos && name.find('\0') == std::string::npos &&
                      value.find('\0') == std::string::npos;
    if (!fits) fields.refuse("env", "has a name that is empty or has a '=', or a NUL byte");
    environment.push_back(name + "=" + value);
  }
  return environment;
}

// Where the page after another one begins; empty: at the first.
std::string position_after(api::Query& query) {
  const auto cursor = query.take("cursor");
  if (!cursor) return {};
  std::optional<std::string> position = api::decode_cursor(*cursor);
  if (!position) throw Problem(ProblemCode::invalid_value, "this is no cursor of this API", {{"field", "cursor"}});
  return *std::move(position);
}

std::size_t page_size(api::Query& query, std::size_t usual) {
  return std::max<std::uint64_t>(1, query.take_number("limit", kMaxSessionsPage).value_or(usual));
}

// All but the state, of which sessions and runs have their own.
ServiceSessions::Filter common_filter(api::Query& query) {
  ServiceSessions::Filter filter;
  filter.repository = query.take("repository");
  filter.principal = query.take("principal");
  filter.external_id = query.take("external_id");
  for (const std::string& label : query.take_all("label")) {
    const std::size_t colon = label.find(':');
    if (colon == std::string::npos) {
      throw Problem(ProblemCode::invalid_value, "\"label\" is NAME:VALUE, not '" + label + "'", {{"field", "label"}});
    }
    filter.labels[label.substr(0, colon)] = label.substr(colon + 1);
  }
  filter.after = position_after(query);
  filter.limit = page_size(query, filter.limit);
  query.refuse_others();
  return filter;
}

}  // namespace

ServiceSessions::OpenRequest read_open_request(const api::HttpRequest& request) {
  RequestFields fields = fields_of(request);
  ServiceSessions::OpenRequest opening = opening_of(fields, request);
  opening.mount_options = read_mount_options(fields, opening.session);
  fields.refuse_others();
  return opening;
}

ServiceRuns::RunRequest read_run_request(const api::HttpRequest& request) {
  RequestFields fields = fields_of(request);
  ServiceRuns::RunRequest ordering;
  ordering.opening = opening_of(fields, request);
  ordering.opening.mount_options = mount_options_of(ordering.opening.session);
  if (ordering.opening.lease_ms != 0) fields.refuse("lease_ms", "is not for runs: a run ends by itself");
  ordering.mountpoint = std::move(ordering.opening.mountpoint);
  ordering.command = command_of(fields);
  ordering.environment = environment_of(fields);
  ordering.python_path = checked(fields, "python_path", [&] {
    return parse_python_path(fields.texts("python_path").value_or(std::vector<std::string>()), "it");
  });
  ordering.timeout_ms = fields.number("timeout_ms", 1, kMaxTime_ms);
  ordering.grace_ms = fields.number("grace_ms", 0, kMaxGrace_ms);
  ordering.memory_bytes = fields.number("memory_bytes", kLeastMemory_bytes, kMostMemory_bytes);
  ordering.millicpus = fields.number("millicpus", kLeastMillicpus, kMostMillicpus);
  ordering.max_processes = fields.number("max_processes", 1, kMostProcesses);
  ordering.confined = fields.flag("confined").value_or(true);
  const std::string network = fields.text("network").value_or("none");
  if (network != "none" && network != "host") fields.refuse("network", "is neither none nor host");
  ordering.network = network == "host";
  fields.refuse_others();
  if (ordering.confined) {
    checked(fields, "command", [&] { check_sandbox_command(ordering.command, ordering.environment); });
  }
  if (ordering.mountpoint.empty()) return ordering;
  if (!ordering.confined) fields.refuse("mountpoint", "is for confined commands: where they see the session");
  checked(fields, "mountpoint", [&] { check_sandbox_mountpoint(ordering.mountpoint); });
  return ordering;
}

ServiceSessions::Filter read_filter(api::Query& query) {
  const auto name = query.take("state");
  const std::optional<session::State> state = name ? session::state_from_name(*name) : std::nullopt;
  if (name && !state) {
    throw Problem(ProblemCode::invalid_value, "there is no state '" + *name + "'", {{"field", "state"}});
  }
  const std::optional<std::string> ended = query.take("ended"), order = query.take("order");
  const std::optional<std::string> prefix = query.take("id_prefix");
  const auto refuse = [](const std::string& why, const char* field) {
    throw Problem(ProblemCode::invalid_value, why, {{"field", field}});
  };
  if (ended && *ended != "true" && *ended != "false") refuse("\"ended\" is true or false", "ended");
  if (order && *order != "oldest" && *order != "newest") refuse("\"order\" is oldest or newest", "order");
  const bool is_hexadecimal = prefix && prefix->find_first_not_of("0123456789abcdef") == std::string::npos;
  if (prefix && (prefix->empty() || prefix->size() > session::SessionId::kSize || !is_hexadecimal)) {
    refuse("\"id_prefix\" is the beginning of an id, in lower-case hexadecimal digits", "id_prefix");
  }
  if (prefix && order) refuse("\"order\" is not for \"id_prefix\": those come by id", "order");
  ServiceSessions::Filter filter = common_filter(query);
  filter.state = state;
  if (ended) filter.has_ended = *ended == "true";
  filter.newest_first = order == "newest";
  filter.id_prefix = prefix.value_or("");
  return filter;
}

ServiceRuns::Filter read_run_filter(api::Query& query) {
  const auto name = query.take("state");
  if (name && *name != "running" && *name != "ended") {
    throw Problem(ProblemCode::invalid_value, "\"state\" is running or ended", {{"field", "state"}});
  }
  return {.has_ended = name ? std::optional(*name == "ended") : std::nullopt, .common = common_filter(query)};
}

ServiceSessions::FinishRequest read_finish_request(const api::HttpRequest& request) {
  RequestFields fields = fields_of(request);
  const auto exit_code = fields.number("exit_code", 0, 255);
  const auto signal = fields.number("signal", 1, 64);
  const std::optional<bool> cancelled = fields.flag("cancelled"), timed_out = fields.flag("timed_out");
  ServiceSessions::FinishRequest ending{.message = short_text(fields, "message", kMaxMessage),
                                        .image = audit_text(fields, "image"),
                                        .only_if_seen = fields.flag("only_if_seen").value_or(false)};
  if (cancelled && !*cancelled) fields.refuse("cancelled", "can only be true");
  if (timed_out && !*timed_out) fields.refuse("timed_out", "can only be true");
  fields.refuse_others();
  if (exit_code.has_value() + signal.has_value() + cancelled.has_value() + timed_out.has_value() != 1) {
    throw Problem(ProblemCode::bad_request,
                  "exactly one of \"exit_code\", \"signal\", \"cancelled\" and \"timed_out\" says how the work ended");
  }
  if (exit_code) {
    ending.reason = *exit_code == 0 ? Reason::success : Reason::exit_status;
    ending.exit_code = static_cast<int>(*exit_code);
  } else if (signal) {
    ending.reason = Reason::signal;
    ending.exit_code = 128 + static_cast<int>(*signal);
  } else {
    ending.reason = cancelled ? Reason::cancelled : Reason::timed_out;
  }
  return ending;
}

Approving read_approving(const api::HttpRequest& request) {
  RequestFields fields = fields_of(request);
  Approving approving{.result = fields.required_text("result"),
                      .comment = audit_text(fields, "comment"),
                      .message = short_text(fields, "message", kMaxMessage)};
  if (!session::ObjectId::from_hex(approving.result)) fields.refuse("result", "is not the whole id of a result");
  fields.refuse_others();
  return approving;
}

std::string read_rejecting(const api::HttpRequest& request) {
  RequestFields fields = fields_of(request);
  std::string comment = audit_text(fields, "comment");
  fields.refuse_others();
  return comment;
}

Registering read_registering(const api::HttpRequest& request) {
  RequestFields fields = fields_of(request);
  Registering registering{.name = fields.required_text("name"), .path = short_text(fields, "path", kMaxPath)};
  registering.create = fields.flag("create").value_or(false);
  registering.branch = short_text(fields, "branch", kMaxPath);
  if (!registering.create && registering.path.empty()) fields.refuse("path", "is missing");
  if (!registering.create && !registering.branch.empty()) fields.refuse("branch", "is for a repository that is made");
  fields.refuse_others();
  return registering;
}

std::set<session::State> read_states(const std::string& text) {
  std::set<session::State> states;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string name = text.substr(at, end - at);
    const std::optional<session::State> state = session::state_from_name(name);
    if (!state) throw Problem(ProblemCode::invalid_value, "there is no state '" + name + "'", {{"field", "states"}});
    states.insert(*state);
    at = end + 1;
  }
  return states;
}

ServiceSessions::AuditWanted read_audit_wanted(api::Query& query) {
  ServiceSessions::AuditWanted wanted;
  if (const auto id = query.take("session")) {
    wanted.filter.session = session::SessionId::parse(*id);
    if (!wanted.filter.session) {
      throw Problem(ProblemCode::invalid_value, "'" + *id + "' is no id of a session", {{"field", "session"}});
    }
  }
  wanted.filter.branch = query.take("branch").value_or("");
  if (const auto states = query.take("states")) wanted.filter.states = read_states(*states);
  if (const auto since = query.take_number("since_ms", kMaxSince_ms)) {
    wanted.filter.since = std::chrono::milliseconds(*since);
  }
  wanted.after = position_after(query);
  wanted.limit = page_size(query, wanted.limit);
  query.refuse_others();
  return wanted;
}

ServiceSessions::Mounting read_mounting(const api::HttpRequest& request) {
  RequestFields fields = fields_of(request);
  ServiceSessions::Mounting mounting{.mountpoint = fields.required_text("mountpoint"), .mount_options = {}};
  SessionRequest session;
  read_session_request(fields, session, {RequestPart::mount});
  const std::string options = read_mount_options(fields, session);
  if (!options.empty() || fields.texts("mount_options")) mounting.mount_options = options;
  mounting.shown_git = fields.texts("show_git").value_or(std::vector<std::string>());
  fields.refuse_others();
  return mounting;
}

api::CommitRequest read_commit_request(const api::HttpRequest& request) {
  api::CommitRequest wanted = api::read_commit(request);
  if (wanted.message.size() <= kMaxMessage) return wanted;
  throw Problem(ProblemCode::invalid_value,
                "the request: \"message\" is longer than " + std::to_string(kMaxMessage) + " bytes",
                {{"field", "message"}});
}

std::uint64_t read_lease(const api::HttpRequest& request) {
  RequestFields fields = fields_of(request);
  const std::uint64_t lease_ms = fields.number("lease_ms", 1, kMaxTerm_ms).value_or(0);
  fields.refuse_others();
  return lease_ms;
}

ServiceTokens::Wanted read_token_request(const api::HttpRequest& request) {
  RequestFields fields = fields_of(request);
  ServiceTokens::Wanted wanted{.principal = short_text(fields, "principal", kMaxPath),
                               .hash = short_text(fields, "hash", kMaxPath),
                               .note = audit_text(fields, "note")};
  wanted.expires_in_s =
      static_cast<std::int64_t>(fields.number("expires_in_s", 1, kMaxTokenTerm_s).value_or(kTokenTerm_s));
  if (wanted.hash.empty() && request.idempotency_key) {
    fields.refuse("hash", "is missing: with an Idempotency-Key the answer would be kept, and the token in it; make the "
                          "token yourself, and send its hash");
  }
  if (!wanted.hash.empty() && !api::is_token_hash(wanted.hash)) {
    fields.refuse("hash", "is not \"sha256:\" and 64 hexadecimal digits, as escrowd --make-token prints them");
  }
  fields.refuse_others();
  return wanted;
}

ServiceTokens::Filter read_token_filter(api::Query& query) {
  ServiceTokens::Filter filter{.principal = query.take("principal")};
  const std::string with_ended = query.take("with_ended").value_or("false");
  if (with_ended != "true" && with_ended != "false") {
    throw Problem(ProblemCode::invalid_value, "\"with_ended\" is true or false", {{"field", "with_ended"}});
  }
  filter.with_ended = with_ended == "true";
  const std::string after = position_after(query);
  const auto [end, error] = std::from_chars(after.data(), after.data() + after.size(), filter.after);
  if (!after.empty() && (error != std::errc() || end != after.data() + after.size())) {
    throw Problem(ProblemCode::invalid_value, "this is no cursor of this API", {{"field", "cursor"}});
  }
  filter.limit = page_size(query, 100);
  query.refuse_others();
  return filter;
}

}  // namespace escrow::daemon
