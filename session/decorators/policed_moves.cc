// Renames and links under a policy: neither is a way round what was denied.
//
// What moves needs `rename` and `delete` at its old path, `rename` and `create` at its new one; a directory with all it
// holds. And nothing is gained: what was denied on a file at its old path is not allowed at the new.
#include <utility>
#include <vector>

#include "session/decorators/moved_entries.h"
#include "session/decorators/policed_internal.h"

namespace escrow::session {
namespace {

constexpr Actions kNotToBeGained = {Action::read, Action::list, Action::write, Action::remove, Action::metadata};

}  // namespace

void PolicedFileSystem::require_move(const Spot& from, const Spot& to) {
  for (const Action action : {Action::rename, Action::remove}) require_at(from, action, "rename");
  for (const Action action : {Action::rename, Action::create}) require_at(to, action, "rename");
  const Actions gained = (policy_.allowed(to.place) & kNotToBeGained) - policy_.allowed(from.place);
  if (!gained.empty()) refuse(from.path, from.is_directory, gained.first(), "rename");
}

// Everything below the directory. The tree is visited only where a rule could see a difference.
void PolicedFileSystem::require_move_of_all(NodeId directory, const Spot& from, const Spot& to) {
  if (!policy_.may_differ_below(from.path) && !policy_.may_differ_below(to.path)) return;
  struct Pending {
    NodeId directory;
    Spot from, to;
  };
  std::vector<Pending> pending{{directory, from, to}};
  MovedEntries entries;
  while (!pending.empty()) {
    const Pending at = std::move(pending.back());
    pending.pop_back();
    Inner::list(at.directory, 0, [&](const Entry& entry) {
      if (entry.name == "." || entry.name == "..") return true;
      entries.add();
      const bool is_directory = (entry.mode & kTypeMask) == kDirectoryType;
      Spot child_from = spot_in(at.from, entry.name, is_directory);
      Spot child_to = spot_in(at.to, entry.name, is_directory);
      require_move(child_from, child_to);
      if (is_directory) pending.push_back({entry.node, std::move(child_from), std::move(child_to)});
      return true;
    });
  }
}

// False: a directory would move, and the names are not held still.
bool PolicedFileSystem::try_rename(NodeId directory, std::string_view name, NodeId new_directory,
                                   std::string_view new_name, RenameMode mode, bool may_move_directories) {
  const auto source = Inner::lookup(directory, name);
  const auto target = Inner::lookup(new_directory, new_name);
  const bool moves_directory = (source && session::is_directory(*source)) ||
                               (mode == RenameMode::exchange && target && session::is_directory(*target));
  if (moves_directory && !may_move_directories) return false;
  const Spot from_directory = directory_at(directory), to_directory = directory_at(new_directory);
  const auto judge = [&](const Attributes& moved, const Spot& parent, std::string_view old_name, const Spot& new_parent,
                         std::string_view new_one) {
    const Spot from = spot_in(parent, old_name, session::is_directory(moved));
    const Spot to = spot_in(new_parent, new_one, from.is_directory);
    require_move(from, to);
    if (from.is_directory) require_move_of_all(moved.node, from, to);
  };
  std::optional<Attributes> replaced;
  if (!source) {
    // What the call answers must not tell it from one that is denied.
    require_at(spot_in(from_directory, name, false), Action::rename, "rename");
  } else {
    judge(*source, from_directory, name, to_directory, new_name);
    if (target && mode == RenameMode::exchange) {
      judge(*target, to_directory, new_name, from_directory, name);
    } else if (target && target->node != source->node) {
      require_at(spot_in(to_directory, new_name, session::is_directory(*target)), Action::remove, "rename");
      if (mode == RenameMode::replace) replaced = target;
    }
  }
  Removal removal(*this, replaced);
  Inner::rename(directory, name, new_directory, new_name, mode);
  removal.done();
  if (moves_directory) {
    remembered_.forget_all();
  } else {
    if (source) remembered_.forget(source->node);
    if (target) remembered_.forget(target->node);
  }
  return true;
}

void PolicedFileSystem::rename(NodeId directory, std::string_view name, NodeId new_directory,
                               std::string_view new_name, RenameMode mode) {
  {
    const auto names = names_.lock_shared();
    if (try_rename(directory, name, new_directory, new_name, mode, false)) return;
  }
  const auto names = names_.lock();
  try_rename(directory, name, new_directory, new_name, mode, true);
}

// A commit makes a file of its own of each name: so the new one must not allow what an old one denies.
Attributes PolicedFileSystem::link(NodeId node, NodeId directory, std::string_view name) {
  const auto names = names_.lock_shared();
  const Spot spot = spot_in(directory_at(directory), name, false);
  require_at(spot, Action::create, "link");
  const Actions gained = (policy_.allowed(spot.place) & kNotToBeGained) - allowed_on(node);
  if (!gained.empty()) require_on(node, gained.first(), "link");
  const Attributes linked = Inner::link(node, directory, name);
  remembered_.forget(node);
  return linked;
}

}  // namespace escrow::session
