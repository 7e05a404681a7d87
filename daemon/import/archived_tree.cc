#include "daemon/import/archived_tree.h"

#include <algorithm>
#include <utility>

#include "session/base/error.h"
#include "session/base/repo_path.h"
#include "session/trees/git_file_rules.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;
using session::GitMode;
using session::OmissionKind;

namespace {

constexpr std::size_t kMaxDepth = 1024;  // as in a directory
constexpr std::size_t kMaxNameBytes = 255;
constexpr std::size_t kMaxEntries = 4'000'000;  // some half a GiB of names
constexpr std::size_t kShownBytes = 200;

[[noreturn]] void refuse(std::string_view name, const std::string& why) {
  const bool is_long = name.size() > kShownBytes;
  throw Error(Errc::bad_request, "cannot import " + session::quote_path(name.substr(0, kShownBytes)) +
                                     (is_long ? "..." : "") + " of the archive: " + why + "; nothing was changed");
}

[[noreturn]] void refuse_both(std::string_view name) {
  refuse(name, "it, or a directory above it, is in the archive as something else, too");
}

}  // namespace

// "./a//b/" is "a/b"; of the directory that was archived itself there are none.
ArchivedTree::Parts ArchivedTree::parts_of(std::string_view name) {
  if (name.starts_with('/')) refuse(name, "the name is absolute");
  Parts parts;
  for (std::size_t at = 0; at < name.size();) {
    const std::size_t end = std::min(name.find('/', at), name.size());
    const std::string_view part = name.substr(at, end - at);
    at = end + 1;
    if (part.empty() || part == ".") continue;
    if (part == "..") refuse(name, "the name leads out of the archive");
    if (part.size() > kMaxNameBytes) refuse(name, "a part of the name is longer than 255 bytes");
    parts.push_back(part);
  }
  if (parts.size() > kMaxDepth) refuse(name, "directories are nested more than 1024 deep");
  return parts;
}

// The entry of this name, and whether it is new.
std::pair<ArchivedTree::Entry&, bool> ArchivedTree::entry_in(Directory& directory, std::string_view part) {
  const auto [found, is_new] = directory.try_emplace(std::string(part));
  if (is_new && ++entries_ > kMaxEntries) {
    throw Error(Errc::bad_request, "cannot import the archive: it has more than " + std::to_string(kMaxEntries) +
                                       " files and directories; nothing was changed");
  }
  return {found->second, is_new};
}

// Made as need be; null: it is left out with something above it.
ArchivedTree::Directory* ArchivedTree::parent_of(std::string_view name, const Parts& parts) {
  Directory* at = &root_;
  for (const std::string_view& part : parts) {
    if (session::git_refuses_name(part)) {
      entry_in(*at, part).first.is = OmissionKind::git_name;
      return nullptr;
    }
    if (&part == &parts.back()) break;
    const auto [entry, is_new] = entry_in(*at, part);
    if (is_new) entry.is = std::make_unique<Directory>();
    const auto* below = std::get_if<std::unique_ptr<Directory>>(&entry.is);
    if (below == nullptr) refuse_both(name);
    at = below->get();
  }
  return at;
}

// Of an entry that is no directory; null: it is left out.
ArchivedTree::Entry* ArchivedTree::place(std::string_view name, const Parts& parts) {
  if (parts.empty()) refuse(name, "it is the directory that was archived, and nothing else");
  Directory* parent = parent_of(name, parts);
  if (parent == nullptr) return nullptr;
  Entry& entry = entry_in(*parent, parts.back()).first;
  if (std::holds_alternative<std::unique_ptr<Directory>>(entry.is)) refuse_both(name);
  return &entry;
}

const ArchivedTree::Entry* ArchivedTree::find(const Parts& parts) const {
  const Directory* at = &root_;
  for (const std::string_view& part : parts) {
    const auto found = at->find(part);
    if (found == at->end()) return nullptr;
    if (&part == &parts.back()) return &found->second;
    const auto* below = std::get_if<std::unique_ptr<Directory>>(&found->second.is);
    if (below == nullptr) return nullptr;
    at = below->get();
  }
  return nullptr;
}

void ArchivedTree::add_leaf(std::string_view name, GitMode mode, const std::function<session::ObjectId()>& content) {
  const Parts parts = parts_of(name);
  Entry* entry = place(name, parts);
  if (entry == nullptr) return;
  entry->is = Leaf{.mode = mode, .id = content()};
}

