// The way from a fork to its parent, whoever holds that: another process over its control socket, or this one for the
// moment. Thread-safe; the context must outlive it. Throws what SessionAccess throws.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "session/transaction/session.h"

namespace escrow::daemon {

class RepositoryContext;

class ForkParents final : public session::ParentSessions {
 public:
  explicit ForkParents(RepositoryContext& context) : context_(context) {}
  session::CommitOutcome land(const session::SessionId& parent, const session::SessionId& fork,
                              const session::CommitRequest& request) override;

 private:
  RepositoryContext& context_;
};

// A fork of `parent`, held by this process, with its mount table; `who` has opened it. What `narrowing` says besides
// holds, too (session::fork_options()).
std::unique_ptr<session::Session> open_fork(RepositoryContext& context, const session::SessionId& parent,
                                            session::SessionOptions narrowing, const std::string& who);

// The forks of a session that has been rolled back, and theirs: nothing can come of them. Those that were open.
std::vector<session::SessionId> roll_back_forks(RepositoryContext& context, const session::SessionId& parent,
                                                const std::string& who);

}  // namespace escrow::daemon
