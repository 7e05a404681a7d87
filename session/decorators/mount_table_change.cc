// The part of MountTable that makes tables, and replaces one while it is in use.
#include <algorithm>
#include <utility>

#include "session/base/error.h"
#include "session/base/file_mode.h"
#include "session/decorators/mount_table.h"

namespace escrow::session {

std::shared_ptr<MountTable::Live> MountTable::make_live(Entry entry, Numbers& numbers) {
  if (numbers.next_range < kRanges) return std::make_shared<Live>(std::move(entry), numbers.next_range++);
  const auto departed = departed_.lock();
  if (departed->free_ranges.empty()) {
    throw Error(Errc::busy, "thousands of entries that the mount table had are in use still; unmount the session and "
                            "mount it again");
  }
  const std::uint64_t range = departed->free_ranges.front();
  departed->free_ranges.pop_front();
  return std::make_shared<Live>(std::move(entry), range);
}

std::shared_ptr<MountTable::Table> MountTable::make_table(const Table* before, std::vector<Entry> entries,
                                                          Numbers& numbers) {
  auto table = std::make_shared<Table>();
  table->spots.emplace(0, Spot{});
  table->by_path.emplace(std::string(), 0);
  const auto there_before = [before](const std::string& path) -> const Spot* {
    if (before == nullptr) return nullptr;
    const auto found = before->by_path.find(path);
    return found == before->by_path.end() ? nullptr : &before->spots.at(found->second);
  };
  for (Entry& entry : entries) {
    std::uint64_t at = 0;
    for (const std::string_view component : entry.path.components()) {
      const auto& children = table->spots.at(at).children;
      if (const auto found = children.find(component); found != children.end()) {
        at = found->second;
        continue;
      }
      Spot spot{join_path(table->spots.at(at).path, component), std::string(component), at, {}, {}};
      // What was on the way, and is, keeps its number; so does an entry.
      const bool is_entry = spot.path == entry.path.text();
      const Spot* const old = there_before(spot.path);
      const bool is_same = old != nullptr && (old->entry != nullptr) == is_entry;
      const std::uint64_t number = is_same ? before->by_path.at(spot.path) : numbers.next_spot++;
      table->spots.at(at).children.emplace(component, number);
      table->by_path.emplace(spot.path, number);
      table->spots.emplace(number, std::move(spot));
      at = number;
    }
    const Spot* const old = there_before(entry.path.text());
    const bool stays = old != nullptr && old->entry != nullptr && old->entry->entry.files == entry.files;
    const std::shared_ptr<Live> live = stays ? old->entry : make_live(std::move(entry), numbers);
    table->spots.at(at).entry = live;
    table->by_range.emplace(live->range, live);
  }
  return table;
}

// Before the new table is shown: nobody ever meets a node that neither has.
void MountTable::depart(const Table& before, const Table& after) {
  const auto departed = departed_.lock();
  for (const auto& [range, live] : before.by_range) {
    if (after.by_range.contains(range)) continue;
    live->is_removed = !after.by_path.contains(live->entry.path.text()) ||
                       after.spots.at(after.by_path.at(live->entry.path.text())).entry == nullptr;
    departed->by_range.emplace(range, live);
  }
}

void MountTable::drop_unheld(std::optional<std::uint64_t> only) {
  std::vector<std::shared_ptr<Live>> dropped;  // closed without the lock
  const auto departed = departed_.lock();
  for (auto at = departed->by_range.begin(); at != departed->by_range.end();) {
    if (at->second->held > 0 || (only && *only != at->first)) {
      ++at;
      continue;
    }
    departed->free_ranges.push_back(at->first);
    dropped.push_back(std::move(at->second));
    at = departed->by_range.erase(at);
  }
}

void MountTable::close_departed() {
  const auto departed = departed_.lock_shared();
  for (const auto& [range, live] : departed->by_range)
    if (live->is_removed || live->entry.is_volatile) live->is_closed = true;
}

// A directory can be the repository's or one of the table's own, and be the other one after the change.
void MountTable::name_way(const Table& table, const RepoPath& path, std::vector<Overlay::Stale>& names) {
  std::optional<NodeId> in_repository = kRootNode;
  std::string at;
  for (const std::string_view component : path.components()) {
    const auto spot = table.by_path.find(at);
    if (spot != table.by_path.end() && spot->second != 0)
      names.push_back({NodeId{(kSpotRange << kRangeBits) | spot->second}, std::string(component)});
    if (in_repository) names.push_back({*in_repository, std::string(component)});
    if (in_repository) {
      const std::optional<Attributes> found = Inner::own_lookup(*in_repository, component);
      // A file can have come to be on the way.
      const bool leads_on = found && (found->mode & kTypeMask) == kDirectoryType;
      in_repository = leads_on ? std::optional(found->node) : std::nullopt;
    }
    at = join_path(at, component);
  }
}

std::vector<Overlay::Stale> MountTable::replace(std::vector<Entry> entries) {
  const auto numbers = numbers_.lock();
  const Shown before = now();
  const std::shared_ptr<Table> after = make_table(before.get(), std::move(entries), *numbers);
  std::vector<Overlay::Stale> names;
  const auto name_changed = [&](const Table& of, const Table& other) {
    for (const auto& [range, live] : of.by_range) {
      if (other.by_range.contains(range)) continue;
      name_way(*before, live->entry.path, names);
      name_way(*after, live->entry.path, names);
      // Directories of the repository that the kernel knows already are on the way from here on.
      std::string at;
      for (const std::string_view component : live->entry.path.components()) {
        at = join_path(at, component);
        const auto spot = after->by_path.find(at);
        if (spot != after->by_path.end()) spot_attributes(*after, spot->second);
      }
    }
  };
  name_changed(*before, *after);
  name_changed(*after, *before);
  drop_unheld();  // what nobody came back for
  depart(*before, *after);
  *table_.lock() = after;
  std::sort(names.begin(), names.end(), [](const Overlay::Stale& one, const Overlay::Stale& other) {
    return std::pair(one.directory.value, one.name) < std::pair(other.directory.value, other.name);
  });
  const auto same = [](const Overlay::Stale& one, const Overlay::Stale& other) {
    return one.directory == other.directory && one.name == other.name;
  };
  names.erase(std::unique(names.begin(), names.end(), same), names.end());
  return names;
}

}  // namespace escrow::session
