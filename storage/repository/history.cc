#include "storage/repository/history.h"

#include <algorithm>

#include "session/base/error.h"
#include "session/base/repo_path.h"
#include "storage/git/git_error.h"

namespace escrow::storage {
namespace {

using session::Commit;
using session::ObjectId;
using session::TreeEntry;

std::vector<std::pair<std::string, std::string>> trailers_of(const std::string& message) {
  git_message_trailer_array found{};
  std::vector<std::pair<std::string, std::string>> trailers;
  if (git_message_trailers(&found, message.c_str()) == 0) {
    for (std::size_t i = 0; i < found.count; ++i) {
      trailers.emplace_back(found.trailers[i].key, found.trailers[i].value);
    }
  }
  git_message_trailer_array_free(&found);
  return trailers;
}

std::optional<TreeEntry> entry_at(const GitObjectStore& objects, ObjectId tree, const session::RepoPath& path) {
  std::optional<TreeEntry> found;
  for (const std::string_view component : path.components()) {
    if (found && found->mode != session::GitMode::tree) return std::nullopt;
    const session::Tree entries = objects.read_tree(found ? found->id : tree);
    const auto entry =
        std::find_if(entries.begin(), entries.end(), [&](const TreeEntry& one) { return one.name == component; });
    if (entry == entries.end()) return std::nullopt;
    found = *entry;
  }
  return found;
}

// A merge that took the path as one parent had it did not change it (git-log(1), history simplification).
bool changes_path(const GitObjectStore& objects, const Commit& commit, const session::RepoPath& path) {
  const auto here = entry_at(objects, commit.tree, path);
  if (commit.parents.empty()) return here.has_value();
  return std::none_of(commit.parents.begin(), commit.parents.end(), [&](const ObjectId& parent) {
    return entry_at(objects, objects.read_commit(parent).tree, path) == here;
  });
}

}  // namespace

void walk_history(git_repository* repository, const GitObjectStore& objects, const std::string& branch,
                  const std::string& path, const std::function<bool(const LogEntry&)>& visit) {
  const session::RepoPath wanted = session::RepoPath::parse(path, "the path");
  git_revwalk* raw = nullptr;
  check_git(git_revwalk_new(&raw, repository), "walking the history");
  const GitRevwalk walk(raw);
  git_revwalk_sorting(raw, GIT_SORT_TOPOLOGICAL | GIT_SORT_TIME);
  git_oid head;
  const int code = git_reference_name_to_id(&head, repository, ("refs/heads/" + branch).c_str());
  if (code == GIT_ENOTFOUND || code == GIT_EINVALIDSPEC) {
    throw session::Error(session::Errc::no_branch, "there is no branch '" + branch +
                                                       "', or nothing has been committed to it yet");
  }
  check_git(code, "reading the branch '" + branch + "'");
  check_git(git_revwalk_push(raw, &head), "reading the branch '" + branch + "'", session::Errc::input_output);
  for (git_oid oid; git_revwalk_next(&oid, raw) == 0;) {
    LogEntry entry{from_git(oid), objects.read_commit(from_git(oid)), {}};
    if (!wanted.is_root() && !changes_path(objects, entry.commit, wanted)) continue;
    entry.trailers = trailers_of(entry.commit.message);
    if (!visit(entry)) return;
  }
}

std::vector<std::pair<std::string, ObjectId>> list_branches(git_repository* repository) {
  constexpr std::string_view kHeads = "refs/heads/";
  git_reference_iterator* raw = nullptr;
  check_git(git_reference_iterator_glob_new(&raw, repository, "refs/heads/*"), "listing branches");
  const GitReferenceIterator iterator(raw);
  std::vector<std::pair<std::string, ObjectId>> branches;
  for (const char* name = nullptr; git_reference_next_name(&name, raw) == 0;) {
    git_oid head;
    // One that went meanwhile is left out.
    if (git_reference_name_to_id(&head, repository, name) != 0) continue;
    branches.emplace_back(std::string_view(name).substr(kHeads.size()), from_git(head));
  }
  std::sort(branches.begin(), branches.end());
  return branches;
}

}  // namespace escrow::storage
