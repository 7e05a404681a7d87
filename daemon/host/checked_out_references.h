// The references of a repository, whose branches take the work trees along that have them checked out (checkouts.h), or
// do not move where that is nobody's task. Everything else is the inner store's. Thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/host/checkouts.h"
#include "session/interfaces/object_store.h"

namespace escrow::daemon {

class CheckedOutReferences final : public session::ReferenceStore {
 public:
  // Both must outlive this. `checkouts`: null where no work tree is taken along. `work_tree`: where the user is, whose
  // branch is the default one; nullopt: in none.
  CheckedOutReferences(session::ReferenceStore& inner, const Checkouts* checkouts,
                       std::optional<std::string> work_tree);

  std::string default_branch() const override;
  // A branch that is checked out is one that can be committed to, if its work trees are taken along.
  void check_target(const std::string& branch) const override;
  std::optional<session::ObjectId> head(const std::string& branch) const override;
  session::BranchRule rule_of(const std::string& branch) const override;
  std::unique_ptr<Turn> take_turn(const std::string& branch) override;
  // Throws Error{wrong_state}, and nothing moves, when what is not committed in a work tree is in the way, or nobody
  // takes it along: a session may have begun before the branch was checked out.
  bool move_through(const std::string& branch, const std::optional<session::ObjectId>& expected,
                    const std::vector<Move>& moves) override;
  void make_durable(const std::string& branch) override;
  bool reflog_has(const std::string& branch, const session::ObjectId& commit) const override;
  void pin_fresh(const session::SessionId& session, const std::string& branch,
                 const session::ObjectId& commit) override;
  void pin_base(const session::SessionId& session, const session::ObjectId& commit) override;
  bool is_pinned(const session::SessionId& session, const session::ObjectId& commit) const override;
  void pin_as(const session::SessionId& session, const session::SessionId& heir) override {
    inner_.pin_as(session, heir);
  }
  void unpin_base(const session::SessionId& session) override;
  void unpin_older(const session::SessionId& session, const session::ObjectId& base) override;
  void hide_result(const session::SessionId& session) override;
  void keep_result(const session::SessionId& session, const session::ObjectId& commit) override;
  std::optional<session::ObjectId> result(const session::SessionId& session) const override;
  void drop_result(const session::SessionId& session) override;
  void sweep_locks() override;

 private:
  bool takes_along() const;

  session::ReferenceStore& inner_;  // constant, as the next two
  const Checkouts* const checkouts_;
  const std::optional<std::string> work_tree_;
};

}  // namespace escrow::daemon
