#include "storage/objects/reachable.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "session/base/error.h"
#include "storage/disk/file_lookup.h"
#include "storage/git/git_error.h"

namespace escrow::storage {
namespace {

using session::ObjectId;

constexpr git_time_t kClockSkew_s = 7 * 24 * 3600;

// Reflog lines begin "<old> <new> ": both keep objects alive.
void add_reflog(const std::string& file, std::vector<Root>& roots) {
  for_each_line(file, [&](std::string_view line) {
    if (line.size() < 81) return;
    for (const std::size_t at : {std::size_t{0}, std::size_t{41}}) {
      const auto id = ObjectId::from_hex(line.substr(at, 40));
      if (id && !id->is_null()) roots.push_back({*id, "reflog " + file, false});
    }
  });
}

void add_reflogs(const std::string& logs, std::vector<Root>& roots) {
  for_each_below(logs, [&roots](const std::string& path, const struct stat& status) {
    if (S_ISREG(status.st_mode)) add_reflog(path, roots);
  });
}

void add_index(const std::string& file, std::vector<Root>& roots) {
  if (!is_there(file)) return;
  git_index* raw = nullptr;
  check_git(git_index_open(&raw, file.c_str()), "reading " + file);
  const GitIndex index(raw);
  for (std::size_t i = 0; i < git_index_entrycount(raw); ++i) {
    const git_index_entry* entry = git_index_get_byindex(raw, i);
    if (entry->mode != GIT_FILEMODE_COMMIT) roots.push_back({from_git(entry->id), "index", false});
  }
}

// FETCH_HEAD has a line for each branch, the others have one.
void add_head(const std::string& file, const std::string& name, std::vector<Root>& roots) {
  for_each_line(file, [&](std::string_view line) {
    if (const auto id = ObjectId::from_hex(line.substr(0, 40))) roots.push_back({*id, name, name == "HEAD"});
  });
}

// What each work tree has of its own; `directory` has a slash at its end.
void add_own_roots(const std::string& directory, std::vector<Root>& roots) {
  add_reflogs(directory + "logs", roots);
  add_index(directory + "index", roots);
  for (const char* name : {"HEAD", "MERGE_HEAD", "ORIG_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "FETCH_HEAD"})
    add_head(directory + name, name, roots);
}

}  // namespace

std::vector<Root> all_roots(git_repository* repository, const TakeDamaged& damaged) {
  std::vector<Root> roots;
  const std::string git_directory = git_repository_commondir(repository);  // with a slash
  for (Reference& reference : all_references(git_directory, damaged))
    if (reference.id) roots.push_back({*reference.id, std::move(reference.name), true});
  add_own_roots(git_directory, roots);
  const std::string worktrees = git_directory + "worktrees/";
  for (const std::string& name : names_in(worktrees)) add_own_roots(worktrees + name + "/", roots);
  return roots;
}

namespace {

// Of all references in `directory` that are neither symbolic nor results nor damaged.
std::vector<ObjectId> reference_targets(git_repository* repository, const std::string& directory) {
  const TakeDamaged leave_out = [](const std::string&, const session::Error&) {};
  std::vector<ObjectId> targets;
  for (const Reference& reference : read_references(git_repository_commondir(repository), directory, leave_out))
    if (reference.id && !reference.name.starts_with("refs/sessions/")) targets.push_back(*reference.id);
  return targets;
}

bool is_reached_from(git_repository* repository, std::vector<ObjectId> targets, const ObjectId& commit) {
  if (std::find(targets.begin(), targets.end(), commit) != targets.end()) return true;
  const git_oid oid = to_git(commit);
  git_commit* raw = nullptr;
  if (git_commit_lookup(&raw, repository, &oid) != 0) return false;
  const GitCommit wanted(raw);
  std::sort(targets.begin(), targets.end());
  targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
  for (const ObjectId& target : targets) {
    // One by one: a tag of a tree among the targets would make the question about all of them fail. What is much older
    // than the commit cannot have it among its ancestors, and need not be walked.
    const git_oid tip = to_git(target);
    if (git_commit_lookup(&raw, repository, &tip) != 0) continue;
    const GitCommit descendant(raw);
    if (git_commit_time(descendant.get()) + kClockSkew_s < git_commit_time(wanted.get())) continue;
    if (git_graph_descendant_of(repository, &tip, &oid) == 1) return true;
  }
  return false;
}

}  // namespace

bool is_referenced(git_repository* repository, const ObjectId& commit) {
  // Branches first: what was just committed is at the end of one, while each open session has a reference of its own.
  return is_reached_from(repository, reference_targets(repository, "refs/heads/"), commit) ||
         is_reached_from(repository, reference_targets(repository, "refs/"), commit);
}

void walk_objects(std::vector<Root> roots, std::unordered_set<ObjectId>& seen,
                  const std::function<std::optional<RawObject>(const Reached&)>& visit) {
  // What a required root reaches is required, even if a reflog reaches it too.
  std::stable_partition(roots.begin(), roots.end(), [](const Root& root) { return root.required; });
  std::vector<Reached> pending;
  for (const Root& root : roots) {
    pending.push_back({root.id, std::nullopt, &root});
    while (!pending.empty()) {
      const Reached item = pending.back();
      pending.pop_back();
      if (!seen.insert(item.id).second) continue;
      const std::optional<RawObject> object = visit(item);
      if (!object) continue;
      const auto follow = [&](const ObjectId& id, std::optional<ObjectType> type) {
        if (!seen.contains(id)) pending.push_back({id, type, &root});
      };
      if (object->type == ObjectType::commit) {
        const session::Commit commit = decode_commit(object->content, item.id);
        for (const ObjectId& parent : commit.parents) follow(parent, ObjectType::commit);
        follow(commit.tree, ObjectType::tree);
      } else if (object->type == ObjectType::tree) {
        for (const auto& entry : decode_tree(object->content, item.id)) {
          if (entry.mode == session::GitMode::gitlink) continue;
          follow(entry.id, entry.mode == session::GitMode::tree ? ObjectType::tree : ObjectType::blob);
        }
      } else if (object->type == ObjectType::tag) {
        follow(decode_tag_target(object->content, item.id), std::nullopt);
      }
    }
  }
}

}  // namespace escrow::storage
