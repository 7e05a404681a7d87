// The directories of the configuration below which a caller may name others: opened once, walked beneath.
//
// Thread-safe. A path is followed from an opened root, component by component, by openat2(2) with RESOLVE_BENEATH,
// RESOLVE_NO_SYMLINKS and RESOLVE_NO_XDEV: neither "..", a link, a mount nor a race leads elsewhere. Throws
// api::Problem{forbidden} and {invalid_value}.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "daemon/import/directory_walk.h"
#include "daemon/process/file_descriptor.h"
#include "session/base/synchronized.h"

namespace escrow::daemon {

// As OpenInside, and neither into a mount nor out of the directory.
FileDescriptor open_beneath(int directory, const std::string& name, int flags);

class AllowedRoots {
 public:
  // `what` names the list in messages: "mount_roots". Throws Error{bad_request} for a root that is no directory, or is
  // not written in its one absolute form.
  AllowedRoots(const std::vector<std::string>& roots, std::string what);

  // From here on those of `other`; who walks one of them now goes on.
  void take(const AllowedRoots& other);

  // `path` is an existing directory below a root; with `create` its last component may be missing, and is made
  // (mode 01755: where only the owner may write the sticky bit means nothing else than that the service made it). The
  // directories on the way must belong to root or to this user and be writable by nobody else, so that the path means
  // the same directory later, too: mount(2) and umount2(2) take paths. `field` is the request's, for messages.
  void check(const std::string& path, bool create, const std::string& field) const;
  // A directory that check() has made, unless something is in it or mounted on it.
  void remove_made(const std::string& path) const;

  // A directory that is a root or below one, opened for reading. `open` opens every component, with the rights of
  // whoever is to read it; what it may not lead to is as for open_beneath().
  FileDescriptor open(const std::string& path, const std::string& field, const OpenInside& open) const;

 private:
  struct Root {
    std::string path;
    FileDescriptor directory;
  };
  // What a path leads through from its root on; nothing: it is the root.
  struct Way {
    std::shared_ptr<const std::vector<Root>> all;  // keeps the root
    const Root& root;
    std::vector<std::string> names;
  };
  Way way_to(const std::string& path, const std::string& field) const;
  std::string what_;  // constant
  mutable session::Synchronized<std::shared_ptr<const std::vector<Root>>> roots_;  // self-locking
};

}  // namespace escrow::daemon
