// When the files and directories of a branch last changed, as far as Escrow has seen the branch; storage keeps it in
// SQLite.
//
// Build tools compare times, so a time says which content is newer: it is that of the commit which brought the content,
// never changes while the content does not, and is never older than that of the content before. A commit that arrived
// late (pushed, or dated by another clock) counts as of when it can first have been seen. What was there when the
// branch was first seen has one time. Sizes grow with the changes, not with the repository.
//
// Thread-safe, and safe between processes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "session/base/clock.h"
#include "session/base/ids.h"
#include "session/interfaces/object_store.h"

namespace escrow::session {

// What is known of the times of all that is below a directory.
struct TimesBelow {
  Timestamp oldest;                 // of everything that BaseTimes::newer() does not name
  std::optional<std::string> path;  // of the repository, for BaseTimes::newer(); nullopt: nothing below is newer
  friend bool operator==(const TimesBelow&, const TimesBelow&) = default;
};

// The times of a branch as it was at one moment: whatever others commit later, they stay as they are.
class BaseTimes {
 public:
  virtual ~BaseTimes() = default;

  struct Directory {
    Timestamp modified;
    TimesBelow below;
  };
  // `path`: below the root of the repository, "" being the root itself.
  virtual Directory directory(const std::string& path) const = 0;

  struct Newer {
    std::string name;
    Timestamp modified;
    // Of a directory:
    Timestamp oldest_below;
    bool has_newer_below = false;
  };
  // The entries of the directory that changed after `than`, by name; some may be gone since. Throws Error.
  virtual std::vector<Newer> newer(const std::string& path, Timestamp than) const = 0;
};

class ChangeTimes {
 public:
  virtual ~ChangeTimes() = default;

  struct Seen {
    std::optional<ObjectId> head;  // of the branch; nullopt: there is none
    Timestamp newest;              // the time of the newest change in it
  };
  // Looks at the branch. What was not seen before gets its times: the trees that differ are read, each once for each
  // commit of which it is part, of the newest thousand. On disk on return. Throws Error.
  virtual Seen see(const std::string& branch, const ReferenceStore& references) = 0;

  // The branch as it was when see() said `newest`.
  virtual std::shared_ptr<const BaseTimes> as_of(const std::string& branch, Timestamp newest) = 0;
};

}  // namespace escrow::session