void ArchivedTree::add_special(std::string_view name, OmissionKind kind) {
  if (Entry* entry = place(name, parts_of(name))) entry->is = kind;
}

void ArchivedTree::add_directory(std::string_view name) {
  const Parts parts = parts_of(name);
  if (parts.empty()) return;
  Directory* parent = parent_of(name, parts);
  if (parent == nullptr) return;
  const auto [entry, is_new] = entry_in(*parent, parts.back());
  if (is_new) entry.is = std::make_unique<Directory>();
  if (!std::holds_alternative<std::unique_ptr<Directory>>(entry.is)) refuse_both(name);
}

void ArchivedTree::add_hard_link(std::string_view name, std::string_view target) {
  const Parts parts = parts_of(name);
  const bool is_left_out = std::any_of(parts.begin(), parts.end(), session::git_refuses_name);
  if (is_left_out) return add_special(name, OmissionKind::git_name);
  const Entry* found = find(parts_of(target));
  const std::string what = "it is a hard link to " + session::quote_path(target.substr(0, kShownBytes)) + ", which ";
  if (found == nullptr) refuse(name, what + "the archive does not have before it, or which is left out");
  if (const auto* leaf = std::get_if<Leaf>(&found->is)) {
    add_leaf(name, leaf->mode, [id = leaf->id] { return id; });
  } else if (const auto* kind = std::get_if<OmissionKind>(&found->is)) {
    add_special(name, *kind);
  } else {
    refuse(name, what + "is a directory");
  }
}

session::BuiltTree ArchivedTree::build(session::Quarantine& quarantine, ImportFilter filter) const {
  session::BuiltTree built;
  OmittedNames omitted(OmittedNames::kAnswer_bytes);
  FilteredDirectory filtered(
      filter, [&](std::string_view name) { return read_rules_file(quarantine, root_, "", name); });
  built.tree = build(quarantine, root_, "", filtered, omitted);
  built.omitted = omitted.take();
  return built;
}

std::string ArchivedTree::read_rules_file(const session::ObjectReader& objects, const Directory& directory,
                                          const std::string& path, std::string_view name) {
  const auto found = directory.find(name);
  const auto* const leaf = found == directory.end() ? nullptr : std::get_if<Leaf>(&found->second.is);
  if (leaf == nullptr || leaf->mode == GitMode::symlink) return {};
  return read_rules(*objects.open_blob(leaf->id), name, session::join_path(path, name));
}

session::TreeRoot ArchivedTree::build(session::Quarantine& quarantine, const Directory& directory,
                                      const std::string& path, FilteredDirectory& filtered, OmittedNames& omitted) {
  session::Tree tree;
  const auto put = [&](session::TreeEntry made, const std::string& below) {
    if (const auto refused = session::why_git_refuses(quarantine, made)) return omitted.add(below, *refused);
    tree.push_back(std::move(made));
  };
  for (const auto& [name, entry] : directory) {
    const std::string below = session::join_path(path, name);
    const auto* const inner = std::get_if<std::unique_ptr<Directory>>(&entry.is);
    if (const auto why = filtered.why_left_out(name, inner != nullptr)) {
      omitted.add(below, *why);
    } else if (const auto* leaf = std::get_if<Leaf>(&entry.is)) {
      const bool is_for_lfs = leaf->mode != GitMode::symlink && filtered.is_for_lfs(name);
      // Which files these are is known only once the whole archive was read.
      const session::ObjectId id = is_for_lfs ? quarantine.put_lfs_file(*quarantine.open_blob(leaf->id)) : leaf->id;
      put({.name = name, .mode = leaf->mode, .id = id}, below);
    } else if (const auto* kind = std::get_if<OmissionKind>(&entry.is)) {
      omitted.add(below, *kind);
    } else {
      const std::size_t omitted_before = omitted.size();
      FilteredDirectory filtered_below(filtered, name, [&](std::string_view file) {
        return read_rules_file(quarantine, **inner, below, file);
      });
      const session::TreeRoot inside = build(quarantine, **inner, below, filtered_below, omitted);
      if (inside) {
        put({.name = name, .mode = GitMode::tree, .id = *inside}, below);
      } else if (omitted.size() == omitted_before) {
        omitted.add(below, OmissionKind::empty_directory);
      }
    }
  }
  if (tree.empty()) return std::nullopt;
  std::sort(tree.begin(), tree.end(), session::tree_order_less);
  return quarantine.put_tree(tree);
}

}  // namespace escrow::daemon
