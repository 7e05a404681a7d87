// The part of ServiceSessions that changes what an open session starts from, and what it keeps of its own.
#include "daemon/service_sessions.h"
#include "daemon/session_access.h"

namespace escrow::daemon {

using session::State;

api::UpdateAnswer ServiceSessions::update(const Caller& caller, const std::string& id) {
  const Found found = may_end(caller, id);
  const Turn turn(*this, found);
  if (const session::SessionRecord now = concluded(found); now.state != State::open) refuse_finished(now, "update");
  if (const std::shared_ptr<SessionHost> host = hosts_.find(found.record.id)) {
    return std::get<api::UpdateAnswer>(host->handle(api::UpdateRequest{}, caller.principal, {}));
  }
  return SessionAccess(*found.repository.context, id, caller.principal).update();
}

api::DiscardAnswer ServiceSessions::discard(const Caller& caller, const std::string& id,
                                            const std::vector<std::string>& paths) {
  const Found found = may_end(caller, id);
  const Turn turn(*this, found);
  const session::SessionRecord now = concluded(found);
  if (now.state != State::open) refuse_finished(now, "discard in");
  if (const std::shared_ptr<SessionHost> host = hosts_.find(found.record.id)) {
    return std::get<api::DiscardAnswer>(host->handle(api::DiscardRequest{.paths = paths}, caller.principal, {}));
  }
  return SessionAccess(*found.repository.context, id, caller.principal).discard(paths);
}

}  // namespace escrow::daemon
