// A `git switch` may be under way while a session is committed to the branch that it comes onto, or leaves. git reads
// the branch, writes index and files under the lock of the index, compares them, and changes HEAD last, without that
// lock.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <sstream>
#include <thread>
#include <utility>

#include "daemon/host/checkouts.h"
#include "session/base/error.h"
#include "session/base/repo_path.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/file_lookup.h"
#include "storage/disk/lock_file.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;

namespace {

constexpr std::chrono::milliseconds kSwitchPatience{5000}, kComparePatience{300}, kLookAgainEvery{5};
constexpr std::chrono::seconds kTurnPatience{10};
constexpr std::time_t kRecent_s = 2;
// Commits that come while git is switching are younger than that, and fewer.
constexpr std::time_t kYoung_s = 15;
constexpr int kMostMissed = 17;

std::string head_on(const std::string& branch) { return "ref: refs/heads/" + branch; }

template <typename Condition>
bool wait_until(const Condition& holds, IndexLock::Deadline deadline) {
  while (!holds()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kLookAgainEvery);
  }
  return true;
}

bool is_recent(const std::string& path) {
  const std::optional<struct stat> status = storage::status_of(path);
  return status && std::abs(::time(nullptr) - status->st_mtim.tv_sec) <= kRecent_s;
}

bool is_later(const std::string& path, const std::string& other) {
  const auto time_of = [](const std::string& file) {
    const std::optional<struct stat> status = storage::status_of(file);
    return status ? std::pair(status->st_mtim.tv_sec, status->st_mtim.tv_nsec) : std::pair<std::time_t, long>(0, 0);
  };
  return time_of(path) > time_of(other);
}

// `directory` is the git directory of a work tree. A git that has just locked the index is waited for: it may be about
// to change HEAD. A `git commit -a` is not: it has the index locked for as long as its editor is open.
bool comes_onto(const std::string& branch, const std::string& directory, IndexLock::Deadline deadline) try {
  const std::string index = directory + "/index", lock = IndexLock::path_of(index);
  const auto is_on = [&] { return storage::first_line_of(directory + "/HEAD") == head_on(branch); };
  const auto is_switching = [&] { return IndexLock::is_gits(index) && !is_later(directory + "/COMMIT_EDITMSG", lock); };
  if (!storage::is_there(index) && !storage::is_there(lock)) return false;  // there is no work tree
  if (is_on()) return true;
  if (!is_switching() || !is_recent(lock)) return false;
  if (!wait_until([&] { return is_on() || !is_switching(); }, deadline)) return false;
  return wait_until(is_on, std::min(deadline, std::chrono::steady_clock::now() + kComparePatience));
} catch (const Error&) {
  return false;  // it cannot be looked at
}

}  // namespace

bool Checkouts::goes_one_elsewhere(const std::vector<std::string>& work_trees, const std::string& branch) const try {
  const auto deadline = std::chrono::steady_clock::now() + kComparePatience;
  const std::string here = head_on(branch);
  for (const std::string& work_tree : work_trees) {
    std::string directory;
    if (whose_is(work_tree, directory) != Whose::ours || !is_recent(directory + "/index")) continue;
    wait_until([&] { return storage::first_line_of(directory + "/HEAD") != here; }, deadline);
  }
  return on_branch(branch) != work_trees;
} catch (const Error&) {
  return false;
}

void Checkouts::look_again(const std::string& branch, const std::vector<std::string>& followed) const noexcept try {
  const auto deadline = std::chrono::steady_clock::now() + kSwitchPatience;
  std::vector<std::string> newcomers;
  const auto look = [&](const std::string& directory) {
    const bool has_followed = std::find(followed.begin(), followed.end(), directory) != followed.end();
    if (!has_followed && comes_onto(branch, directory, deadline)) newcomers.push_back(directory);
  };
  if (git_directory_.ends_with("/.git")) look(git_directory_);
  for (const std::string& name : storage::names_in(git_directory_ + "/worktrees"))
    look(git_directory_ + "/worktrees/" + name);
  if (newcomers.empty()) return;
  for (const std::string& work_tree : on_branch(branch)) {
    std::string directory;
    whose_is(work_tree, directory);
    if (std::find(newcomers.begin(), newcomers.end(), directory) != newcomers.end()) take_along(work_tree, branch);
  }
} catch (const std::exception& failure) {
  log_.write(session::LogLevel::warning, "a work tree that git switched to '" + branch + "' while that moved may be " +
                                             "behind it: " + failure.what());
}

// Only a switch that has just ended counts: an index that differs later on may be as the user wants it.
void Checkouts::take_along(const std::string& work_tree, const std::string& branch) const try {
  const std::string directory = storage::parent_of(index_of(work_tree));
  storage::UniqueFd turn = storage::try_lock_file(lock_path(), kTurnPatience);
  if (!turn) throw Error(Errc::unavailable, "another command takes work trees along");
  if (!storage::is_there(directory + "/index") || !is_recent(directory + "/HEAD")) return;
  std::vector<std::string> commits = closest_to_index(work_tree);
  if (commits.size() < 2) return;  // the switch came in time: git need not be kept out
  Move move(*this, std::move(turn), branch, {work_tree});
  move.record(commits.front());
  move.lock(std::chrono::steady_clock::now() + kComparePatience);
  commits = closest_to_index(work_tree);
  if (commits.size() < 2 || branch_of(work_tree) != branch) return;
  move.prepare(commits.back(), commits.front());
  // From here on the next command finishes it, should this process be killed.
  move.record(commits.back());
  if (move.follow())
    log_.write(session::LogLevel::warning, "git switched the work tree " + session::quote_path(work_tree) + " to '" +
                                               branch + "' while that moved; it follows");
} catch (const std::exception& failure) {
  log_.write(session::LogLevel::warning, "git switched the work tree " + session::quote_path(work_tree) + " to '" +
                                             branch + "' while that moved, and it is behind: " + failure.what() +
                                             "; before a commit there look at `git diff --cached`");
}

std::vector<std::string> Checkouts::closest_to_index(const std::string& work_tree) const {
  std::istringstream found(git(work_tree, {"rev-list", "--first-parent", "--timestamp",
                                           "--max-count=" + std::to_string(kMostMissed), "HEAD"}).out);
  const std::time_t young = ::time(nullptr) - kYoung_s;
  std::vector<std::string> passed, closest;
  std::size_t least = SIZE_MAX;
  std::time_t made = young;
  for (std::string commit; made >= young && least > 0 && found >> made >> commit;) {
    passed.push_back(commit);
    const std::size_t differing = list(work_tree, {"diff-index", "--cached", "-z", "--name-only", "--no-renames",
                                                   "--ignore-submodules", commit}).size();
    if (differing > least) break;
    if (differing < least) closest = passed;
    least = differing;
  }
  return closest;
}

}  // namespace escrow::daemon
