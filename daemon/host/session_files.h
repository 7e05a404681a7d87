// The files of a session by their paths, without a mount: the calls that a program in the mount would make, on the same
// file system, so that policies, limits and the write gate decide as there. Links are not followed.
//
// Thread-safe; two writers of one file mix as they do in a mount. Throws what the file system throws, and
// Error{not_found}, {is_a_directory}, {not_supported}; and Error{access_denied} for a change at or below a name
// that git takes for .git.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "api/protocol.h"
#include "fuse/mount.h"
#include "session/base/repo_path.h"
#include "session/interfaces/file_system.h"

namespace escrow::daemon {

class SessionFiles {
 public:
  // Both must outlive it; `mount`, whose kernel is to forget what is changed here, may be null.
  SessionFiles(session::FileSystem& files, fuse::Mount* mount) : files_(files), mount_(mount) {}

  struct Part {
    std::string bytes;
    std::uint32_t mode = 0;  // as git has it
    std::uint64_t size_bytes = 0;
    std::string version;     // another one: the file was changed
  };
  // Of a file or, its target, of a symbolic link.
  Part read(const session::RepoPath& path, std::uint64_t offset, std::size_t most_bytes);

  // The same without bytes, of a directory too; needs no right to read.
  Part describe(const session::RepoPath& path);

  // The names of a directory in their order, at most `most` of those behind `after`: as a program that lists it sees
  // them. The root has the empty path.
  api::ListingAnswer list(const session::RepoPath& directory, const std::string& after, std::size_t most);

  struct Content {
    std::uint64_t size_bytes = 0;
    std::function<std::size_t(std::uint64_t offset, std::span<std::byte> out)> read;
    std::optional<bool> executable;  // nullopt: as it is
  };
  struct Owner {
    std::uint32_t uid = 0, gid = 0, umask = 0;
  };
  // Returns whether the file is new; missing directories are made. On disk on return. A new file that could not be
  // written is not there; one that was there may then have a part of the new content, and the message says so.
  bool write(const session::RepoPath& path, const Content& content, const Owner& owner);
  // A file, a link, or an empty directory. On disk on return.
  void remove(const session::RepoPath& path);

 private:
  struct Place {
    session::NodeId directory;
    std::string name;
  };
  // The directory that the path's last component is in, made if need be for an `owner`.
  Place place_of(const session::RepoPath& path, const Owner* owner);
  std::optional<session::Attributes> find(const Place& place);
  session::NodeId directory_at(const session::RepoPath& path);
  void forget(const Place& place);
  bool try_unlink(const Place& place);
  void put(session::NodeId node, const Content& content, bool is_new);

  session::FileSystem& files_;  // constant, self-locking
  fuse::Mount* mount_;          // constant, self-locking
};

}  // namespace escrow::daemon
