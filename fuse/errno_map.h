// What a refusal of the core means to a system call: the one mapping from Errc to errno.
// A pure function without default branch, so that a new code is a compile error here. Source: the comments of Errc.
#pragma once

#include <cerrno>

#include "session/base/error.h"

namespace escrow::fuse {

constexpr int errno_of(session::Errc code) noexcept {
  using session::Errc;
  switch (code) {
    case Errc::not_found: return ENOENT;
    case Errc::exists: return EEXIST;
    case Errc::not_a_directory: return ENOTDIR;
    case Errc::is_a_directory: return EISDIR;
    case Errc::not_empty: return ENOTEMPTY;
    case Errc::name_too_long: return ENAMETOOLONG;
    case Errc::too_many_links: return EMLINK;
    case Errc::invalid_argument: return EINVAL;
    case Errc::access_denied: return EACCES;
    case Errc::not_permitted: return EPERM;
    case Errc::read_only: return EROFS;
    case Errc::no_space: return ENOSPC;
    case Errc::quota_exceeded: return EDQUOT;
    case Errc::file_too_large: return EFBIG;
    case Errc::no_attribute: return ENODATA;
    case Errc::result_too_large: return ERANGE;
    case Errc::no_such_offset: return ENXIO;
    case Errc::not_supported: return EOPNOTSUPP;
    case Errc::busy: return EBUSY;
    case Errc::input_output: return EIO;
    // Refusals of commands; a system call should never meet them.
    case Errc::bad_request: return EINVAL;
    case Errc::no_repository:
    case Errc::unsupported_repository:
    case Errc::damaged_repository:
    case Errc::newer_state:
    case Errc::no_branch:
    case Errc::no_session:
    case Errc::ambiguous_session:
    case Errc::wrong_state:
    case Errc::attached_elsewhere:
    case Errc::branch_moved:
    case Errc::conflict:
    case Errc::data_lost:
    case Errc::unavailable: return EIO;
  }
  return EIO;
}

}  // namespace escrow::fuse
