// Where a command finds its sessions, and the repository they are of: on this machine, or behind an escrowd (--host). A
// command has one code path, one output and one exit status for both.
//
// One per command; not thread-safe. Throws what the session, its host or the service answers.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/protocol.h"
#include "daemon/host/global_options.h"
#include "daemon/host/repository_upkeep.h"
#include "session/transaction/approval.h"
#include "storage/repository/repository.h"

namespace escrow::daemon {

class SessionSource {
 public:
  using Id = session::SessionId;
  virtual ~SessionSource() = default;

  // Those that have not ended, oldest first.
  virtual std::vector<api::SessionView> unended() = 0;
  struct Ended {
    std::vector<api::SessionView> views;
    bool are_all = true;
  };
  // The newest of those that have ended, at most `most`, newest first.
  virtual Ended ended(std::size_t most) = 0;
  // Of an id or a unique prefix of one. Throws Error{no_session}, Error{ambiguous_session}.
  virtual Id resolve(const std::string& text) = 0;
  // With what a commit would do.
  virtual api::SessionView status(const Id& id) = 0;
  virtual api::CommitAnswer commit(const Id& id, const api::CommitRequest& request) = 0;
  virtual api::RollbackAnswer rollback(const Id& id, bool keep_result) = 0;
  // By the user of this process, or whom the service takes them for.
  virtual api::CommitAnswer approve(const Id& id, const session::Approval& approval) = 0;
  virtual api::RollbackAnswer reject(const Id& id, const std::string& comment) = 0;
  // Onto the branch's new head; what both changed stays as the session has it.
  virtual api::UpdateAnswer update(const Id& id) = 0;
  // Back to what the base has. Throws Error{not_found} for a path that neither has, before anything is changed.
  virtual api::DiscardAnswer discard(const Id& id, const std::vector<std::string>& paths) = 0;
  // Settles paths that both the session and others changed; without paths it lists them. Throws Error{not_found} for a
  // path where nothing conflicts, before anything is changed.
  virtual api::ResolveAnswer settle(const Id& id, const std::vector<std::string>& paths, session::Settle how) = 0;
  // A new session, mounted nowhere, with the result of one that failed or waits.
  struct Resumed {
    session::SessionRecord record;
    session::ChangeCounts counts;
    std::vector<Id> earlier;  // sessions that were opened with the same result before
  };
  virtual Resumed resume(const Id& id) = 0;
  // A new session, mounted nowhere, that begins as this one and is committed into it.
  virtual session::SessionRecord fork(const Id& id) = 0;
  // The forks of it that have not ended, oldest first.
  virtual std::vector<Id> forks_of(const Id& id) = 0;
  // Makes, restores or drops a savepoint, or lists them all.
  virtual api::SavepointsAnswer savepoint(const Id& id, const api::SavepointRequest& request) = 0;
  // Adds, replaces or removes an entry of its mount table, or lists them all.
  virtual api::MountsAnswer mounts(const Id& id, const api::MountsRequest& request) = 0;
  // Returns what the commit would leave out.
  virtual std::vector<session::Omission> diff(const Id& id, const api::DiffRequest& request,
                                              const std::function<void(std::string_view)>& out) = 0;
  // What the session has staged, as one file; and a new session, mounted nowhere, made of one. `branch` may be empty:
  // the one that it was on. `feed` sends the file piece by piece.
  virtual void export_state(const Id& id, const std::function<void(std::string_view)>& out) = 0;
  virtual session::SessionRecord import_state(
      const std::string& branch, const std::function<void(const std::function<void(std::string_view)>&)>& feed) = 0;
  // Returns where it was mounted.
  virtual std::string unmount(const Id& id) = 0;

  // Newest first, until `visit` returns false. An empty branch is the repository's own. Throws Error{no_branch}.
  virtual void log(const std::string& branch, const std::string& path,
                   const std::function<bool(const storage::LogEntry&)>& visit) = 0;

  // Oldest first.
  virtual std::vector<api::AuditResource> audit(const AuditFilter& filter) = 0;
  virtual api::GcResource gc() = 0;
  // `progress` gets done and total object counts, or is never called.
  virtual std::vector<api::Finding> verify(const std::function<void(std::uint64_t, std::uint64_t)>& progress) = 0;

  // For after a commit was reported.
  virtual void tidy() noexcept = 0;
};

// Rolls back the forks of the session that have not ended, with theirs.
void discard_forks(SessionSource& sessions, const session::SessionId& id);

// Of --host and --repo. Throws Error{no_repository}, Error{bad_request}.
std::unique_ptr<SessionSource> session_source(const GlobalOptions& options);

}  // namespace escrow::daemon
