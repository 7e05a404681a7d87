// The directories of the configuration below which a caller may name others: opened once, walked beneath.
//
// Thread-safe. A path is followed from an opened root, component by component, by openat2(2) with RESOLVE_BENEATH,
// RESOLVE_NO_SYMLINKS and RESOLVE_NO_XDEV: neither "..", a link, a mount nor a race leads elsewhere. The directories on
// the way must belong to root or to this user and be writable by nobody else, so that the path means the same
// directory later, too: mount(2) and umount2(2) take paths. Throws api::Problem{forbidden} and {invalid_value}.
#pragma once

#include <string>
#include <vector>

#include "daemon/file_descriptor.h"

namespace escrow::daemon {

class AllowedRoots {
 public:
  // `what` names the list in messages: "mount_roots". Throws Error{bad_request} for a root that is no directory, or is
  // not written in its one absolute form.
  AllowedRoots(const std::vector<std::string>& roots, std::string what);

  // `path` is an existing directory below a root; with `create` its last component may be missing, and is made
  // (mode 0755). `field` is the request's, for messages.
  void check(const std::string& path, bool create, const std::string& field) const;

 private:
  struct Root {
    std::string path;
    FileDescriptor directory;
  };
  std::string what_;         // constant, as the next
  std::vector<Root> roots_;
};

}  // namespace escrow::daemon
