#include "daemon/service/http/service_routes.h"

#include <charconv>
#include <chrono>
#include <set>
#include <utility>

#include "api/json_document.h"
#include "api/problem.h"
#include "api/resources.h"
#include "api/session_routes.h"
#include "daemon/service/grants.h"
#include "daemon/service/http/service_file_routes.h"
#include "daemon/service/http/service_import_routes.h"
#include "daemon/service/http/service_requests.h"
#include "daemon/service/http/service_token_routes.h"
#include "daemon/service/http/service_upkeep_routes.h"
#include "daemon/service/http/service_webhook_routes.h"
#include "daemon/service/idempotency.h"

namespace escrow::daemon {

using api::Call;
using api::HttpReply;
using api::HttpResponse;
using api::Problem;
using api::ProblemCode;
using api::json_answer;
using session::State;

namespace {

constexpr std::uint64_t kApiVersion = 1;  // as `escrow version --json` has it
constexpr std::uint64_t kMaxWait_ms = 300'000;
constexpr std::uint64_t kMaxPage = 1000;
constexpr const char* kUsualBranch = "main";

Caller caller(const ServiceParts& parts, const Call& call) {
  return caller_of(parts.config, call.request);
}

HttpResponse created(std::string body, const std::string& location) {
  return {.status = 201, .content_type = "application/json", .body = std::move(body),
          .headers = {{"Location", location}}};
}

// ---- The service itself.

HttpReply health(const ServiceParts&, Call& call) {
  call.query.refuse_others();
  return json_answer(api::JsonObject().text("status", "ok").text() + "\n");
}

// One repository that is missing is no reason to send nobody here any more.
HttpReply ready(const ServiceParts& parts, Call& call) {
  call.query.refuse_others();
  const std::shared_ptr<const EscrowdConfig> config = parts.config.now();
  const Caller who = caller(parts, call);
  std::vector<std::string> failed;
  std::size_t usable = 0, unusable = 0;
  for (const auto& entry : parts.repositories.list()) {
    ++(entry.context ? usable : unusable);
    if (!entry.context && may_see_repository(*config, who, entry.name)) failed.push_back(entry.name);
  }
  if (usable == 0 && unusable > 0) {
    std::string names;
    for (const std::string& name : failed) names += (names.empty() ? "" : ", ") + name;
    throw Problem(ProblemCode::unavailable, "no repository can be used: " + names);
  }
  return json_answer(api::JsonObject().text("status", "ready").texts("unusable", failed).text() + "\n");
}

HttpReply metrics(const ServiceParts& parts, Call& call) {
  call.query.refuse_others();
  return parts.sessions.metrics();
}

HttpReply version(const ServiceParts&, Call& call) {
  call.query.refuse_others();
  return json_answer(api::JsonObject().text("version", ESCROW_VERSION).number("api", kApiVersion).text() + "\n");
}

HttpReply follow_events(const ServiceParts& parts, Call& call) {
  ServiceEvents::Wanted wanted{.repository = call.query.take("repository").value_or(""),
                               .session = call.query.take("session").value_or(""),
                               .last_event_id = {}};
  call.query.refuse_others();
  const std::string& id = call.request.last_event_id;
  if (!id.empty()) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), number);
    if (error != std::errc() || end != id.data() + id.size() || number < 0) {
      throw Problem(ProblemCode::invalid_value, "the Last-Event-ID is none that this service gave",
                    {{"field", "Last-Event-ID"}});
    }
    wanted.last_event_id = number;
  }
  return parts.events.stream(parts.config, caller(parts, call), wanted, parts.tokens.watch(call.request.token));
}

HttpReply reload(const ServiceParts& parts, Call& call) {
  call.query.refuse_others();
  api::read_nothing(call.request);
  const Caller who = caller(parts, call);
  // Who could send it a signal may ask, too.
  if (!who.has_our_rights) check_operator(parts.config, who, "reload the configuration of the service and of its");
  return json_answer(api::JsonObject().texts("at_next_start", parts.reload()).text() + "\n");
}

