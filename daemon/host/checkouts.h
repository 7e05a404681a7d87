// The work trees of a repository that is not bare: a branch that one of them has checked out takes its index and files
// along when a commit moves it, as git's receive.denyCurrentBranch=updateInstead does.
//
// All of it is done by git itself, as the user of this process. git is told the git directories and the work tree (in
// its environment, as in that of a hook): it takes no configuration from the work tree. A directory whose .git does not
// lead back to the repository is no work tree of it; the one that was there is gone. Without .git its disk may be away:
// a commit to its branch is refused, as git refuses to move it. As git itself wants it, directory and .git belong to
// this user or to the repository's owner, or the directory is in the user's safe.directory (git-config(1)): another
// owner may put a link at a path while git writes there. Else a commit to its branch is refused.
//
// What a work tree has of its own and is not committed stays; where it is in the way of the commit nothing moves. A
// file that is there already as the commit has it is not in the way: git knows it from then on (a session may have
// begun with it). Between processes the moves take turns (a lock of <gitdir>/escrow/). Over a whole move the index is
// locked against git (index_lock.h): a commit of the user's comes before it or after it. The index goes right after the
// branch, the files after the index; a file that cannot be written is named. A git that is at work when its process is
// killed comes to its end; a move that was begun and has not come that far is finished by the next command, which
// removes the lock of the index, too; where that cannot be it is tried again, also after other moves. A lock that a git
// of the user's leaves is the user's to remove. Thread-safe. Throws Error{unavailable} where git cannot be run, and
// says what git says.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/host/checkout_step.h"
#include "daemon/host/index_lock.h"
#include "session/base/ids.h"
#include "session/base/log.h"
#include "storage/disk/unique_fd.h"

namespace escrow::daemon {

class Checkouts {
 public:
  // `log` must outlive this.
  Checkouts(std::string git_directory, session::Log& log);

  // The root of the work tree around `directory`; nullopt: there is none, or it is of another repository, or another
  // user's.
  std::optional<std::string> work_tree_around(const std::string& directory) const;
  // The branch that a work tree is on; nullopt: its HEAD is detached, as during a rebase.
  std::optional<std::string> branch_of(const std::string& work_tree) const;
  // Files that differ from HEAD, and, where they are counted, files and directories that git neither knows nor ignores.
  enum class Untracked { counted, left_out };
  std::vector<std::string> uncommitted(const std::string& work_tree, Untracked untracked) const;
  // The commit that its HEAD is; nullopt: there is none yet.
  std::optional<session::ObjectId> head_of(const std::string& work_tree) const;
  // Each file that the work tree has otherwise than HEAD, or HEAD has and it has not, and each that git neither knows
  // nor ignores; another repository is named as a directory, with a slash at its end. The index is not looked at.
  std::vector<std::string> changed_paths(const std::string& work_tree) const;
  // Whether there may be a work tree. git is not asked: no bare repository pays for those that it does not have.
  bool may_be_any() const;
  // Those that are on the branch. Throws Error{wrong_state} naming one that is another user's, or is not there.
  std::vector<std::string> on_branch(const std::string& branch) const;

  // A move that was begun: a branch, where it was, and the work trees that were on it.
  struct Begun {
    std::string branch, before;
    std::vector<std::string> work_trees;
  };
  // A move of the branch that its work trees are to follow. Until it goes nobody else makes one, and git changes the
  // index of none of them.
  class Move {
   public:
    Move(const Checkouts& checkouts, storage::UniqueFd turn, std::string branch, std::vector<std::string> work_trees);
    // Unless one of the next has been called, the branch may have moved: git is asked.
    ~Move();
    void has_not_moved() noexcept;
    // The branch has moved. What cannot follow now is logged, and is tried again by the next command; false: something
    // cannot.
    bool follow() noexcept;
    // Of the work trees that were on the branch before it moved.
    const std::vector<std::string>& git_directories() const { return git_directories_; }
    Move(const Move&) = delete;
    Move& operator=(const Move&) = delete;

   private:
    friend class Checkouts;
    // In this order. The record is there before the first lock, and after the last: a lock that is left behind goes
    // with the mend of its move. There is nothing to mend where a work tree's HEAD is at `before`.
    void record(const std::string& before);
    void lock(IndexLock::Deadline deadline);
    void prepare(const std::string& from, const std::string& to);

