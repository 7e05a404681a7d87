#include "session/trees/listed_times.h"

#include <algorithm>

#include "session/base/repo_path.h"

namespace escrow::session {

ListedTimes::ListedTimes(const Tree& tree, const TimesBelow& directory, const BaseTimes* times)
    : oldest_(directory.oldest) {
  if (!directory.path || times == nullptr) return;
  path_ = *directory.path;
  const std::vector<BaseTimes::Newer> found = times->newer(path_, oldest_);
  if (found.empty()) return;
  const auto before = [](const BaseTimes::Newer& one, std::string_view name) { return one.name < name; };
  for (std::size_t index = 0; index < tree.size(); ++index) {
    const auto at = std::lower_bound(found.begin(), found.end(), std::string_view(tree[index].name), before);
    if (at == found.end() || at->name != tree[index].name) continue;
    newer_.push_back({index, at->modified, at->oldest_below, at->has_newer_below});
  }
}

const ListedTimes::Entry* ListedTimes::find(std::size_t index) const {
  const auto before = [](const Entry& one, std::size_t wanted) { return one.index < wanted; };
  const auto at = std::lower_bound(newer_.begin(), newer_.end(), index, before);
  return at == newer_.end() || at->index != index ? nullptr : &*at;
}

Timestamp ListedTimes::modified(std::size_t index) const {
  const Entry* entry = find(index);
  return entry != nullptr ? entry->modified : oldest_;
}

TimesBelow ListedTimes::below(std::size_t index, std::string_view name) const {
  const Entry* entry = find(index);
  if (entry == nullptr) return {oldest_, std::nullopt};
  if (!entry->has_newer_below) return {entry->oldest_below, std::nullopt};
  return {entry->oldest_below, join_path(path_, name)};
}

}  // namespace escrow::session