// ---- Repositories.

api::RepositoryResource repository_resource(const ServiceRepositories::Entry& entry) {
  api::RepositoryResource resource{.name = entry.name, .path = entry.path, .default_branch = {}, .error = entry.error};
  if (entry.context) resource.default_branch = entry.context->repository().references().default_branch();
  return resource;
}

HttpReply list_repositories(const ServiceParts& parts, Call& call) {
  call.query.refuse_others();
  std::vector<api::RepositoryResource> resources;
  const std::shared_ptr<const EscrowdConfig> config = parts.config.now();
  const Caller who = caller(parts, call);
  for (const auto& entry : parts.repositories.list()) {
    if (may_see_repository(*config, who, entry.name)) resources.push_back(repository_resource(entry));
  }
  return json_answer(api::to_json(resources));
}

// Of a repository that is to be made, and has no place yet.
std::string place_of(const ServiceParts& parts, const std::string& name) {
  for (const auto& entry : parts.repositories.list()) {
    if (entry.name == name) return entry.path;
  }
  const std::shared_ptr<const EscrowdConfig> config = parts.config.now();
  if (!config->repository_roots.empty()) return config->repository_roots.front() + "/" + name + ".git";
  throw Problem(ProblemCode::forbidden, "the configuration of this service has no repository_roots, so there is no "
                                        "place for repositories; add one", {{"field", "path"}});
}

HttpReply add_repository(const ServiceParts& parts, Call& call) {
  call.query.refuse_others();
  const Caller who = caller(parts, call);
  check_operator(parts.config, who, "register");
  const Registering registering = read_registering(call.request);
  const std::string path = registering.path.empty() ? place_of(parts, registering.name) : registering.path;
  std::optional<std::string> branch;
  if (registering.create) branch = registering.branch.empty() ? kUsualBranch : registering.branch;
  const auto added = parts.repositories.add(registering.name, path, who.principal, branch);
  parts.events.follow_repositories();
  api::RepositoryResource resource = repository_resource(parts.repositories.find(registering.name));
  if (registering.create) resource.is_made = added.is_made;
  const std::string body = api::to_json(resource);
  return added.is_new ? created(body, "/v1/repositories/" + registering.name) : json_answer(body);
}

HttpReply remove_repository(const ServiceParts& parts, Call& call) {
  call.query.refuse_others();
  check_operator(parts.config, caller(parts, call), "unregister");
  auto removed = parts.repositories.remove(call.parameters[0]);
  removed.context.reset();
  parts.events.follow_repositories();
  return json_answer(api::to_json(repository_resource(removed)));
}

HttpReply branches(const ServiceParts& parts, Call& call) {
  call.query.refuse_others();
  const std::shared_ptr<const EscrowdConfig> config = parts.config.now();
  const Caller who = caller(parts, call);
  check_repository(*config, who, call.parameters[0]);
  const auto entry = parts.repositories.find(call.parameters[0]);
  auto branches = entry.context->repository().branches();
  std::erase_if(branches, [&](const auto& one) { return !may_see_branch(*config, who, entry.name, one.first); });
  return json_answer(api::branches_json(branches));
}

