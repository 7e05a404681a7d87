// Everything a command needs of one repository, built in order and destroyed in reverse: the composition root.
//
// Constructed after any fork (background.h): it opens databases and may start threads. Throws what
// storage::Repository::open throws.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "daemon/host/global_options.h"
#include "session/base/clock.h"
#include "session/base/log.h"
#include "session/transaction/commit_chain.h"
#include "session/transaction/session.h"
#include "session/transaction/session_manager.h"
#include "storage/repository/repository.h"

namespace escrow::daemon {

class Checkouts;
class ForkParents;

class RepositoryContext {
 public:
  explicit RepositoryContext(const GlobalOptions& options);
  ~RepositoryContext();

  session::Log& log() { return *log_; }
  session::Clock& clock() { return clock_; }
  storage::Repository& repository() { return *repository_; }
  session::SessionManager& sessions() { return sessions_; }
  // Those that sessions are committed to.
  session::ReferenceStore& references() { return services_.references; }
  // A sentence about what the user's work tree has of its own, and sessions of the branch therefore lack; or nothing.
  std::string words_about_checkout(const std::string& branch) const;
  // Takes that into a session which was just opened and is used by nobody (work_tree_changes.h), and returns a sentence
  // about it, or nothing. Throws Error{bad_request} where there is no such work tree, Error{wrong_state} unless the
  // session began at its HEAD. After a failure the session is half filled.
  std::string take_changes_of_checkout(session::Session& session) const;

  // Brings sessions whose host died to a legal state, and logs what was done. Commands that touch sessions call it
  // first.
  void recover();
  // For after a commit was reported: what many commits leave is made small again. A failure is only logged.
  void tidy() noexcept;

 private:
  std::unique_ptr<session::Log> log_;
  std::unique_ptr<storage::Repository> repository_;
  std::unique_ptr<Checkouts> checkouts_;              // null: none is taken along
  std::optional<std::string> work_tree_;              // the user's
  std::unique_ptr<session::ReferenceStore> references_;
  session::SystemClock clock_;
  session::CommitChains chains_;
  std::unique_ptr<ForkParents> parents_;
  session::Services services_;
  session::SessionManager sessions_;
};

// The same for a session that nobody has seen yet: where it throws, the session is rolled back, and gone.
std::string open_with_changes(RepositoryContext& context, std::unique_ptr<session::Session>& session);

}  // namespace escrow::daemon
