// The part of ServiceSessions that commits archives and directories.
#include <utility>
#include <variant>

#include "api/problem.h"
#include "daemon/import/directory_import.h"
#include "daemon/import/import_filter.h"
#include "daemon/service/commit_timer.h"
#include "daemon/service/sessions/service_sessions.h"

namespace escrow::daemon {

using api::Problem;
using session::SessionId;
using session::State;

void ServiceSessions::check_import(const Caller& caller, const OpenRequest& opening) {
  // One that was carried out is answered again, whoever may import by now.
  if (!opening.request_key.empty() && store_.session_by_request(caller.principal, opening.request_key)) return;
  check_grant(caller, opening, true);
  repositories_.find(opening.repository);
  granted(caller, opening);
}

api::SessionResource ServiceSessions::import(const Caller& caller, const OpenRequest& opening, const ReadTree& read) {
  if (const auto before = opening.request_key.empty()
                              ? std::nullopt
                              : store_.session_by_request(caller.principal, opening.request_key)) {
    // A service before this one was killed when it had not answered yet, or the answer was a conflict.
    const std::optional<Found> found = repositories_.find_session(before->id.text());
    const State state = found ? found->record.state : State::rolled_back;
    if (state == State::committed || state == State::awaiting_approval) return resource(*found);
    store_.forget_session(before->id);
  }
  check_grant(caller, opening, true);
  const ServiceRepositories::Entry repository = repositories_.find(opening.repository);
  session::SessionOptions options =
      session_options(granted(caller, opening), repository.context->repository().references(), "import");
  options.ephemeral = true;  // rolled back, should this process die
  const SessionId id = SessionId::generate();
  const SessionTryLock turn(*this, id);
  store_.add_session({.id = id,
                      .repository = repository.name,
                      .owner = caller.principal,
                      .external_id = {},
                      .request_key = opening.request_key,
                      .message = opening.session.message,
                      .mountpoint = {},
                      .labels = {}});
  CommitTimer timer(metrics_);
  session::SessionManager& sessions = repository.context->sessions();
  session::BuiltTree built;
  session::CommitOutcome outcome;
  try {
    const std::unique_ptr<session::Session> session = sessions.open(options, true, id);
    const auto read_now = [&] {
      storage::Repository& where = repository.context->repository();
      built = read(session->quarantine(), where.git_directory(), ImportFilter(*session, where.references()));
      return built.tree;
    };
    outcome = commit_import(*session, read_now, opening.session.message, caller.principal);
  } catch (...) {
    store_.forget_session(id);
    throw;
  }
  if (auto* conflicts = std::get_if<session::Conflicts>(&outcome)) {
    timer.end("conflict");
    const std::string sentence = "nothing was committed: others changed " + std::to_string(conflicts->paths.size()) +
                                 " of the same paths while the import ran; what was imported is kept as "
                                 "refs/sessions/" +
                                 id.text();
    throw Problem(sentence, std::move(conflicts->paths), {{"session", id.text()}});
  }
  api::SessionResource made = resource({.repository = repository, .record = sessions.status(id).record});
  made.view.omitted = std::move(built.omitted);
  timer.end(name_of(made.view.record.state));
  return made;
}

}  // namespace escrow::daemon