HttpReply log(const ServiceParts& parts, Call& call) {
  const std::shared_ptr<const EscrowdConfig> config = parts.config.now();
  const Caller who = caller(parts, call);
  check_repository(*config, who, call.parameters[0]);
  const auto entry = parts.repositories.find(call.parameters[0]);
  storage::Repository& repository = entry.context->repository();
  const std::string branch = call.query.take("branch").value_or(repository.references().default_branch());
  const std::string path = call.query.take("path").value_or("");
  const std::size_t limit = std::max<std::uint64_t>(1, call.query.take_number("limit", kMaxPage).value_or(50));
  const std::string cursor = call.query.take("cursor").value_or("");
  call.query.refuse_others();
  if (!may_see_branch(*config, who, entry.name, branch)) {
    throw Problem(ProblemCode::no_branch, "there is no branch '" + branch + "' that you may see");
  }
  if (!is_granted(*config, who, GrantedVerb::read, entry.name, branch, session::RepoPath::parse(path, "path"))) {
    throw Problem(ProblemCode::forbidden, who.principal + " may read parts of the branch " + branch +
                                              " alone (grants); give one of them as \"path\"", {{"field", "path"}});
  }
  const std::optional<session::ObjectId> after = session::ObjectId::from_hex(cursor);
  if (!cursor.empty() && !after) {
    throw Problem(ProblemCode::invalid_value, "this is no cursor of this API", {{"field", "cursor"}});
  }
  std::vector<api::CommitResource> commits;
  std::string next;
  const auto take = [&](const storage::LogEntry& one) {
    if (commits.size() == limit) {
      next = commits.back().id.hex();
      return false;
    }
    commits.push_back(
        {.id = one.id, .commit = one.commit, .trailers = one.trailers, .is_claimed = one.is_claimed});
    return true;
  };
  if (!repository.log(branch, path, take, after))
    throw Problem(ProblemCode::invalid_value, "the cursor's commit is not here", {{"field", "cursor"}});
  return json_answer(api::commits_json(commits, next));
}

// ---- Sessions.

HttpReply open_session(const ServiceParts& parts, Call& call) {
  call.query.refuse_others();
  const api::SessionResource resource = parts.sessions.open(caller(parts, call), read_open_request(call.request));
  return created(api::to_json(resource), "/v1/sessions/" + resource.view.record.id.text());
}

HttpReply list_sessions(const ServiceParts& parts, Call& call) {
  const ServiceSessions::Page page = parts.sessions.list(caller(parts, call), read_filter(call.query));
  return json_answer(api::to_json(page.sessions, page.next.empty() ? "" : api::encode_cursor(page.next)));
}

HttpReply get_session(const ServiceParts& parts, Call& call) {
  const bool with_changes = api::read_status(call.query).with_changes;
  const Caller who = caller(parts, call);
  const std::string& id = call.parameters[0];
  return json_answer(api::to_json(with_changes ? parts.sessions.status(who, id) : parts.sessions.get(who, id)));
}

// Answers when the session is in one of the states, or with the state it is in when the time is over.
HttpReply wait_for_session(const ServiceParts& parts, Call& call) {
  static const std::string kEnds = "awaiting_approval,committed,commit_failed,rolled_back";
  const std::set<State> states = read_states(call.query.take("states").value_or(kEnds));
  const std::uint64_t timeout = call.query.take_number("timeout_ms", kMaxWait_ms).value_or(30'000);
  call.query.refuse_others();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout);
  api::Poll poll = [&sessions = parts.sessions, who = caller(parts, call), id = call.parameters[0], states,
                    deadline](bool is_last) -> std::optional<HttpResponse> {
    try {
      const api::SessionResource now = sessions.get(who, id);
      if (!is_last && !states.contains(now.view.record.state) && std::chrono::steady_clock::now() < deadline) {
        return std::nullopt;
      }
      return json_answer(api::to_json(now));
    } catch (...) {
      return api::problem_of_current_exception();
    }
  };
  if (std::optional<HttpResponse> response = poll(false)) return *std::move(response);
  return poll;
}

HttpReply session_changes(const ServiceParts& parts, Call& call) {
  call.query.refuse_others();
  const api::ChangesAnswer found = parts.sessions.changes(caller(parts, call), call.parameters[0]);
  return json_answer(api::changes_json(found.changes, found.omitted));
}

HttpReply session_diff(const ServiceParts& parts, Call& call) {
  const api::DiffRequest wanted = api::read_diff(call.query);
  ServiceSessions::Diff diff = parts.sessions.diff(caller(parts, call), call.parameters[0], wanted);
  HttpResponse response = api::diff_head(diff.omitted);
  response.body = std::move(diff.text);
  return response;
}

HttpReply mount_session(const ServiceParts& parts, Call& call) {
  call.query.refuse_others();
  const ServiceSessions::Mounting mounting = read_mounting(call.request);
  return json_answer(api::to_json(parts.sessions.mount(caller(parts, call), call.parameters[0], mounting)));
}

