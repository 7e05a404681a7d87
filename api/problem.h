// What a request is refused with: RFC 9457 documents (application/problem+json) with a closed list of codes.
//
// A Problem is an Error whose code on the wire, and whose further members, are known where it is thrown; every other
// Error gets its code from the one mapping here, and its own code stays in the document as "error". Plain values.
#pragma once

#include <string>
#include <string_view>
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
  // Of an Error with this code, which is finer.
  Problem(ProblemCode code, session::Errc error, const std::string& detail, Members members,
          std::vector<session::Conflict> conflicts);

  ProblemCode problem() const noexcept { return problem_; }
  // That of its code; of one that was answered, what the answer said, which a later version may know better.
  const ProblemKind& kind() const noexcept { return kind_; }
  const Members& members() const noexcept { return members_; }
  // Of one of them; "": there is none.
  std::string member(std::string_view name) const;
  const std::vector<session::Conflict>& conflicts() const noexcept { return conflicts_; }

 private:
  friend Problem problem_from_response(const HttpResponse& response);

  ProblemCode problem_;
  ProblemKind kind_;
  Members members_;  // further string members of the document: "field", "state"
  std::vector<session::Conflict> conflicts_;
};

HttpResponse problem_response(const Problem& problem);
// The other way: what it was written of, so that whoever passes it on passes it on unchanged. A code that is not known
// here is the one of its status. Throws Error{bad_request} for what is no such document.
Problem problem_from_response(const HttpResponse& response);
// Of any exception that is being handled. Those that are no Error are bugs or an empty memory: `internal`.
HttpResponse problem_of_current_exception() noexcept;

}  // namespace escrow::api
