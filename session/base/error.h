// The one exception type of Escrow and its closed list of codes.
//
// Expected answers are values (optional, variant); refusals and faults are an Error. It is caught at three places:
// the FUSE reply boundary, the control-socket dispatcher and main. A message says what was being done, to what, what
// went wrong and what to do. Every mapping of Errc is a switch without default, so a new code is a compile error there.
#pragma once

#include <stdexcept>
#include <string>

namespace escrow::session {

enum class Errc {
  // What a system call can be refused with; fuse/errno_map.h gives the errno of the same meaning.
  not_found,           // ENOENT
  exists,              // EEXIST
  not_a_directory,     // ENOTDIR
  is_a_directory,      // EISDIR
  not_empty,           // ENOTEMPTY
  name_too_long,       // ENAMETOOLONG
  too_many_links,      // EMLINK
  invalid_argument,    // EINVAL
  access_denied,       // EACCES
  not_permitted,       // EPERM
  read_only,           // EROFS
  no_space,            // ENOSPC
  quota_exceeded,      // EDQUOT
  file_too_large,      // EFBIG
  no_attribute,        // ENODATA
  result_too_large,    // ERANGE
  no_such_offset,      // ENXIO (lseek past the last data)
  not_supported,       // EOPNOTSUPP
  busy,                // EBUSY
  input_output,        // EIO: a damaged object, a failing disk
  // What a command or a request can be refused with.
  bad_request,         // malformed input: an option, a name, a value
  no_repository,       // nothing there, or not a git repository
  unsupported_repository,  // an extension or owner that libgit2 refuses; named in the message
  damaged_repository,  // an object, a reference or Escrow's state cannot be read
  newer_state,         // state written by a later version of Escrow
  no_branch,
  no_session,
  ambiguous_session,   // a prefix that names several sessions
  wrong_state,         // the session's state does not allow this
  attached_elsewhere,  // another process hosts the session
  branch_moved,        // compare-and-swap lost too often
  conflict,            // a commit met conflicting changes
  data_lost,           // the disk did not take what programs stored: not in a commit until written again, or discarded
  unavailable,         // the host process does not answer, /dev/fuse is missing: something outside must change
};

class Error : public std::runtime_error {
 public:
  Error(Errc code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Errc code() const noexcept { return code_; }

 private:
  Errc code_;
};

}  // namespace escrow::session