HttpReply unmount_session(const ServiceParts& parts, Call& call) {
  call.query.refuse_others();
  api::read_nothing(call.request);
  return json_answer(api::to_json(parts.sessions.unmount(caller(parts, call), call.parameters[0])));
}

HttpReply update_session(const ServiceParts& parts, Call& call) {
  call.query.refuse_others();
  api::read_nothing(call.request);
  const std::string& id = call.parameters[0];
  return json_answer(api::to_json(parts.sessions.update(caller(parts, call), id), id) + "\n");
}

HttpReply discard_in_session(const ServiceParts& parts, Call& call) {
  call.query.refuse_others();
  const std::string& id = call.parameters[0];
  const std::vector<std::string> paths = api::read_discard(call.request).paths;
  return json_answer(api::to_json(parts.sessions.discard(caller(parts, call), id, paths), id) + "\n");
}

// What a request wants of savepoints is said by the routes of a session's host.
HttpReply savepoints(const ServiceParts& parts, Call& call) {
  const api::SessionCall wanted = api::read_session_call(call.request);
  const auto& request = std::get<api::SavepointRequest>(wanted.request);
  const api::SavepointsAnswer answer = parts.sessions.savepoint(caller(parts, call), wanted.session, request);
  return json_answer(api::to_json(answer, wanted.session) + "\n");
}

HttpReply resolve_in_session(const ServiceParts& parts, Call& call) {
  const api::SessionCall wanted = api::read_session_call(call.request);
  const auto& request = std::get<api::ResolveRequest>(wanted.request);
  const api::ResolveAnswer answer = parts.sessions.resolve(caller(parts, call), wanted.session, request);
  return json_answer(api::to_json(answer, wanted.session) + "\n");
}

HttpReply resume_session(const ServiceParts& parts, Call& call) {
  call.query.refuse_others();
  api::read_nothing(call.request);
  const api::SessionResource made = parts.sessions.resume(caller(parts, call), call.parameters[0]);
  return created(api::to_json(made), "/v1/sessions/" + made.view.record.id.text());
}

HttpReply mounts(const ServiceParts& parts, Call& call) {
  const api::SessionCall wanted = api::read_session_call(call.request);
  const auto& request = std::get<api::MountsRequest>(wanted.request);
  const api::MountsAnswer answer = parts.sessions.mounts(caller(parts, call), wanted.session, request);
  return json_answer(api::to_json(answer, wanted.session) + "\n");
}

HttpReply renew_lease(const ServiceParts& parts, Call& call) {
  call.query.refuse_others();
  const std::uint64_t lease_ms = read_lease(call.request);
  return json_answer(api::to_json(parts.sessions.renew(caller(parts, call), call.parameters[0], lease_ms)));
}

HttpReply finish_session(const ServiceParts& parts, Call& call) {
  call.query.refuse_others();
  const ServiceSessions::FinishRequest ending = read_finish_request(call.request);
  return json_answer(api::to_json(parts.sessions.finish(caller(parts, call), call.parameters[0], ending)));
}

HttpReply commit_session(const ServiceParts& parts, Call& call) {
  call.query.refuse_others();
  const api::CommitRequest wanted = read_commit_request(call.request);
  return json_answer(api::to_json(parts.sessions.commit(caller(parts, call), call.parameters[0], wanted)));
}

HttpReply roll_back_session(const ServiceParts& parts, Call& call) {
  call.query.refuse_others();
  const bool keep = api::read_rollback(call.request).keep_result;
  return json_answer(api::to_json(parts.sessions.rollback(caller(parts, call), call.parameters[0], keep)));
}

HttpReply approve_session(const ServiceParts& parts, Call& call) {
  call.query.refuse_others();
  Approving approving = read_approving(call.request);
  const session::Approval approval{.review = {.reviewer = {}, .comment = std::move(approving.comment)},
                                   .result = std::move(approving.result),
                                   .message = std::move(approving.message)};
  return json_answer(api::to_json(parts.sessions.approve(caller(parts, call), call.parameters[0], approval)));
}

