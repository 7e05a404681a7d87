#include "daemon/process/exit_status.h"

#include "api/problem.h"

namespace escrow::daemon {

using session::Errc;

int exit_status_of(Errc code) {
  switch (code) {
    case Errc::bad_request:
      return kExitUsage;
    case Errc::conflict:
      return kExitConflict;
    case Errc::not_found:
    case Errc::exists:
    case Errc::not_a_directory:
    case Errc::is_a_directory:
    case Errc::not_empty:
    case Errc::name_too_long:
    case Errc::too_many_links:
    case Errc::invalid_argument:
    case Errc::access_denied:
    case Errc::not_permitted:
    case Errc::read_only:
    case Errc::no_attribute:
    case Errc::result_too_large:
    case Errc::no_such_offset:
    case Errc::not_supported:
    case Errc::busy:
    case Errc::no_branch:
    case Errc::no_session:
    case Errc::ambiguous_session:
    case Errc::wrong_state:
    case Errc::attached_elsewhere:
    case Errc::branch_moved:
      return kExitRefused;
    case Errc::no_space:
    case Errc::quota_exceeded:
    case Errc::file_too_large:
    case Errc::input_output:
    case Errc::data_lost:
    case Errc::no_repository:
    case Errc::unsupported_repository:
    case Errc::damaged_repository:
    case Errc::newer_state:
    case Errc::unavailable:
      return kExitEscrowFailed;
  }
  return kExitEscrowFailed;
}

int exit_status_of(const session::Error& error) {
  const auto* const problem = dynamic_cast<const api::Problem*>(&error);
  return problem != nullptr ? problem->kind().exit_code : exit_status_of(error.code());
}

}  // namespace escrow::daemon
