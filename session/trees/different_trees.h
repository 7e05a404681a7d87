// How much two trees differ, without a list of it. Each pair of sub-trees is read once, so the cost grows with objects
// and not with paths: thirty trees that each have the next one under ten names are a few kilobytes and 10^30 paths.
// Walks that make a list ask here before it becomes long (BoundedListing).
//
// For one thread. Throws what the reader throws, Error{name_too_long} as check_tree_depth() does, and
// Error{result_too_large} above the bounds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "session/base/change_counts.h"
#include "session/interfaces/object_store.h"
#include "session/trees/tree_walk.h"

namespace escrow::session {

// A listed path takes about 250 bytes of memory. The largest known repositories have fewer than five million files, so
// no commit of theirs changes more; the bounds keep one list below 3 GiB.
inline constexpr std::uint64_t kMostListedPaths = 6'000'000;
inline constexpr std::uint64_t kMostListedPath_bytes = std::uint64_t{1} << 30;
// Bounds of a comparison: pairs of directories that differ, and their entries. Hostile trees can have as many
// different pairs as the product of their numbers; five million files in directories of ten are half a million pairs.
inline constexpr std::size_t kMostTreePairs = 2'000'000;
inline constexpr std::uint64_t kMostComparedEntries = 64'000'000;
// Counts stop here, which JSON still has exactly.
inline constexpr std::uint64_t kMostCounted = 1'000'000'000'000'000;

struct TreePair {
  TreeRoot before, after;
  friend bool operator==(const TreePair&, const TreePair&) = default;
};

struct TreePairHash {
  std::size_t operator()(const TreePair& pair) const noexcept;
};

// A clause that names the bounds, for the end of a message.
std::string listing_bounds();

// How directories are counted that are in one of the trees only: with each file in them, or by their own name. by_git:
// with each file, those among them whose names git refuses and no session shows.
enum class WholeTrees { by_file, by_name, by_git };

class DifferentTrees {
 public:
  DifferentTrees(const ObjectReader& objects, WholeTrees whole) : objects_(objects), whole_(whole) {}

  struct Counts {
    ChangeCounts files;            // as tree_changes() lists them
    std::uint64_t entries = 0;     // that differ and are no directory on both sides
    std::uint64_t path_bytes = 0;  // of the paths of all these, from the root of the pair
    bool can_be_listed() const { return entries <= kMostListedPaths && path_bytes <= kMostListedPath_bytes; }
  };
  // Of everything below the pair, which is `depth` directories deep.
  const Counts& of(const TreePair& pair, int depth = 0);

 private:
  Tree read(const TreeRoot& tree) const;
  void add_entry(Counts& counts, const std::string& name, const std::array<std::optional<TreeEntry>, 2>& sides,
                 int depth);

  const ObjectReader& objects_;
  const WholeTrees whole_;
  std::uint64_t compared_ = 0;
  std::unordered_map<TreePair, Counts, TreePairHash> known_;
};

// For those who list what differs by other means. Throws Error{result_too_large}, its message beginning with `what`,
// unless that list keeps the bounds.
void require_listable(const ObjectReader& objects, WholeTrees whole, const TreePair& pair, const std::string& what);

// For walks by path that list what differs. Short lists cost nothing; before a list becomes long, all of it is counted
// once, and from then on no directory is entered below which nothing is to be listed. One may serve several walks;
// their lists count together.
class BoundedListing {
 public:
  BoundedListing(const ObjectReader& objects, WholeTrees whole) : objects_(objects), whole_(whole) {}

  // A walk begins. This and the others throw Error{result_too_large}: the list is too long, or would be.
  void begin(const TreePair& all);
  // To be asked before a pair of directories is read. False: nothing below differs.
  bool enters(const TreePair& pair, int depth);
  // To be told of each path that is listed.
  void lists(std::size_t path_bytes);

 private:
  void count();

  const ObjectReader& objects_;
  const WholeTrees whole_;
  TreePair all_;
  std::size_t entered_ = 0;
  std::uint64_t listed_ = 0, listed_bytes_ = 0;
  std::optional<DifferentTrees> counted_;
};

}  // namespace escrow::session
