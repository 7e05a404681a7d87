#include "session/trees/admitted_tree.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>

#include "session/base/error.h"
#include "session/base/path_prefix.h"
#include "session/trees/git_file_rules.h"

namespace escrow::session {
namespace {

bool is_tree(const std::optional<TreeEntry>& entry) { return entry && entry->mode == GitMode::tree; }
bool is_link(const TreeEntry& entry) { return entry.mode == GitMode::gitlink; }

class Admission {
 public:
  Admission(const ObjectReader& from, Quarantine& quarantine, const AdmittedBy& rules, std::size_t& most_entries)
      : from_(from), quarantine_(quarantine), rules_(rules), left_(most_entries) {}

  struct Place {
    std::string path{};
    std::string name{};
    int depth = 0;
    IgnoreLevel* above = nullptr;
  };

  TreeRoot tree(const TreeRoot& base, const ObjectId& wanted, const Place& place) {
    if (base == wanted) return base;
    check_tree_depth(place.depth);
    const Tree theirs = reader_of(wanted).read_tree(wanted);
    const std::unique_ptr<IgnoreLevel> level = level_of(place, theirs);
    Tree entries;
    for (auto& [name, sides] : join_trees<2>({read_tree_or_empty(quarantine_, base), theirs})) {
      if (left_-- == 0) throw Error(Errc::file_too_large, "their trees have too many entries");
      if (auto entry = admitted(name, sides[0], sides[1], place, level.get())) entries.push_back(*std::move(entry));
    }
    if (entries.empty()) return std::nullopt;
    std::sort(entries.begin(), entries.end(), tree_order_less);
    return quarantine_.put_tree(entries);
  }

 private:
  const ObjectReader& reader_of(const ObjectId& id) const {
    return quarantine_.contains(id) ? static_cast<const ObjectReader&>(quarantine_) : from_;
  }

  std::unique_ptr<IgnoreLevel> level_of(const Place& place, const Tree& theirs) const {
    if (!rules_.root_level) return nullptr;
    IgnoreLevel::ReadFile read = [this, theirs, path = join_path(place.path, kIgnoreFileName)] {
      for (const TreeEntry& one : theirs)
        if (one.name == kIgnoreFileName) return read_ignore_file(reader_of(one.id), one, path);
      return std::string();
    };
    if (place.depth == 0) return rules_.root_level(std::move(read));
    return std::make_unique<IgnoreLevel>(*place.above, place.name, std::move(read));
  }

  // Also, unless it stays a directory, where something below is: no session can remove that.
  bool is_shadowed(const std::string& path, bool stays_directory) const {
    return std::any_of(rules_.shadowed.begin(), rules_.shadowed.end(), [&](const RepoPath& one) {
      return one.text() == path || (!stays_directory && one.text().starts_with(path + "/"));
    });
  }

  std::optional<TreeEntry> admitted(const std::string& name, const std::optional<TreeEntry>& was,
                                    std::optional<TreeEntry> now, const Place& place, IgnoreLevel* level) {
    if (now == was) return was;
    const std::string path = join_path(place.path, name);
    if (is_shadowed(path, is_tree(now)) || git_refuses_name(name)) return was;
    if (!rules_.excludes.empty() && rules_.excludes.match(path, is_tree(now ? now : was))) return was;
    if (!now) return std::nullopt;
    if (is_link(*now)) return was;  // no session can make one
    const bool is_tracked = was && is_tree(was) == is_tree(now);
    if (!is_tracked && level != nullptr && level->ignores(name, is_tree(now))) return std::nullopt;
    if (is_tree(now)) {
      if (git_refuses_directory(name)) return was;
      const TreeRoot below = tree(tree_of(was), now->id, {path, name, place.depth + 1, level});
      return below ? std::optional(TreeEntry{name, GitMode::tree, *below}) : std::nullopt;
    }
    if (now->mode == GitMode::group_writable && !(was && was->mode == GitMode::group_writable))
      now->mode = GitMode::regular;
    take_over(now->id);
    return why_git_refuses(quarantine_, *now) ? was : now;
  }

  void take_over(const ObjectId& blob) {
    if (quarantine_.contains(blob)) {
      quarantine_.blob_size(blob);  // or it is none
      return;
    }
    if (quarantine_.put_blob(*from_.open_blob(blob)) != blob)
      throw Error(Errc::input_output, "object " + blob.hex() + " has other bytes than its id says");
  }

  const ObjectReader& from_;
  Quarantine& quarantine_;
  const AdmittedBy& rules_;
  std::size_t& left_;
};

}  // namespace

TreeRoot admitted_tree(const ObjectReader& from, Quarantine& quarantine, const AdmittedBy& rules, const TreeRoot& base,
                       const ObjectId& wanted, std::size_t& most_entries) {
  return Admission(from, quarantine, rules, most_entries).tree(base, wanted, {});
}

}  // namespace escrow::session
