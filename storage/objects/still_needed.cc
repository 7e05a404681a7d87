#include "storage/objects/still_needed.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "storage/git/git_error.h"
#include "storage/objects/reachable.h"

namespace escrow::storage {
namespace {

using session::GitMode;
using session::ObjectId;
using session::Tree;

// Every entry in which a commit's tree differs from its first parent's: what both have, the parent answers for.
class Search {
 public:
  Search(const GitObjectStore& objects, const std::vector<std::shared_ptr<const PackFile>>& packs)
      : objects_(objects), packs_(packs) {}

  bool commit_needs(const ObjectId& id) {
    if (is_packed(id)) return true;
    const session::Commit commit = objects_.read_commit(id);
    std::optional<ObjectId> before;
    if (!commit.parents.empty() && objects_.contains(commit.parents.front()))
      before = objects_.read_commit(commit.parents.front()).tree;
    return tree_needs(commit.tree, before);
  }

  bool tree_needs(const ObjectId& tree, const std::optional<ObjectId>& before) {
    std::vector<std::pair<ObjectId, std::optional<ObjectId>>> pending = {{tree, before}};
    while (!pending.empty()) {
      const auto [id, counterpart] = pending.back();
      pending.pop_back();
      if (id == counterpart || !seen_.insert(id).second) continue;
      if (is_packed(id)) return true;
      const Tree old = counterpart ? objects_.read_tree(*counterpart) : Tree();
      std::unordered_map<std::string_view, const session::TreeEntry*> by_name;
      for (const auto& entry : old) by_name.emplace(entry.name, &entry);
      for (const auto& entry : objects_.read_tree(id)) {
        if (entry.mode == GitMode::gitlink) continue;
        const auto found = by_name.find(entry.name);
        const bool same_kind = found != by_name.end() && (found->second->mode == GitMode::tree) ==
                                                             (entry.mode == GitMode::tree);
        if (same_kind && found->second->id == entry.id) continue;
        if (is_packed(entry.id)) return true;
        if (entry.mode == GitMode::tree)
          pending.emplace_back(entry.id, same_kind ? std::optional(found->second->id) : std::nullopt);
      }
    }
    return false;
  }

  bool is_packed(const ObjectId& id) const {
    return std::any_of(packs_.begin(), packs_.end(), [&](const auto& pack) { return pack->find(id).has_value(); });
  }

 private:
  const GitObjectStore& objects_;
  const std::vector<std::shared_ptr<const PackFile>>& packs_;
  std::unordered_set<ObjectId> seen_;
};

}  // namespace

bool reaches_into(git_repository* repository, const GitObjectStore& objects,
                  const std::vector<std::shared_ptr<const PackFile>>& packs, const std::vector<ObjectId>& known) {
  Search search(objects, packs);
  git_revwalk* raw = nullptr;
  check_git(git_revwalk_new(&raw, repository), "walking the history");
  const GitRevwalk walk(raw);
  for (const Root& root : all_roots(repository)) {
    const git_oid oid = to_git(root.id);
    git_object* raw_object = nullptr;
    // A reflog or an index may name what is gone.
    if (git_object_lookup(&raw_object, repository, &oid, GIT_OBJECT_ANY) != 0) continue;
    const GitObject object(raw_object);
    if (search.is_packed(root.id)) return true;
    git_object* raw_peeled = nullptr;
    if (git_object_peel(&raw_peeled, raw_object, GIT_OBJECT_COMMIT) == 0) {
      const GitObject peeled(raw_peeled);
      check_git(git_revwalk_push(raw, git_object_id(raw_peeled)), "walking the history");
    } else if (git_object_peel(&raw_peeled, raw_object, GIT_OBJECT_TREE) == 0) {
      const GitObject peeled(raw_peeled);
      if (search.tree_needs(from_git(*git_object_id(raw_peeled)), std::nullopt)) return true;
    }
  }
  for (const ObjectId& commit : known) {
    const git_oid oid = to_git(commit);
    check_git(git_revwalk_hide(raw, &oid), "walking the history");
  }
  int code = 0;
  for (git_oid oid; (code = git_revwalk_next(&oid, raw)) == 0;)
    if (search.commit_needs(from_git(oid))) return true;
  if (code != GIT_ITEROVER) check_git(code, "walking the history");
  return false;
}

}  // namespace escrow::storage
