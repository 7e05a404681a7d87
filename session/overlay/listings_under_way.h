// Listings of directories that have begun, so that one does not go on with names that were made since: a program that
// makes a name for each one it is shown would never come to an end (ext4 ends, too).
//
// A mount passes no opens of directories on, so a listing has no handle: what arrives is a directory and a position.
// A position is taken for the listings that have passed over it, and of those for the one that began last. Where a
// listing is not known, or a position could belong to one that the kernel served from its own copy, it goes on with
// more names rather than with fewer. Thread-safe; one lock, a leaf.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "session/base/ids.h"
#include "session/base/synchronized.h"

namespace escrow::session {

class ListingsUnderWay {
 public:
  // The last cookie that a listing shows which goes on behind `cookie`; nullopt: whatever is there now.
  std::optional<std::uint64_t> last_of(NodeId directory, std::uint64_t cookie);
  // A listing has shown names from behind `from` to `to`, and shows none behind `last`.
  void went_on(NodeId directory, std::uint64_t from, std::uint64_t to, std::uint64_t last);
  // It has shown that there are no more names behind `at`.
  void ended(NodeId directory, std::uint64_t at, std::uint64_t last);

 private:
  static constexpr std::size_t kDirectories = 1024, kListings = 32;  // remembered at most, and for each directory
  struct Listing {
    std::uint64_t from, to, last;
  };
  struct Directory {
    std::vector<Listing> listings;  // oldest first
    std::uint64_t floor = 0;        // the greatest `last` of those that ended or were forgotten
  };
  using Directories = std::unordered_map<NodeId, Directory>;

  Synchronized<Directories> directories_;
};

}  // namespace escrow::session
