#include "api/problem.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "api/json_values.h"
#include "api/protocol.h"
#include "api/session_json.h"
#include "session/base/denial.h"
#include "session/base/repo_path.h"

namespace escrow::api {

using session::Errc;

namespace {

// The codes of a system call and of the core that a Problem stands for when only an Error is asked.
Errc errc_of(ProblemCode code) {
  switch (kind_of(code).status) {
    case 400:
      return Errc::bad_request;
    case 401:
    case 403:
      return Errc::not_permitted;
    case 404:
      return Errc::not_found;
    case 409:
      return Errc::wrong_state;
    default:
      return Errc::unavailable;
  }
}

// Of every problem; what else it has is its own. A request's id is of whoever answers it.
const std::set<std::string, std::less<>> kFixedMembers = {"type",     "title",     "status", "code",   "retryable",
                                                          "exit_code", "error",     "detail", "request_id"};

ProblemCode code_named(const std::string& name, unsigned status) {
  std::optional<ProblemCode> of_status;
  for (int value = 0; value <= static_cast<int>(kLastProblem); ++value) {
    const auto code = static_cast<ProblemCode>(value);
    if (name == kind_of(code).name) return code;
    if (!of_status && status == kind_of(code).status) of_status = code;
  }
  return of_status.value_or(ProblemCode::unavailable);
}

}  // namespace

const ProblemKind& kind_of(ProblemCode code) {
  static constexpr ProblemKind kKinds[] = {
      {"malformed_request", 400, false, 2, "Not a request"},
      {"malformed_json", 400, false, 2, "The body is not one JSON object"},
      {"unknown_field", 400, false, 2, "The request has a field that is not known here"},
      {"invalid_value", 400, false, 2, "A field has an impossible value"},
      {"bad_request", 400, false, 2, "The request cannot be understood"},
      {"unauthenticated", 401, false, 1, "The request has no valid token"},
      {"forbidden", 403, false, 1, "Not allowed to this principal"},
      {"not_found", 404, false, 1, "There is no such thing"},
      {"no_repository", 404, false, 125, "There is no such repository"},
      {"no_branch", 404, false, 1, "There is no such branch"},
      {"no_session", 404, false, 1, "There is no such session"},
      {"method_not_allowed", 405, false, 2, "The resource does not know this method"},
      {"request_timeout", 408, true, 125, "The request came too slowly"},
      {"exists", 409, false, 1, "There is one already"},
      {"conflict", 409, false, 122, "The commit meets conflicting changes"},
      {"result_moved", 409, false, 123, "The branch moved, and the result has another id"},
      {"session_finished", 409, false, 1, "The session has another outcome already"},
      {"wrong_state", 409, false, 1, "The state does not allow it"},
      {"data_lost", 409, false, 125, "The disk did not take what programs stored"},
      {"attached_elsewhere", 409, true, 1, "Another process hosts the session"},
      {"busy", 409, true, 1, "In use"},
      {"idempotency_in_flight", 409, true, 1, "The first request with this key is not answered yet"},
      {"body_too_large", 413, false, 2, "The body is too large"},
      {"target_too_long", 414, false, 2, "The target is too long"},
      {"unsupported_media_type", 415, false, 2, "The body is of another type"},
      {"expectation_failed", 417, false, 2, "The expectation is not known"},
      {"idempotency_key_reused", 422, false, 2, "The key was used for another request"},
      {"result_too_large", 422, false, 1, "The answer would be too large"},
      {"unsupported_repository", 422, false, 125, "The repository cannot be used"},
      {"quota_exceeded", 429, true, 1, "The principal has as much as it may have"},
      {"header_too_large", 431, false, 2, "The header is too large"},
      {"internal", 500, false, 125, "Escrow failed"},
      {"damaged_repository", 500, false, 125, "The repository or its state is damaged"},
      {"newer_state", 500, false, 125, "The state was written by a later version"},
      {"not_implemented", 501, false, 2, "Not known to this server"},
      {"branch_moved", 503, true, 1, "The branch moved too often"},
      {"unavailable", 503, true, 125, "Not possible at the moment"},
      {"version_not_supported", 505, false, 2, "Another version of HTTP"},
      {"no_space", 507, true, 125, "The disk is full"},
  };
  static_assert(sizeof kKinds / sizeof *kKinds == static_cast<std::size_t>(kLastProblem) + 1);
  return kKinds[static_cast<std::size_t>(code)];
}

ProblemCode problem_code(Errc code) {
  switch (code) {
    case Errc::not_found:
      return ProblemCode::not_found;
    case Errc::exists:
      return ProblemCode::exists;
    case Errc::access_denied:
    case Errc::not_permitted:
    case Errc::read_only:
      return ProblemCode::forbidden;
    case Errc::no_space:
    case Errc::quota_exceeded:
      return ProblemCode::no_space;
    case Errc::busy:
      return ProblemCode::busy;
    case Errc::input_output:
    case Errc::file_too_large:
      return ProblemCode::internal;
    case Errc::bad_request:
      return ProblemCode::bad_request;
    case Errc::result_too_large:
      return ProblemCode::result_too_large;
    case Errc::no_repository:
      return ProblemCode::no_repository;
    case Errc::unsupported_repository:
      return ProblemCode::unsupported_repository;
    case Errc::damaged_repository:
      return ProblemCode::damaged_repository;
    case Errc::newer_state:
      return ProblemCode::newer_state;
    case Errc::no_branch:
      return ProblemCode::no_branch;
    case Errc::no_session:
      return ProblemCode::no_session;
    case Errc::wrong_state:
    case Errc::not_a_directory:
    case Errc::is_a_directory:
    case Errc::not_empty:
    case Errc::name_too_long:
    case Errc::too_many_links:
    case Errc::invalid_argument:
    case Errc::no_attribute:
    case Errc::no_such_offset:
    case Errc::not_supported:
    case Errc::ambiguous_session:
      return ProblemCode::wrong_state;
    case Errc::attached_elsewhere:
      return ProblemCode::attached_elsewhere;
    case Errc::branch_moved:
      return ProblemCode::branch_moved;
    case Errc::conflict:
      return ProblemCode::conflict;
    case Errc::data_lost:
      return ProblemCode::data_lost;
    case Errc::unavailable:
      return ProblemCode::unavailable;
  }
  return ProblemCode::internal;
}

Problem::Problem(ProblemCode code, session::Errc error, const std::string& detail, Members members,
                 std::vector<session::Conflict> conflicts)
    : session::Error(error, detail),
      problem_(code),
      kind_(kind_of(code)),
      members_(std::move(members)),
      conflicts_(std::move(conflicts)) {}

Problem::Problem(ProblemCode code, const std::string& detail, Members members)
    : Problem(code, errc_of(code), detail, std::move(members), {}) {}

Problem::Problem(const std::string& detail, std::vector<session::Conflict> conflicts, Members members)
    : Problem(ProblemCode::conflict, errc_of(ProblemCode::conflict), detail, std::move(members),
              std::move(conflicts)) {}

std::string Problem::member(std::string_view name) const {
  const auto found = std::ranges::find(members_, name, [](const auto& one) { return one.first; });
  return found == members_.end() ? std::string() : found->second;
}

HttpResponse problem_response(const Problem& problem) {
  const ProblemKind& kind = problem.kind();
  Json json{{"type", std::string("urn:escrow:problem:") + kind.name},
            {"title", kind.title},
            {"status", kind.status},
            {"code", kind.name},
            {"retryable", kind.retryable},
            {"exit_code", kind.exit_code}};
  if (problem.code() != errc_of(problem.problem())) json["error"] = name_of(problem.code());
  set_bytes(json, "detail", problem.what());
  for (const auto& [name, value] : problem.members()) set_bytes(json, name, value);
  if (!problem.conflicts().empty()) json["conflicts"] = conflicts_json(problem.conflicts());
  HttpResponse response{.status = kind.status, .content_type = "application/problem+json", .body = dump(json) + "\n",
                        .headers = {}};
  if (kind.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (kind.retryable) response.headers.emplace_back("Retry-After", "1");
  return response;
}

Problem problem_from_response(const HttpResponse& response) {
  const Json json = parse_object(response.body);
  const ProblemCode code = code_named(get_bytes(json, "code"), response.status);
  Problem::Members members;
  for (const auto& [name, value] : json.items()) {
    if (!kFixedMembers.contains(name) && value.is_string() && !name.ends_with(kExactSuffix)) {
      members.emplace_back(name, get_bytes(json, name));
    }
  }
  Problem problem(code, errc_from_name(get_bytes(json, "error")).value_or(errc_of(code)), get_bytes(json, "detail"),
                  std::move(members), conflicts_from(get_array(json, "conflicts")));
  if (json.contains("retryable")) problem.kind_.retryable = get_bool(json, "retryable");
  if (const auto exit_code = get_integer(json, "exit_code")) problem.kind_.exit_code = static_cast<int>(*exit_code);
  return problem;
}

HttpResponse problem_of_current_exception() noexcept {
  try {
    throw;
  } catch (const Problem& problem) {
    return problem_response(problem);
  } catch (const session::Denied& denied) {
    const auto& [operation, action, path, rule] = denied.denial();
    return problem_response({ProblemCode::forbidden, denied.code(),
                             "'" + session::quote_path(path) + "': " + denied.what() + " (" + rule + ")",
                             {{"path", path}, {"action", action}, {"rule", rule}}, {}});
  } catch (const session::Error& error) {
    return problem_response({problem_code(error.code()), error.code(), error.what(), {}, {}});
  } catch (const std::exception& error) {
    return problem_response(Problem(ProblemCode::internal, std::string("internal error: ") + error.what()));
  }
}

}  // namespace escrow::api
