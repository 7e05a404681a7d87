// Counts the entries that are visited before a directory moves: a few small trees of git can stand for more than can
// be visited. For one thread.
#pragma once

#include <cstddef>
#include <string>

#include "session/base/error.h"

namespace escrow::session {

// Each takes about 600 bytes of the host's memory, for the directory that it is in. The largest repositories have more
// files, but not in one directory that is moved.
inline constexpr std::size_t kMostMovedEntries = 2'000'000;

class MovedEntries {
 public:
  // Throws Error{result_too_large}.
  void add() {
    if (++count_ > kMostMovedEntries)
      throw Error(Errc::result_too_large,
                  "cannot rename the directory: each entry below it would have to be looked at, and it has more than " +
                      std::to_string(kMostMovedEntries) + "; rename what is in it");
  }

 private:
  std::size_t count_ = 0;
};

}  // namespace escrow::session
