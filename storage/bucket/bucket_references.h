// Branches that are a bucket's; everything else about references is the local repository's (git_references.h).
//
// A branch's head is asked for each time, and a move is acknowledged only when the bucket has answered, or says so
// afterwards; the local branch follows, and is what is shown offline by whoever reads the local repository. Before a
// branch moves, what its commit needs is in the bucket. Thread-safe. Throws what S3Client throws, too.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "session/base/log.h"
#include "session/interfaces/object_store.h"
#include "storage/bucket/bucket.h"
#include "storage/objects/git_object_store.h"

namespace escrow::storage {

class BucketReferences final : public session::ReferenceStore {
 public:
  // All must outlive this.
  BucketReferences(session::ReferenceStore& local, Bucket& bucket, const GitObjectStore& objects, session::Log& log);

  // The local branches then are as the bucket's.
  void follow_all();

  std::string default_branch() const override { return local_.default_branch(); }
  void check_target(const std::string& branch) const override { local_.check_target(branch); }
  std::optional<session::ObjectId> head(const std::string& branch) const override;
  session::BranchRule rule_of(const std::string& branch) const override { return local_.rule_of(branch); }
  std::unique_ptr<Turn> take_turn(const std::string& branch) override { return local_.take_turn(branch); }
  bool move_through(const std::string& branch, const std::optional<session::ObjectId>& expected,
                    const std::vector<Move>& moves) override;
  void make_durable(const std::string& branch) override;
  bool reflog_has(const std::string& branch, const session::ObjectId& commit) const override {
    return local_.reflog_has(branch, commit);
  }
  void pin_fresh(const session::SessionId& session, const std::string& branch,
                 const session::ObjectId& commit) override {
    local_.pin_fresh(session, branch, commit);
  }
  void pin_base(const session::SessionId& session, const session::ObjectId& commit) override {
    local_.pin_base(session, commit);
  }
  bool is_pinned(const session::SessionId& session, const session::ObjectId& commit) const override {
    return local_.is_pinned(session, commit);
  }
  void unpin_base(const session::SessionId& session) override { local_.unpin_base(session); }
  void pin_as(const session::SessionId& session, const session::SessionId& heir) override {
    local_.pin_as(session, heir);
  }
  void unpin_older(const session::SessionId& session, const session::ObjectId& base) override {
    local_.unpin_older(session, base);
  }
  void keep_result(const session::SessionId& session, const session::ObjectId& commit) override {
    local_.keep_result(session, commit);
  }
  std::optional<session::ObjectId> result(const session::SessionId& session) const override {
    return local_.result(session);
  }
  void hide_result(const session::SessionId& session) override { local_.hide_result(session); }
  void drop_result(const session::SessionId& session) override { local_.drop_result(session); }
  void sweep_locks() override { local_.sweep_locks(); }

 private:
  void follow(const std::string& branch, const session::ObjectId& head) const;
  bool descends(const session::ObjectId& head, const session::ObjectId& commit,
                const std::optional<session::ObjectId>& oldest) const;

  session::ReferenceStore& local_;  // self-locking, as the rest
  Bucket& bucket_;
  const GitObjectStore& objects_;
  session::Log& log_;
};

}  // namespace escrow::storage
