// The times of the entries of one directory of the base (change_times.h). Constant after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "session/interfaces/change_times.h"
#include "session/interfaces/object_store.h"

namespace escrow::session {

class ListedTimes {
 public:
  // One time for all.
  explicit ListedTimes(Timestamp all) : oldest_(all) {}
  // Of the entries of `tree`, which is at `directory`. `times` may be null where nothing is newer. Throws Error.
  ListedTimes(const Tree& tree, const TimesBelow& directory, const BaseTimes* times);

  // Of the entry with this index in the tree.
  Timestamp modified(std::size_t index) const;
  // Below it, where it is a directory; `name` is the entry's.
  TimesBelow below(std::size_t index, std::string_view name) const;

 private:
  struct Entry {
    std::size_t index;
    Timestamp modified, oldest_below;
    bool has_newer_below;
  };
  const Entry* find(std::size_t index) const;

  Timestamp oldest_;
  std::string path_;
  std::vector<Entry> newer_;  // by index
};

}  // namespace escrow::session
