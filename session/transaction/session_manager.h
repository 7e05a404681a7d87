// Opens, finds, lists and recovers the sessions of one repository. Thread-safe; safe between processes, because a
// session's directory lock decides who hosts it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "session/transaction/approval.h"
#include "session/transaction/resume.h"
#include "session/transaction/session.h"
#include "session/transaction/staged_state.h"

namespace escrow::session {

class SessionManager {
 public:
  explicit SessionManager(const Services& services);

  // Opens a session over the head of options.branch, with what the branch's rule asks added to the options. Reads one
  // commit and the trees of the prefix, nothing else.
  // Throws Error{no_branch} (unless the repository has no commit on it yet and `create_branch`),
  // Error{not_a_directory} when the prefix names a file.
  // `id` is a fresh one; a caller that must know it before anything is on disk brings its own.
  // `prepare` puts what belongs to the session into its directory, before there is a session. What it throws leaves
  // none.
  using Prepare = std::function<void(const std::string& directory)>;
  std::unique_ptr<Session> open(SessionOptions options, bool create_branch,
                                const SessionId& id = SessionId::generate(), const Prepare& prepare = {});
  // A fork of `parent` (forks.h): what holds for that holds for it, and `narrowing` besides. `fill` has whoever holds
  // the parent do Session::fork_into().
  std::unique_ptr<Session> fork(const SessionId& parent, const SessionOptions& narrowing, const SessionId& id,
                                const Prepare& prepare, const std::function<void()>& fill);
  // A new session with the result of one that failed, or waits (resume.h).
  std::unique_ptr<Session> resume(const SessionId& older, const std::string& who, const ResumeTerms& terms = {});
  // A new session with what another one had staged (staged_state.h).
  std::unique_ptr<Session> open_from_staged_state(const std::string& branch, const std::string& who,
                                                  const std::function<void(StagedParts& to)>& feed,
                                                  const PrepareFor& prepare = {});
  // Takes over a detached session. Throws Error{attached_elsewhere}, Error{no_session}, Error{wrong_state} for one that
  // has ended or awaits approval.
  std::unique_ptr<Session> attach(const SessionId& id);
  // Rolls a detached session back, keeping nothing: without a look at what it holds, which may be damaged. Throws as
  // attach().
  SessionRecord roll_back(const SessionId& id, Reason reason, std::optional<int> exit_code, const std::string& who,
                          const Container& container = {});

  // approval.h
  CommitOutcome approve(const SessionId& id, const Approval& approval);
  SessionRecord reject(const SessionId& id, const Review& review, Reason reason);

  // `text` may be a unique prefix of an id. Throws Error{no_session} or Error{ambiguous_session} naming candidates.
  SessionId resolve(const std::string& text) const;
  struct Listed {
    SessionRecord record;
    Attachment attachment;
  };
  Listed status(const SessionId& id) const;
  // Of a record as the catalog has it.
  Attachment attachment(const SessionRecord& record) const;
  // All, oldest first: the cost grows with the repository's history.
  std::vector<Listed> list() const;

  // Brings every unlocked session to a legal state (recovery.h): `committing` is decided, an orphaned run and a result
  // that nobody approved in time are rolled back, directories and pins without a session are removed. Returns what it
  // did, a sentence each. Idempotent.
  std::vector<std::string> recover();

 private:
  // An open session, held, and its row as it is now.
  struct Taken {
    std::unique_ptr<SessionDirectory> held;
    SessionRecord record;
  };
  Taken take(const SessionId& id, const char* verb);

  Services services_;
};

}  // namespace escrow::session
