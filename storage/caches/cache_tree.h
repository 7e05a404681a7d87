// What one session has of a cache: a directory tree of its own that begins as an empty directory and comes to show all
// that a generation below it has, one directory at a time.
//
// A directory that was not looked into yet has a mark, which says which directory of the generation it stands for.
// Looking into it fills it: directories are made, with marks of their own, and files are hard links to those below.
// A file that is about to be changed is copied first; a file of several names is copied when the first of them is
// seen. So the session's tree is always an ordinary directory, hard links in it are the kernel's, and nothing below it
// ever changes. Each step can be cut short (kill -9) and is then done again; nothing is synced. Of a crash of the
// machine its bytes know nothing: caches.h sees to that.
// Its directory may be renamed while it is in use. In it: tree/, marks/<inode> (a link that says the path below),
// several/<inode below>/ (names that are not placed yet), own (the inodes of files of several names that are the
// session's own), changed, lock.
// Thread-safe, and safe between processes; throws Error. Sources: link(2), rename(2).
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "session/base/synchronized.h"
#include "storage/disk/unique_fd.h"

namespace escrow::storage {

struct CacheTotals {
  std::uint64_t bytes = 0, entries = 0;  // on the disk; files and directories
  bool has_git = false;                  // any name that git takes for .git
};

class CacheTree {
 public:
  // Makes what a new one needs in `directory`, which exists. `generation` has tree/ and several; "" begins empty.
  static void prepare(const std::string& directory, const std::string& generation);
  CacheTree(const std::string& directory, const std::string& generation);
  // Whether a session has changed what is in `directory`.
  static bool was_changed(const std::string& directory);

  // A directory of the tree, open; its inode is known. Afterwards it holds what it is to hold.
  // Returns whether it did not before.
  bool fill(int directory, std::uint64_t inode);
  // Whether the file also lies below, and must not be changed. A file that was `hidden` counts, too.
  bool is_shared(std::uint64_t inode, std::uint32_t mode, std::uint64_t links) const;
  // Its last name in the tree is about to go.
  void hide(std::uint64_t inode);
  // A copy of the shared file, at its name in this directory, or without a name (directory -1). O_PATH.
  UniqueFd own_copy(int file, int directory, const std::string& name, bool with_bytes);
  // It is the session's, and is about to have several names.
  void note_own(std::uint64_t inode);
  void note_changed();
  bool is_changed() const;

  // Fills all that was not looked into, so that the tree stands by itself, and writes down which of its files have
  // several names. Costs some microseconds for each file and directory.
  CacheTotals complete();

 private:
  struct State {
    std::unordered_set<std::uint64_t> own, hidden;
  };

  void enter(int here, const std::string& path, const struct stat& status, const char* name);
  void place(int here, int below, const struct stat& status, const char* name);
  void copy_several(int below, const struct stat& status, const char* name, const std::string& names);
  CacheTotals total(int directory, std::size_t depth, std::unordered_map<std::uint64_t, std::uint64_t>& several);

  const UniqueFd here_;          // constant, as the others
  const std::string directory_;  // the path of `here_`, wherever it lies
  const UniqueFd marks_, copies_, below_;
  const std::unordered_map<std::uint64_t, std::uint64_t> several_below_;  // inode -> names; of files of several names
  mutable session::Synchronized<State> state_;                            // a leaf
  std::atomic<bool> changed_;
};

}  // namespace escrow::storage
