#include "session/transaction/kept_commits.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "session/base/error.h"
#include "session/transaction/commit.h"
#include "session/trees/admitted_tree.h"

namespace escrow::session {
namespace {

constexpr std::size_t kMostEntries = 1'000'000;

std::string kept_subject_of(const KeptCommit& commit) {
  return "'" + commit.message.substr(0, commit.message.find('\n')) + "'";
}

}  // namespace

KeptCommits take_over(const CommitsInside& inside, const SessionRecord& record, const IgnoreRule& ignore,
                      Quarantine& quarantine) {
  KeptCommits kept;
  kept.rest_message = inside.rest_message;
  kept.why_not = inside.why_not;
  if (inside.commits.empty() || !kept.why_not.empty()) return kept;
  try {
    kept.base_tree = tree_of_commit(quarantine, inside.base);
    std::optional<IgnoringAbove> ignoring;
    AdmittedBy rules{.excludes = PathPatterns(record.options.excludes), .shadowed = inside.shadowed};
    if (ignore.is_on && !record.options.include_ignored) {
      ignoring.emplace(quarantine, kept.base_tree, record.options.prefix, ignore);
      rules.root_level = [&](IgnoreLevel::ReadFile read) { return ignoring->level(std::move(read)); };
    }
    std::size_t most_entries = kMostEntries;
    for (const CommitsInside::One& one : inside.commits) {
      const TreeRoot tree =
          admitted_tree(*inside.objects, quarantine, rules, kept.base_tree, one.tree, most_entries);
      kept.commits.push_back({one.message, tree, one.author_time_s});
    }
  } catch (const Error& error) {
    if (error.code() == Errc::no_space || error.code() == Errc::quota_exceeded) throw;
    kept.commits.clear();
    kept.why_not = error.what();
  }
  return kept;
}

KeptCommits kept_on(const TreeRoot& head_tree, const TreeRoot& merged, const KeptCommits& kept,
                    const std::string& branch, const Services& services, Quarantine& quarantine) {
  KeptCommits found;
  found.why_not = kept.why_not;
  TreeRoot now = head_tree;
  const TreeRoot* before = &kept.base_tree;
  for (const KeptCommit& one : kept.commits) {
    const SessionResult step{.base = {}, .base_tree = *before, .tree = one.tree};
    auto tree = merge_onto(now, step, branch, services, quarantine);
    if (const auto* conflicts = std::get_if<Conflicts>(&tree)) {
      found.commits.clear();
      found.why_not = kept_subject_of(one) + " by itself conflicts with the branch in " + conflicts->paths.front().path;
      return found;
    }
    const TreeRoot after = std::get<TreeRoot>(tree);
    if (after != now) found.commits.push_back({one.message, after, one.author_time_s});
    now = after;
    before = &one.tree;
  }
  if (!found.commits.empty() && now != merged) found.commits.push_back({kept.rest_message, merged, 0});
  return found;
}

}  // namespace escrow::session
