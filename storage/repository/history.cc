#include "storage/repository/history.h"

#include <algorithm>

#include "session/base/error.h"
#include "session/base/repo_path.h"
#include "storage/disk/file_lookup.h"
#include "storage/git/git_error.h"
#include "storage/git/reference_files.h"

namespace escrow::storage {
namespace {

using session::Commit;
using session::ObjectId;
using session::TreeEntry;

constexpr char kHeads[] = "refs/heads/";

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

// nullopt: it leads to no reference.
std::optional<ObjectId> target_of(const std::string& git_directory, const Reference& symbolic) {
  try {
    return read_reference(git_directory, symbolic.name);
  } catch (const session::Error& error) {
    if (error.code() != session::Errc::damaged_repository) throw;
    return std::nullopt;
  }
}

std::optional<ObjectId> head_of(git_repository* repository, const std::string& branch) {
  const std::string name = kHeads + branch;
  int is_valid = 0;
  check_git(git_reference_name_is_valid(&is_valid, name.c_str()), "checking the name of a branch",
            session::Errc::bad_request);
  return is_valid == 0 ? std::nullopt : read_reference(git_repository_commondir(repository), name);
}

}  // namespace

bool walk_history(git_repository* repository, const GitObjectStore& objects, AuditProof& proof,
                  const HistoryRange& range, const std::function<bool(const LogEntry&)>& visit) {
  const session::RepoPath wanted = session::RepoPath::parse(range.path, "the path");
  git_revwalk* raw = nullptr;
  check_git(git_revwalk_new(&raw, repository), "walking the history");
  const GitRevwalk walk(raw);
  git_revwalk_sorting(raw, GIT_SORT_TOPOLOGICAL | GIT_SORT_TIME);
  const std::optional<ObjectId> head = head_of(repository, range.branch);
  if (!head) {
    throw session::Error(session::Errc::no_branch, "there is no branch '" + range.branch +
                                                       "', or nothing has been committed to it yet");
  }
  const git_oid from = to_git(*head);
  check_git(git_revwalk_push(raw, &from), "reading the branch '" + range.branch + "'", session::Errc::input_output);
  bool is_behind = !range.after;
  int code = 0;
  for (git_oid oid; (code = git_revwalk_next(&oid, raw)) == 0;) {
    if (!is_behind) {
      is_behind = from_git(oid) == *range.after;
      continue;
    }
    LogEntry entry{.id = from_git(oid), .commit = objects.read_commit(from_git(oid)), .trailers = {}};
    if (!wanted.is_root() && !changes_path(objects, entry.commit, wanted)) continue;
    entry.trailers = trailers_of(entry.commit.message);
    entry.is_claimed = proof.is_claimed(entry);
    if (!visit(entry)) return true;
  }
  // The history of a shallow clone ends where libgit2 finds no parent.
  if (code != GIT_ITEROVER && !is_there(git_repository_commondir(repository) + std::string("shallow")))
    check_git(code, "reading the history of the branch '" + range.branch + "'", session::Errc::input_output);
  return is_behind;
}

std::vector<std::pair<std::string, ObjectId>> list_branches(git_repository* repository) {
  const std::string git_directory = git_repository_commondir(repository);
  // A damaged branch is no reason not to list the others; verify names it.
  const TakeDamaged leave_out = [](const std::string&, const session::Error&) {};
  std::vector<std::pair<std::string, ObjectId>> branches;
  for (const Reference& reference : read_references(git_directory, kHeads, leave_out)) {
    const std::optional<ObjectId> head = reference.id ? reference.id : target_of(git_directory, reference);
    if (head) branches.emplace_back(reference.name.substr(std::string_view(kHeads).size()), *head);
  }
  std::sort(branches.begin(), branches.end());
  return branches;
}

}  // namespace escrow::storage
