// Says which repositories may have changed, and which of their branches: inotify(7) on the directories of the branches
// and of the catalog. Costs nothing while nothing happens, and the same whatever a repository holds.
//
// Whoever moves a branch, git moves it by renaming a file into refs/heads/; whoever changes a session, its catalog's
// log is written. A hint, not a proof: what was missed (an overflow of the kernel's queue) is said as "everything". Not
// thread-safe. Throws Error{unavailable}.
#pragma once

#include <map>
#include <set>
#include <string>

#include "daemon/process/file_descriptor.h"

namespace escrow::daemon {

class RepositoryWatch {
 public:
  RepositoryWatch();

  // `git_directory` is watched from here on, under `name`. Once more: new directories of branches are.
  void add(const std::string& name, const std::string& git_directory);

  void remove(const std::string& name);

  struct Changed {
    std::set<std::string> branches;  // these may have moved
    bool all_branches = false;       // any may have
    bool catalog = false;            // sessions may have changed
  };
  // By the repositories' names. Takes what has come since the last time; does not wait.
  std::map<std::string, Changed> take();
  // Readable when there is something to take.
  int descriptor() const { return inotify_.get(); }

 private:
  enum class Kind { git_directory, state, branches };
  struct Watched {
    std::string name;           // of the repository
    std::string git_directory;
    Kind kind = Kind::branches;
    std::string below;          // of a directory of branches: "" or "team/"
  };
  void watch(const std::string& path, const Watched& what, unsigned mask);
  void watch_branches(const std::string& name, const std::string& git_directory, const std::string& below);
  void note(const Watched& where, unsigned mask, const std::string& file, Changed& changed);

  FileDescriptor inotify_;
  std::map<int, Watched> watched_;  // by watch descriptor
};

}  // namespace escrow::daemon
