// What a request is refused with: RFC 9457 documents (application/problem+json) with a closed list of codes.
//
// A Problem is an Error whose code on the wire, and whose further members, are known where it is thrown; every other
// Error gets its code from the one mapping here. Plain values.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "api/http_message.h"
#include "session/base/error.h"
#include "session/trees/reconcile.h"

namespace escrow::api {

enum class ProblemCode {
  malformed_request,
  malformed_json,
  unknown_field,
  invalid_value,
  bad_request,
  unauthenticated,
  forbidden,
  not_found,
  no_repository,
  no_branch,
  no_session,
  method_not_allowed,
  request_timeout,
  exists,
  conflict,
  result_moved,
  session_finished,
  wrong_state,
  data_lost,
  attached_elsewhere,
  busy,
  idempotency_in_flight,
  body_too_large,
  target_too_long,
  unsupported_media_type,
  expectation_failed,
  idempotency_key_reused,
  result_too_large,
  unsupported_repository,
  quota_exceeded,
  header_too_large,
  internal,
  damaged_repository,
  newer_state,
  not_implemented,
  branch_moved,
  unavailable,
  version_not_supported,
  no_space,
};
inline constexpr ProblemCode kLastProblem = ProblemCode::no_space;

struct ProblemKind {
  const char* name;   // the document's "code"
  unsigned status;    // of HTTP
  bool retryable;     // the same request may succeed later
  int exit_code;      // of the command line for the same failure
  const char* title;
};
const ProblemKind& kind_of(ProblemCode code);
ProblemCode problem_code(session::Errc code);

class Problem : public session::Error {
 public:
  using Members = std::vector<std::pair<std::string, std::string>>;
  Problem(ProblemCode code, const std::string& detail, Members members = {});
  // Of a commit.
  Problem(const std::string& detail, std::vector<session::Conflict> conflicts, Members members = {});

  ProblemCode problem() const noexcept { return problem_; }
  const Members& members() const noexcept { return members_; }
  const std::vector<session::Conflict>& conflicts() const noexcept { return conflicts_; }

 private:
  ProblemCode problem_;
  Members members_;  // further string members of the document: "field", "state"
  std::vector<session::Conflict> conflicts_;
};

HttpResponse problem_response(const Problem& problem);
// Of any exception that is being handled. Those that are no Error are bugs or an empty memory: `internal`.
HttpResponse problem_of_current_exception() noexcept;

}  // namespace escrow::api