HttpReply reject_session(const ServiceParts& parts, Call& call) {
  call.query.refuse_others();
  const std::string comment = read_rejecting(call.request);
  return json_answer(api::to_json(parts.sessions.reject(caller(parts, call), call.parameters[0], comment)));
}

}  // namespace

HttpResponse accepted(const LiveConfig& config, ServiceSessions& sessions, const Call& call) noexcept {
  try {
    const std::string& id = call.parameters.at(0);
    const Caller who = caller_of(config, call.request);
    HttpResponse response = created(api::to_json(sessions.get(who, id)), "/v1/sessions/" + id);
    response.status = 202;
    return response;
  } catch (...) {
    return api::problem_of_current_exception();
  }
}

void add_service_routes(api::Router& router, const ServiceParts& parts) {
  const auto bound = [&parts](HttpReply (*handler)(const ServiceParts&, Call&)) -> api::Router::Handler {
    return [parts, handler](Call& call) { return handler(parts, call); };
  };
  const auto get = [&](const char* pattern, auto handler) { router.add("GET", pattern, bound(handler)); };
  const auto post = [&](const char* pattern, auto handler) {
    router.add("POST", pattern, idempotent(parts.store, parts.time, parts.config, bound(handler)));
  };
  // With a preference for how long they may keep their client waiting.
  const auto post_long = [&](const char* pattern, auto handler) {
    router.add("POST", pattern,
               parts.long_verbs.waiting(idempotent(parts.store, parts.time, parts.config, bound(handler))));
  };
  get("/v1/health", health);
  get("/v1/ready", ready);
  get("/v1/version", version);
  get("/metrics", metrics);
  get("/v1/events", follow_events);
  post("/v1/reload", reload);
  get("/v1/repositories", list_repositories);
  post("/v1/repositories", add_repository);
  router.add("DELETE", "/v1/repositories/{repository}", bound(remove_repository));
  get("/v1/repositories/{repository}/branches", branches);
  get("/v1/repositories/{repository}/log", log);
  post("/v1/sessions", open_session);
  get("/v1/sessions", list_sessions);
  get("/v1/sessions/{session}", get_session);
  get("/v1/sessions/{session}/wait", wait_for_session);
  get("/v1/sessions/{session}/changes", session_changes);
  get("/v1/sessions/{session}/diff", session_diff);
  post("/v1/sessions/{session}/mount", mount_session);
  post("/v1/sessions/{session}/unmount", unmount_session);
  post("/v1/sessions/{session}/lease", renew_lease);
  post("/v1/sessions/{session}/update", update_session);
  post("/v1/sessions/{session}/discard", discard_in_session);
  get("/v1/sessions/{session}/unresolved", resolve_in_session);
  post("/v1/sessions/{session}/resolve", resolve_in_session);
  post("/v1/sessions/{session}/resume", resume_session);
  get("/v1/sessions/{session}/savepoints", savepoints);
  post("/v1/sessions/{session}/savepoints", savepoints);
  post("/v1/sessions/{session}/savepoints/{savepoint}/restore", savepoints);
  router.add("DELETE", "/v1/sessions/{session}/savepoints/{savepoint}", bound(savepoints));
  get("/v1/sessions/{session}/mounts", mounts);
  post("/v1/sessions/{session}/mounts", mounts);
  router.add("DELETE", "/v1/sessions/{session}/mounts/{path}", bound(mounts));
  post_long("/v1/sessions/{session}/finish", finish_session);
  post_long("/v1/sessions/{session}/commit", commit_session);
  post("/v1/sessions/{session}/rollback", roll_back_session);
  post_long("/v1/sessions/{session}/approve", approve_session);
  post("/v1/sessions/{session}/reject", reject_session);
  add_file_routes(router, parts);
  add_import_routes(router, parts);
  add_token_routes(router, parts);
  add_upkeep_routes(router, parts);
  add_webhook_routes(router, parts);
}

}  // namespace escrow::daemon
