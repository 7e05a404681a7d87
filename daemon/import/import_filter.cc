#include "daemon/import/import_filter.h"

#include <algorithm>
#include <map>
#include <utility>

#include "session/base/repo_path.h"
#include "session/interfaces/session_record.h"
#include "session/trees/different_trees.h"

namespace escrow::daemon {

using session::GitMode;
using session::OmissionKind;
using session::Tree;
using session::TreeEntry;
using session::TreeRoot;

namespace {

TreeRoot merge_excluded(session::Quarantine& quarantine, const TreeRoot& before, const TreeRoot& imported,
                        const session::PathPatterns& excludes, const std::string& path, int depth) {
  session::check_tree_depth(depth);
  if (!before) return imported;
  std::map<std::string, TreeEntry> merged;
  for (TreeEntry& entry : session::read_tree_or_empty(quarantine, imported)) merged[entry.name] = std::move(entry);
  for (const TreeEntry& entry : quarantine.read_tree(*before)) {
    const std::string below = session::join_path(path, entry.name);
    const bool is_directory = entry.mode == GitMode::tree;
    const auto found = merged.find(entry.name);
    if (excludes.match(below, is_directory)) {
      if (found == merged.end()) merged[entry.name] = entry;
      continue;
    }
    const bool is_other = found != merged.end() && found->second.mode != GitMode::tree;
    if (!is_directory || is_other) continue;
    const TreeRoot inside = found == merged.end() ? TreeRoot() : TreeRoot(found->second.id);
    if (const TreeRoot tree = merge_excluded(quarantine, entry.id, inside, excludes, below, depth + 1))
      merged[entry.name] = {.name = entry.name, .mode = GitMode::tree, .id = *tree};
  }
  if (merged.empty()) return std::nullopt;
  Tree tree;
  for (auto& [name, entry] : merged) tree.push_back(std::move(entry));
  std::sort(tree.begin(), tree.end(), session::tree_order_less);
  return quarantine.put_tree(tree);
}

}  // namespace

ImportFilter::ImportFilter(session::Session& session, const session::ReferenceStore& references)
    : objects_(&session.quarantine()) {
  const session::SessionRecord record = session.record();
  excludes_ = session::PathPatterns(record.options.excludes);
  const session::BranchRule rule = references.rule_of(record.options.branch);
  const TreeRoot base = session::tree_of_commit(*objects_, record.base);
  attributes_.emplace(*objects_, base, record.options.prefix, rule.attributes_file);
  if (!rule.ignore.is_on || record.options.include_ignored) return;
  ignoring_.emplace(*objects_, base, record.options.prefix, rule.ignore);
}

FilteredDirectory::FilteredDirectory(ImportFilter& filter, const ReadFile& read) : filter_(filter) {
  if (filter.attributes_)
    attributes_ = filter.attributes_->level([read] { return read(session::kAttributesFileName); });
  if (!filter.ignoring_) return;
  level_ = filter.ignoring_->level([read] { return read(session::kIgnoreFileName); });
  tracked_root_ = filter.ignoring_->tracked();
}

FilteredDirectory::FilteredDirectory(FilteredDirectory& above, std::string_view name, const ReadFile& read)
    : filter_(above.filter_), path_(session::join_path(above.path_, name)) {
  if (above.attributes_ != nullptr)
    attributes_ = std::make_unique<session::AttributeLevel>(
        *above.attributes_, name, [read] { return read(session::kAttributesFileName); });
  if (above.level_ == nullptr) return;
  level_ = std::make_unique<session::IgnoreLevel>(*above.level_, name,
                                                  [read] { return read(session::kIgnoreFileName); });
  tracked_root_ = session::tree_of(above.tracked(name));
}

std::optional<TreeEntry> FilteredDirectory::tracked(std::string_view name) {
  if (!tracked_root_) return std::nullopt;
  if (!tracked_) tracked_ = filter_.objects_->read_tree(*tracked_root_);
  const auto found = std::find_if(tracked_->begin(), tracked_->end(),
                                  [&](const TreeEntry& one) { return one.name == name; });
  return found == tracked_->end() ? std::nullopt : std::optional(*found);
}

std::optional<OmissionKind> FilteredDirectory::why_left_out(std::string_view name, bool is_directory) {
  if (!filter_.excludes_.empty() && filter_.excludes_.match(session::join_path(path_, name), is_directory))
    return OmissionKind::excluded;
  if (level_ == nullptr || !level_->ignores(name, is_directory)) return std::nullopt;
  const std::optional<TreeEntry> entry = tracked(name);
  if (entry && (entry->mode == GitMode::tree) == is_directory) return std::nullopt;
  return OmissionKind::ignored;
}

std::string read_rules(const session::ByteSource& content, std::string_view name, const std::string& path) {
  return name == session::kAttributesFileName ? session::read_attributes_file(content, path)
                                              : session::read_ignore_file(content, path);
}

TreeRoot with_excluded(session::Quarantine& quarantine, const TreeRoot& before, const TreeRoot& imported,
                       const session::PathPatterns& excludes) {
  if (excludes.empty()) return imported;
  session::require_listable(quarantine, session::WholeTrees::by_git, {std::nullopt, before},
                            "cannot import with --exclude, which looks at every path of the session");
  return merge_excluded(quarantine, before, imported, excludes, "", 0);
}

}  // namespace escrow::daemon
