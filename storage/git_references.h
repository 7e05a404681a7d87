// Branches, pins and results as git references, moved under git's own lock files so that any git can take part.
//
// Thread-safe; safe between processes. A lock somebody else holds is waited for, up to 10 s, then Error{busy}. What
// compare_and_swap() and keep_result() report is on disk. Sources: gitrepository-layout(5), git-update-ref(1).
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "session/object_store.h"
#include "session/synchronized.h"
#include "storage/git_repository_pool.h"

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
  session::BranchRule rule_of(const std::string& branch) const override;
  bool reflog_has(const std::string& branch, const session::ObjectId& commit) const override;

  // Pinning the same commit twice is one pin.
  void pin_fresh(const session::SessionId& session, const std::string& branch,
                 const session::ObjectId& commit) override;
  void pin_base(const session::SessionId& session, const session::ObjectId& commit) override;
  bool is_pinned(const session::SessionId& session, const session::ObjectId& commit) const override;
  void unpin_base(const session::SessionId& session) override;
  void keep_result(const session::SessionId& session, const session::ObjectId& commit) override;
  std::optional<session::ObjectId> result(const session::SessionId& session) const override;
  void drop_result(const session::SessionId& session) override;
  // Every session whose result is kept.
  std::vector<session::SessionId> results() const;

 private:
  std::optional<session::ObjectId> target(const std::string& name) const;
  // With a slash at its end.
  std::vector<std::string> names_below(const std::string& directory) const;
  void set(const std::string& name, const session::ObjectId& id);
  // `like`: a reference that may say the same; "": none.
  void pin(const session::SessionId& session, const session::ObjectId& commit, const std::string& like);
  void sweep_lock(const session::SessionId& session);
  void remove(const std::string& name);
  void sync_names_above(std::string directory);

  // Inode, and birth in seconds and nanoseconds.
  using NamedDirectory = std::tuple<std::uint64_t, std::int64_t, std::uint32_t>;

  GitRepositoryPool& pool_;                                // self-locking, as the next
  session::Synchronized<std::set<NamedDirectory>> named_;  // below refs/: those whose names are on disk
};

}  // namespace escrow::storage
