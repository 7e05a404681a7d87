// The part of ServiceSessions that changes what an open session starts from, and what it keeps of its own.
#include "daemon/host/session_access.h"
#include "daemon/service/sessions/service_sessions.h"

namespace escrow::daemon {

using session::State;

api::UpdateAnswer ServiceSessions::update(const Caller& caller, const std::string& id) {
  const Found found = may_end(caller, id);
  const SessionTryLock turn(*this, found);
  if (const session::SessionRecord now = concluded(found); now.state != State::open) refuse_finished(now, "update");
  return SessionAccess(*found.repository.context, id, caller.principal).update();
}

api::DiscardAnswer ServiceSessions::discard(const Caller& caller, const std::string& id,
                                            const std::vector<std::string>& paths) {
  const Found found = may_end(caller, id);
  const SessionTryLock turn(*this, found);
  const session::SessionRecord now = concluded(found);
  if (now.state != State::open) refuse_finished(now, "discard in");
  return SessionAccess(*found.repository.context, id, caller.principal).discard(paths);
}

api::SavepointsAnswer ServiceSessions::savepoint(const Caller& caller, const std::string& id,
                                                 const api::SavepointRequest& request) {
  const bool is_look = request.verb == api::SavepointVerb::list;
  const Found found = is_look ? see(caller, id) : may_end(caller, id);
  const SessionTryLock turn(*this, found);
  if (const session::SessionRecord now = concluded(found); now.state != State::open)
    refuse_finished(now, std::string(api::name_of(request.verb)) + " a savepoint of");
  return SessionAccess(*found.repository.context, id, caller.principal).savepoint(request);
}

}  // namespace escrow::daemon
