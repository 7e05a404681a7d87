// The part of ServiceSessions that changes what an open session starts from, and what it keeps of its own.
#include "api/problem.h"
#include "daemon/host/mount_entry_spec.h"
#include "daemon/host/session_access.h"
#include "daemon/service/grants.h"
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

api::ResolveAnswer ServiceSessions::resolve(const Caller& caller, const std::string& id,
                                            const api::ResolveRequest& request) {
  const Found found = request.paths.empty() ? see(caller, id) : may_end(caller, id);
  const SessionTryLock turn(*this, found);
  if (const session::SessionRecord now = concluded(found); now.state != State::open)
    refuse_finished(now, "resolve paths of");
  return SessionAccess(*found.repository.context, id, caller.principal).settle(request.paths, request.how);
}

api::SessionResource ServiceSessions::resume(const Caller& caller, const std::string& id) {
  const Found found = may_end(caller, id);
  const SessionTryLock turn(*this, found);
  if (const session::SessionRecord now = concluded(found); now.state == State::committing)
    refuse_finished(now, "resume");
  if (!may(caller, GrantedVerb::open, found)) {
    throw api::Problem(api::ProblemCode::forbidden,
                       caller.principal + " has no grant to open sessions on the branch " +
                           found.record.options.branch + " (grants)",
                       {{"field", "branch"}});
  }
  const Place place = take_place(caller);
  session::ResumeTerms terms;
  terms.adapt = [&, most = quota_of(*config_.now(), caller.principal)](session::SessionOptions& options) {
    options.audit.source = "sandbox";
    if (caller.is_operator) return;
    // The older session may be one that a command of this machine opened.
    options.contained_symlinks = true;
    options.uid = caller.uid;
    options.gid = caller.gid;
    const auto narrow = [](std::uint64_t& limit, const std::optional<std::uint64_t>& ceiling) {
      if (ceiling && (limit == 0 || limit > *ceiling)) limit = *ceiling;
    };
    narrow(options.limits.staged_bytes, most.staged_bytes);
    narrow(options.limits.files, most.files);
  };
  const SessionTryLock own(*this, terms.id);
  // What the service knows of it comes first: a session that exists is then never without an owner.
  store_.add_session({.id = terms.id,
                      .repository = found.repository.name,
                      .owner = caller.principal,
                      .external_id = {},
                      .request_key = {},
                      .message = {},
                      .mountpoint = {},
                      .labels = {}},
                     {});
  session::SessionManager& sessions = found.repository.context->sessions();
  try {
    sessions.resume(found.record.id, caller.principal, terms);
  } catch (...) {
    store_.forget_session(terms.id);
    throw;
  }
  return resource({.repository = found.repository, .record = sessions.status(terms.id).record});
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

api::MountsAnswer ServiceSessions::mounts(const Caller& caller, const std::string& id, api::MountsRequest request) {
  const Found found = request.verb == api::MountsVerb::list ? see(caller, id) : may_end(caller, id);
  if (!request.rights.empty())
    throw api::Problem(api::ProblemCode::invalid_value, "\"rights\" is not known here", {{"field", "rights"}});
  if (!request.entry.empty()) {
    SessionRequest asked;
    asked.mounts.specs.push_back(mount_entry_of_document(request.entry, "the entry"));
    check_mounts(caller, found.repository.name, asked);
    request.rights = asked.mount_rights;
  }
  const SessionTryLock turn(*this, found);
  if (const session::SessionRecord now = concluded(found); now.state != State::open)
    refuse_finished(now, "change the mount table of");
  return SessionAccess(*found.repository.context, id, caller.principal).mounts(request);
}

}  // namespace escrow::daemon
