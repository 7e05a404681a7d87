// Branches, pins and results as git references, written and deleted under git's own lock files and in git's order, so
// that any git can take part, one that packs references too.
//
// Thread-safe; safe between processes. A lock somebody else holds is waited for, up to 10 s, then Error{busy}. What
// compare_and_swap() and keep_result() report is on disk; what drop_result() and unpin_base() removed is with
// sync_removed_references(). Never through libgit2, which writes what it remembers of packed-refs. Sources:
// gitrepository-layout(5), git-update-ref(1), refs/files-backend.c of git.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "session/base/synchronized.h"
#include "session/interfaces/object_store.h"
#include "storage/git/git_repository_pool.h"

namespace escrow::storage {

class GitReferences final : public session::ReferenceStore {
 public:
  // `pool` must outlive this.
  explicit GitReferences(GitRepositoryPool& pool) : pool_(pool) {}

  std::string default_branch() const override;
  void check_target(const std::string& branch) const override;
  std::optional<session::ObjectId> head(const std::string& branch) const override;
  bool move_through(const std::string& branch, const std::optional<session::ObjectId>& expected,
                    const std::vector<Move>& moves) override;
  std::unique_ptr<Turn> take_turn(const std::string& branch) override;
  void make_durable(const std::string& branch) override;
  session::BranchRule rule_of(const std::string& branch) const override;
  bool reflog_has(const std::string& branch, const session::ObjectId& commit) const override;

  // Pinning the same commit twice is one pin.
  void pin_fresh(const session::SessionId& session, const std::string& branch,
                 const session::ObjectId& commit) override;
  void pin_base(const session::SessionId& session, const session::ObjectId& commit) override;
  bool is_pinned(const session::SessionId& session, const session::ObjectId& commit) const override;
  void unpin_base(const session::SessionId& session) override;
  void pin_as(const session::SessionId& session, const session::SessionId& heir) override;
  void unpin_older(const session::SessionId& session, const session::ObjectId& base) override;
  void keep_result(const session::SessionId& session, const session::ObjectId& commit) override;
  // By uploadpack.hideRefs in the repository's configuration (hidden_references.h).
  void hide_result(const session::SessionId& session) override;
  std::optional<session::ObjectId> result(const session::SessionId& session) const override;
  void drop_result(const session::SessionId& session) override;
  void sweep_locks() override;
  // Every session whose result is kept; that has a pin.
  std::vector<session::SessionId> results() const;
  std::vector<session::SessionId> pinned() const;
  bool has_pin(const session::SessionId& session) const;

 private:
  std::optional<session::ObjectId> target(const std::string& name) const;
  // With a slash at its end.
  std::vector<std::string> names_below(const std::string& directory) const;
  void set(const std::string& name, const session::ObjectId& id);
  // `like`: a reference that may say the same; "": none.
  void pin(const session::SessionId& session, const session::ObjectId& commit, const std::string& like);
  void remove(const std::string& name);
  void unpin(const std::string& name);
  void drop_packed_pins(const std::string& prefix);
  void sync_names_above(std::string directory);

  // Inode, and birth in seconds and nanoseconds.
  using NamedDirectory = std::tuple<std::uint64_t, std::int64_t, std::uint32_t>;

  GitRepositoryPool& pool_;                                // self-locking, as the next
  session::Synchronized<std::set<NamedDirectory>> named_;  // below refs/: those whose names are on disk
};

}  // namespace escrow::storage
