#include "session/trees/different_trees.h"

#include <algorithm>
#include <array>
#include <string>

#include "session/base/error.h"
#include "session/trees/reconcile.h"

namespace escrow::session {
namespace {

// So much is listed before anything is counted.
constexpr std::size_t kEnteredUncounted = 10'000;
constexpr std::size_t kListedUncounted = 65'536;
constexpr std::size_t kListedUncounted_bytes = std::size_t{16} << 20;

void add_saturated(std::uint64_t& sum, std::uint64_t more) { sum = std::min(kMostCounted, sum + more); }

std::uint64_t saturated_product(std::uint64_t a, std::uint64_t b) {
  return a != 0 && b > kMostCounted / a ? kMostCounted : a * b;
}

std::string text_of(const TreeRoot& tree) { return tree ? "tree " + tree->hex() : "the empty tree"; }

[[noreturn]] void refuse(const TreePair& all) {
  throw Error(Errc::result_too_large, "too much differs between " + text_of(all.before) + " and " +
                                          text_of(all.after) + ": " + listing_bounds());
}

void add_file(ChangeCounts& files, Did did) {
  switch (did) {
    case Did::nothing: return;
    case Did::added: return add_saturated(files.added, 1);
    case Did::deleted: return add_saturated(files.deleted, 1);
    case Did::modified:
    case Did::type_changed: return add_saturated(files.modified, 1);
  }
}

}  // namespace

std::size_t TreePairHash::operator()(const TreePair& pair) const noexcept {
  const std::hash<ObjectId> hash;
  const std::size_t before = pair.before ? hash(*pair.before) : 1, after = pair.after ? hash(*pair.after) : 2;
  return before ^ (after * 0x9e3779b97f4a7c15u);
}

std::string listing_bounds() {
  return "Escrow lists at most " + std::to_string(kMostListedPaths) + " paths of " +
         std::to_string(kMostListedPath_bytes >> 20) + " MiB, and compares at most " +
         std::to_string(kMostTreePairs) + " directories";
}

Tree DifferentTrees::read(const TreeRoot& tree) const {
  if (whole_ == WholeTrees::by_git && tree) return objects_.read_tree(*tree);
  return read_tree_or_empty(objects_, tree);
}

const DifferentTrees::Counts& DifferentTrees::of(const TreePair& pair, int depth) {
  if (const auto found = known_.find(pair); found != known_.end()) return found->second;
  Counts counts;
  if (pair.before != pair.after) {
    check_tree_depth(depth);
    const auto joined = join_trees<2>({read(pair.before), read(pair.after)});
    compared_ += joined.size();
    if (known_.size() >= kMostTreePairs || compared_ > kMostComparedEntries)
      throw Error(Errc::result_too_large, "too much differs in what is compared: " + listing_bounds());
    for (const auto& [name, sides] : joined)
      if (sides[0] != sides[1]) add_entry(counts, name, sides, depth);
  }
  return known_.emplace(pair, counts).first->second;
}

void DifferentTrees::add_entry(Counts& counts, const std::string& name,
                               const std::array<std::optional<TreeEntry>, 2>& sides, int depth) {
  const std::optional<TreeEntry> leaf_before = leaf_of(sides[0]), leaf_after = leaf_of(sides[1]);
  const TreePair below{tree_of(sides[0]), tree_of(sides[1])};
  const bool both_trees = below.before && below.after;
  if (leaf_before != leaf_after) add_file(counts.files, what_was_done(leaf_before, leaf_after));
  if (!both_trees) {
    add_saturated(counts.entries, 1);
    add_saturated(counts.path_bytes, name.size());
    if (whole_ == WholeTrees::by_name) return;
  }
  if (below.before == below.after) return;
  const Counts& inner = of(below, depth + 1);
  add_saturated(counts.files.added, inner.files.added);
  add_saturated(counts.files.deleted, inner.files.deleted);
  add_saturated(counts.files.modified, inner.files.modified);
  add_saturated(counts.entries, inner.entries);
  add_saturated(counts.path_bytes, inner.path_bytes);
  add_saturated(counts.path_bytes, saturated_product(inner.entries, name.size() + 1));
}

void require_listable(const ObjectReader& objects, WholeTrees whole, const TreePair& pair, const std::string& what) {
  bool can_be = false;
  try {
    can_be = DifferentTrees(objects, whole).of(pair).can_be_listed();
  } catch (const Error& error) {
    if (error.code() != Errc::result_too_large) throw;
  }
  if (!can_be) throw Error(Errc::result_too_large, what + ": " + listing_bounds());
}

void BoundedListing::begin(const TreePair& all) {
  all_ = all;
  if (counted_) count();
}

bool BoundedListing::enters(const TreePair& pair, int depth) {
  if (pair.before == pair.after) return false;
  if (++entered_ == kEnteredUncounted && !counted_) count();
  if (entered_ > kMostTreePairs) refuse(all_);
  return !counted_ || counted_->of(pair, depth).entries != 0;
}

void BoundedListing::lists(std::size_t path_bytes) {
  listed_ += 1;
  listed_bytes_ += path_bytes;
  if (listed_ > kMostListedPaths || listed_bytes_ > kMostListedPath_bytes) refuse(all_);
  if (!counted_ && (listed_ >= kListedUncounted || listed_bytes_ >= kListedUncounted_bytes)) count();
}

void BoundedListing::count() {
  if (!counted_) counted_.emplace(objects_, whole_);
  if (!counted_->of(all_).can_be_listed()) refuse(all_);
}

}  // namespace escrow::session
