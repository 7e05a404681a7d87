#include "daemon/host/fork_parents.h"

#include "daemon/host/kept_mounts.h"
#include "daemon/host/repository_context.h"
#include "daemon/host/session_access.h"

namespace escrow::daemon {

session::CommitOutcome ForkParents::land(const session::SessionId& parent, const session::SessionId& fork,
                                         const session::CommitRequest& request) {
  const api::LandAnswer answer = SessionAccess(context_, parent.text(), request.who)
                                     .land({.fork = fork.text(),
                                            .message = request.message,
                                            .reason = request.reason,
                                            .exit_code = request.exit_code});
  if (!answer.conflicts.empty()) return session::Conflicts{answer.conflicts};
  if (!answer.has_changed) return session::NothingToCommit{};
  return session::Landed{parent, answer.counts};
}

std::unique_ptr<session::Session> open_fork(RepositoryContext& context, const session::SessionId& parent,
                                            session::SessionOptions narrowing, const std::string& who) {
  session::Audit& audit = narrowing.audit;
  if (audit.committer.empty()) audit.committer = who;
  if (audit.issuer.empty()) audit.issuer = who;
  if (audit.source.empty()) audit.source = "manual";
  const session::SessionId id = session::SessionId::generate();
  storage::Repository& repository = context.repository();
  const auto prepare = [&](const std::string& directory) {
    const session::SessionRecord above = context.sessions().status(parent).record;
    inherit_mounts(repository.directories().path_of(parent), directory, above.options, repository);
  };
  return context.sessions().fork(parent, narrowing, id, prepare,
                                 [&] { SessionAccess(context, parent.text(), who).fork_into(id); });
}

std::vector<session::SessionId> roll_back_forks(RepositoryContext& context, const session::SessionId& parent,
                                                const std::string& who) {
  std::vector<session::SessionId> ended;
  for (const session::SessionId& fork : context.repository().catalog().forks_of(parent)) {
    const std::vector<session::SessionId> below = roll_back_forks(context, fork, who);
    ended.insert(ended.end(), below.begin(), below.end());
    const std::optional<session::SessionRecord> record = context.repository().catalog().find(fork);
    if (!record || session::is_final(record->state)) continue;
    SessionAccess(context, fork.text(), who).rollback(false);
    ended.push_back(fork);
  }
  return ended;
}

}  // namespace escrow::daemon
