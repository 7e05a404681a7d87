#include "session/decorators/contained_links.h"

#include <algorithm>
#include <utility>

#include "session/base/error.h"
#include "session/base/file_mode.h"
#include "session/base/link_target.h"
#include "session/decorators/moved_entries.h"

namespace escrow::session {
namespace {

constexpr char kChangesContainment[] = "a symbolic link would lead out of the mount, or no longer would";

// Takes the first component and the slashes after it from `path`.
std::string_view take_component(std::string_view& path) {
  const std::size_t end = std::min(path.find('/'), path.size());
  const std::string_view component = path.substr(0, end);
  path.remove_prefix(std::min(path.find_first_not_of('/', end), path.size()));
  return component;
}

// What is left of an absolute `path` below `root`, or nullopt.
std::optional<std::string_view> below(std::string_view path, std::string_view root) {
  if (!path.starts_with(root)) return std::nullopt;
  std::string_view rest = path.substr(root.size());
  if (!rest.empty() && rest.front() != '/') return std::nullopt;
  rest.remove_prefix(std::min(rest.find_first_not_of('/'), rest.size()));
  return rest;
}

// Of the directory that `path` is in.
std::size_t depth_above(const std::string& path) {
  return static_cast<std::size_t>(std::count(path.begin(), path.end(), '/'));
}

}  // namespace

std::optional<std::size_t> leading_parents(std::string_view target) {
  if (target.starts_with('/')) return std::nullopt;
  std::size_t parents = 0;
  bool named = false;
  while (!target.empty()) {
    const std::string_view component = take_component(target);
    if (component == ".") continue;
    if (component != "..") {
      named = true;
    } else if (named) {
      return std::nullopt;
    } else {
      ++parents;
    }
  }
  return parents;
}

ContainedLinks::ContainedLinks(FileSystem& inner, Paths paths, Roots roots, DenialSink& denials)
    : ForwardingFileSystem(inner), paths_(std::move(paths)), roots_(std::move(roots)), denials_(denials) {}

void ContainedLinks::refuse(const char* operation, const std::string& path, const std::string& why) {
  const std::string whole = roots_.prefix.empty() || path.empty() ? path : roots_.prefix + "/" + path;
  denials_.denied({operation, "follow", whole, "symbolic links are contained"});
  throw Error(Errc::access_denied, why);
}

std::size_t ContainedLinks::depth_of(NodeId directory) const {
  const std::vector<std::string> paths = paths_(directory);
  return paths.empty() || paths.front().empty() ? 0 : depth_above(paths.front()) + 1;
}

bool ContainedLinks::is_contained(std::string_view target, std::size_t depth) const {
  if (!is_link_target(target)) return false;  // at any depth: a move of it changes nothing
  if (target.starts_with('/')) {
    for (const std::string* root : {&roots_.visible, &roots_.host}) {
      if (const auto rest = below(target, *root); rest && leading_parents(*rest) == 0) return true;
    }
    return false;
  }
  const auto parents = leading_parents(target);
  return parents && *parents <= depth;
}

std::string ContainedLinks::read_link(NodeId node) {
  const auto names = names_.lock_shared();
  std::string target = ForwardingFileSystem::read_link(node);
  require_link_target(target);
  const std::vector<std::string> paths = paths_(node);
  // Without a name it was removed while somebody is on the way through it: where to is not known.
  if (paths.empty()) refuse("readlink", "", "a symbolic link was removed while it was being read");
  for (const std::string& path : paths) {
    if (!is_contained(target, depth_above(path)))
      refuse("readlink", path, "the symbolic link " + path + " leads out of the mount");
  }
  if (const auto rest = below(target, roots_.host)) {
    target = roots_.visible + (rest->empty() ? "" : "/" + std::string(*rest));
    require_link_target(target);
  }
  return target;
}

Attributes ContainedLinks::make_symlink(NodeId directory, std::string_view name, std::string_view target,
                                        const Caller& caller) {
  const auto names = names_.lock_shared();
  return ForwardingFileSystem::make_symlink(directory, name, target, caller);
}

Attributes ContainedLinks::link(NodeId node, NodeId directory, std::string_view name) {
  const std::uint32_t mode = attributes(node).mode;
  if ((mode & kTypeMask) != kSymlinkType) return ForwardingFileSystem::link(node, directory, name);
  const auto names = names_.lock();
  const std::size_t depth = depth_of(directory);
  for (const std::string& path : paths_(node)) {
    if (changes_containment(node, mode, depth_above(path), depth)) refuse("link", path, kChangesContainment);
  }
  return ForwardingFileSystem::link(node, directory, name);
}

bool ContainedLinks::changes_containment(NodeId top, std::uint32_t mode, std::size_t depth, std::size_t new_depth) {
  if (new_depth == depth) return false;
  struct Moved {
    NodeId node;
    std::uint32_t mode;
    std::size_t below;  // the directory it moves with
  };
  std::vector<Moved> pending{{top, mode, 0}};
  MovedEntries entries;
  while (!pending.empty()) {
    const Moved moved = pending.back();
    pending.pop_back();
    if ((moved.mode & kTypeMask) == kSymlinkType) {
      const std::string target = ForwardingFileSystem::read_link(moved.node);
      if (is_contained(target, depth + moved.below) != is_contained(target, new_depth + moved.below)) return true;
    }
    if ((moved.mode & kTypeMask) != kDirectoryType) continue;
    list(moved.node, 0, [&](const Entry& entry) {
      if (entry.name == "." || entry.name == "..") return true;
      entries.add();
      pending.push_back({entry.node, entry.mode, moved.below + 1});
      return true;
    });
  }
  return false;
}

void ContainedLinks::rename(NodeId directory, std::string_view name, NodeId new_directory, std::string_view new_name,
                            RenameMode mode) {
  if (directory == new_directory) {
    const auto names = names_.lock_shared();
    return ForwardingFileSystem::rename(directory, name, new_directory, new_name, mode);
  }
  const auto names = names_.lock();
  const std::size_t depth = depth_of(directory), new_depth = depth_of(new_directory);
  const auto check = [&](NodeId from, std::string_view moved_name, std::size_t from_depth, std::size_t to_depth) {
    const auto moved = lookup(from, moved_name);
    if (!moved || !changes_containment(moved->node, moved->mode, from_depth, to_depth)) return;
    const std::vector<std::string> paths = paths_(moved->node);
    refuse("rename", paths.empty() ? "" : paths.front(), kChangesContainment);
  };
  check(directory, name, depth, new_depth);
  if (mode == RenameMode::exchange) check(new_directory, new_name, new_depth, depth);
  ForwardingFileSystem::rename(directory, name, new_directory, new_name, mode);
}

}  // namespace escrow::session