    const Checkouts& checkouts_;
    const storage::UniqueFd turn_;
    const std::string branch_;
    const std::vector<std::string> work_trees_;
    const std::vector<Begun> others_;  // older ones that are not done
    std::string to_;
    std::vector<std::string> git_directories_;
    std::vector<IndexLock> locks_;  // until the steps have them
    std::vector<std::unique_ptr<CheckoutStep>> steps_;
    bool is_settled_ = false;
  };
  // Before the branch moves from `from` (nullopt: it is not there yet) to a commit of the repository. nullptr: no work
  // tree is on it. Waits up to 10 s for git to unlock the indexes. Throws Error{wrong_state} naming what is in the way
  // there, Error{unavailable} naming a lock that stays. On disk when it returns. A work tree in which git has just
  // written the index may be on its way to another branch: before it counts as in the way it is looked at once more.
  std::unique_ptr<Move> prepare(const std::string& branch, const std::optional<session::ObjectId>& from,
                                const session::ObjectId& to) const;
  // After the branch has moved, and work trees with it: `followed` are their git directories. A `git switch` that was
  // under way brings its work tree onto the branch with the index of an older commit: such a work tree follows now. A
  // git that has just locked an index is waited for up to 5 s. One that takes longer, or has not come to its lock,
  // leaves its work tree behind; a work tree in which something is in the way is named in the log.
  void look_again(const std::string& branch, const std::vector<std::string>& followed) const noexcept;
  // Finishes what a dead process has begun. Returns what was done, or could not be, a sentence each.
  std::vector<std::string> mend() const;

 private:
  enum class Whose { nobodys, another_users, ours };  // nobody's: no work tree of the repository
  // `git_directory` becomes that of the work tree.
  Whose whose_is(const std::string& work_tree, std::string& git_directory) const;
  Whose whose_is(const std::string& work_tree) const;
  // With a turn, git changes files or an index: it comes to its end even if this process is killed, and holds the turn
  // until then.
  GitAnswer git(const std::string& work_tree, const std::vector<std::string>& arguments,
                const storage::UniqueFd& turn = storage::UniqueFd(), const GitInstead& instead = {}) const;
  // What git lists, each ended by a NUL. Throws Error{unavailable} when it fails.
  std::vector<std::string> list(const std::string& work_tree, const std::vector<std::string>& arguments) const;
  // Whether the repository has it as a linked work tree, there or not.
  bool is_listed(const std::string& work_tree) const;
  std::string record_path() const;
  // The moves that are not done, the oldest first: on disk when it returns. None: there is no record.
  std::vector<Begun> read_record() const;
  void write_record(const std::vector<Begun>& moves) const;
  // The same once others are done: where it fails the next command finds nothing to do for those.
  void keep_record(const std::vector<Begun>& moves) const noexcept;
  std::string lock_path() const;
  std::string scratch_path(const std::string& what) const;
  // The index of a work tree that is ours.
  std::string index_of(const std::string& work_tree) const;
  // nullopt: git has it locked.
  std::optional<IndexLock> lock_index(const std::string& index, IndexLock::Deadline deadline) const;
  std::unique_ptr<Move> try_to_prepare(const std::string& branch, const std::optional<session::ObjectId>& from,
                                       const session::ObjectId& to) const;
  // Whether git takes one of these work trees, which were on the branch, to another one, now or in a moment.
  bool goes_one_elsewhere(const std::vector<std::string>& work_trees, const std::string& branch) const;
  // The turn must stay where it is for as long as the step is there. `number` tells it from others of the same move.
  std::unique_ptr<CheckoutStep> begin(const std::string& work_tree, std::size_t number, IndexLock lock,
                                      const std::string& from, const std::string& to,
                                      const storage::UniqueFd& turn) const;
  // Waits for git's locks until the deadline, but only for work trees on that branch.
  std::vector<std::string> mend_now(const storage::UniqueFd& turn, const std::string& branch,
                                    IndexLock::Deadline deadline) const;
  // nullopt: there was nothing to do; else whether it follows the branch, and a sentence about it.
  struct Mended {
    bool follows;
    std::string sentence;
  };
  std::optional<Mended> mend_one(const std::string& work_tree, const std::string& branch, const std::string& from,
                                 const storage::UniqueFd& turn, IndexLock::Deadline deadline) const;
  // Brings a work tree that git has switched to the branch from the commit that git had read to the branch's own, if
  // that is another one. A failure is logged.
  void take_along(const std::string& work_tree, const std::string& branch) const;
  // The commits from HEAD, along first parents, to the one that the index is closest to: git has read that one, a
  // moment ago. All other entries of the index are changes that the user has taken along.
  std::vector<std::string> closest_to_index(const std::string& work_tree) const;

  const std::string git_directory_;  // constant, as the next
  session::Log& log_;
};

}  // namespace escrow::daemon
