#include "session/trees/unfiltered_changes.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "session/base/repo_path.h"
#include "session/trees/attribute_files.h"
#include "session/trees/check_in_conversions.h"
#include "session/trees/tree_changes.h"

namespace escrow::session {
namespace {

bool is_regular(const std::optional<TreeEntry>& entry) {
  return entry && (entry->mode == GitMode::regular || entry->mode == GitMode::executable ||
                   entry->mode == GitMode::group_writable);
}

// The directories from the root of a tree to the one that was asked for last: changes come in the order of their paths.
class LevelsOfTree {
 public:
  LevelsOfTree(const ObjectReader& objects, const TreeRoot& root, std::string_view info_attributes)
      : objects_(objects) {
    enter("", root, [&](AttributeLevel::ReadFile read) {
      return std::make_unique<AttributeLevel>(info_attributes, std::move(read));
    });
  }

  // `directory` of the tree: "" or "a/b/".
  AttributeLevel& of(std::string_view directory) {
    while (!directory.starts_with(levels_.back().path)) levels_.pop_back();
    while (levels_.back().path.size() < directory.size()) {
      Level& above = levels_.back();
      const std::string_view rest = directory.substr(above.path.size());
      const std::string name(rest.substr(0, rest.find('/')));
      enter(above.path + name + "/", tree_of(entry_named(above.tree, name)), [&](AttributeLevel::ReadFile read) {
        return std::make_unique<AttributeLevel>(*above.attributes, name, std::move(read));
      });
    }
    return *levels_.back().attributes;
  }

 private:
  struct Level {
    std::string path;
    Tree tree;
    std::unique_ptr<AttributeLevel> attributes;
  };

  template <typename Make>
  void enter(std::string path, const TreeRoot& root, const Make& make) {
    Tree tree = read_tree_or_empty(objects_, root);
    const std::optional<TreeEntry> file = entry_named(tree, kAttributesFileName);
    std::unique_ptr<AttributeLevel> attributes = make([this, file, at = path + std::string(kAttributesFileName)] {
      return file ? read_attributes_file(objects_, *file, at) : std::string();
    });
    levels_.push_back({std::move(path), std::move(tree), std::move(attributes)});
  }

  const ObjectReader& objects_;
  std::vector<Level> levels_;
};

}  // namespace

std::vector<UnfilteredChange> unfiltered_changes(const ObjectReader& objects, const TreeRoot& before,
                                                 const TreeRoot& after, const std::string& info_attributes) {
  std::vector<PathChange> changes = tree_changes(objects, before, after);
  std::set<ObjectId> known;
  for (const PathChange& change : changes)
    if (is_regular(change.before)) known.insert(change.before->id);
  std::erase_if(changes, [&](const PathChange& change) {
    return !is_regular(change.after) || known.contains(change.after->id);
  });
  std::sort(changes.begin(), changes.end(),
            [](const PathChange& one, const PathChange& other) { return one.path < other.path; });
  LevelsOfTree levels(objects, after, info_attributes);
  std::vector<UnfilteredChange> found;
  for (const PathChange& change : changes) {
    const std::size_t name = change.path.rfind('/') + 1;
    const SaidAttributes said = levels.of(std::string_view(change.path).substr(0, name))
                                    .settings_of(change.path.substr(name), check_in_attributes());
    std::string attribute = converting_attribute(said);
    if (attribute.empty() || objects.open_blob(change.after->id)->size() == 0) continue;
    found.push_back({change.path, std::move(attribute)});
  }
  return found;
}

std::string named(const std::vector<UnfilteredChange>& changes) {
  constexpr std::size_t kNamed = 5;
  std::string text;
  for (std::size_t at = 0; at < std::min(changes.size(), kNamed); ++at)
    text += (at == 0 ? "" : ", ") + quote_path(changes[at].path) + " (" + quote_path(changes[at].attribute) + ")";
  if (changes.size() > kNamed) text += " and " + std::to_string(changes.size() - kNamed) + " more";
  return text;
}

}  // namespace escrow::session
