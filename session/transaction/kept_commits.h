// Commits that were made with git inside a session and stay commits of their own (--git-commits keep).
//
// They are taken over as the session could have made their trees (admitted_tree.h), then made anew on the head of the
// branch, each by the three-way merge of what it changed. What the session has and none of them is one more commit, so
// that all of them end at the tree that one commit of the session would have. Stateless; for one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "session/base/branch_rule.h"
#include "session/interfaces/object_store.h"
#include "session/interfaces/session_record.h"
#include "session/trees/tree_walk.h"

namespace escrow::session {

struct Services;

// As the session's own git has them; nothing of it is to be trusted.
struct CommitsInside {
  struct One {
    std::string message;  // as check_commit_message() lets it pass
    ObjectId tree;
    std::int64_t author_time_s = 0;
  };
  std::shared_ptr<const ObjectReader> objects{};  // that only the session has
  std::optional<ObjectId> base{};                 // a commit of the repository; the first was made on it
  std::vector<One> commits{};                     // oldest first
  std::string rest_message{};                     // of what none of them has; empty: the default
  std::vector<RepoPath> shadowed{};               // AdmittedBy::shadowed
  // Why they cannot be kept each by itself; empty: they can, or there is none.
  std::string why_not{};
};

struct KeptCommit {
  std::string message;
  TreeRoot tree;
  std::int64_t author_time_s = 0;
};
struct KeptCommits {
  TreeRoot base_tree{};
  std::vector<KeptCommit> commits{};  // oldest first
  std::string rest_message{};
  std::string why_not{};
};

// Where what is inside cannot be kept there are none, and it is said why. Throws Error{no_space}.
KeptCommits take_over(const CommitsInside& inside, const SessionRecord& record, const IgnoreRule& ignore,
                      Quarantine& quarantine);

// The same on a head; the last one has the tree `merged`. Those that change nothing there are left out. None: all is
// one commit, and why_not says why where that is not as it was wanted.
KeptCommits kept_on(const TreeRoot& head_tree, const TreeRoot& merged, const KeptCommits& kept,
                    const std::string& branch, const Services& services, Quarantine& quarantine);

}  // namespace escrow::session
