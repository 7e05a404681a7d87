// The reflog of one reference: where it was, who moved it, and why. For whoever holds the reference's lock.
//
// Opened, and room for an entry made, before the reference moves: what can fail fails then. An entry is appended only
// after the reference is on disk in its new place, so that each tells the truth whatever dies in between. One object
// per move; not shared between threads. Source: refs/files-backend.c of git.
#pragma once

#include <string>

#include "session/base/ids.h"
#include "storage/disk/unique_fd.h"

namespace escrow::storage {

class Reflog {
 public:
  // `name` is a reference's. Makes room for `entries`, lines of reflog_entry(), which come next.
  Reflog(const std::string& git_directory, const std::string& name, std::string entries);
  // Appends them, and is durable on return: all of them, or none when it throws.
  void append();
  // The names on the way to it are on disk when it returns.
  static void sync_names(const std::string& git_directory, const std::string& name);

 private:
  const std::string path_;
  std::string entries_;
  UniqueFd file_;
  long long size_ = 0;      // before
  bool is_new_ = false;  // its name may not be on disk
};

// One line. `who` is "NAME <EMAIL>"; `time_s` with `offset_minutes` to the east of UTC.
std::string reflog_entry(const session::ObjectId& before, const session::ObjectId& after, const std::string& who,
                         long long time_s, int offset_minutes, const std::string& message);

// Whether the reference was at `commit` once, as far back as its reflog goes.
bool reflog_has(const std::string& git_directory, const std::string& name, const session::ObjectId& commit);

}  // namespace escrow::storage
