// A session from anywhere: held by another process, its control socket is asked; else this process takes it over for
// the moment and does the same by itself. Either way the answer is the API's, so each command has one code path.
//
// One per command; not thread-safe. Throws what the session or its host answers. A host that answers nothing is waited
// for as long as it can be seen to live; else Error{unavailable} names it. A request that a host did not take because
// it was just ending is made again: of the next host, or here.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/control_client.h"
#include "api/protocol.h"
#include "daemon/host/config.h"
#include "daemon/host/repository_context.h"

namespace escrow::daemon {

// Both wait some seconds for a process that is just letting go of the session: one that was killed and is ending, or
// another command. A host that lives answers, and is not waited for.
void wait_for_release(RepositoryContext& context, const session::SessionId& id);
// Throws what SessionManager::attach throws.
std::unique_ptr<session::Session> attach(RepositoryContext& context, const session::SessionId& id);

class SessionAccess {
 public:
  // `text` is an id or a unique prefix of one. Throws Error{no_session}, Error{ambiguous_session}.
  // `who` is recorded for what is changed.
  SessionAccess(RepositoryContext& context, const std::string& text, std::string who = current_principal());

  const session::SessionId& id() const { return id_; }

  api::SessionView status(bool with_changes);
  api::CommitAnswer commit(const api::CommitRequest& request);
  api::RollbackAnswer rollback(bool keep_result);
  // Of a session that no run owns. What ended it before decides: then Error{wrong_state} unless that is the same.
  // Returns a warning, or nothing.
  std::string finish(const api::FinishRequest& request);
  api::DiscardAnswer discard(const std::vector<std::string>& paths);
  // Also where it only lists them.
  api::SavepointsAnswer savepoint(const api::SavepointRequest& request);
  // For a fork whose directory this process holds (session/transaction/forks.h).
  void fork_into(const session::SessionId& fork);
  api::LandAnswer land(const api::LandRequest& request);
  // The same of its mount table, mounted or not.
  api::MountsAnswer mounts(const api::MountsRequest& request);
  api::UpdateAnswer update();
  // Without paths it lists what there is to settle.
  api::ResolveAnswer settle(const std::vector<std::string>& paths, session::Settle how);
  // Of a session that awaits approval. Waits, as everything here, for another process to let go of it.
  api::CommitAnswer approve(const session::Approval& approval);
  api::RollbackAnswer reject(const session::Review& review, session::Reason reason);
  api::DiffEnd diff(const api::DiffRequest& request, const std::function<void(std::string_view)>& out);
  // The staged state, as a file (storage/staging/staged_state_file.h). Of an open session.
  void export_state(const std::function<void(std::string_view)>& out);
  // What a commit would leave out, which a host only counts in its answer to a diff.
  std::vector<session::Omission> omitted(api::DiffEnd end);
  api::ChangesAnswer changes();
  // To read, write or remove one.
  api::FileAnswer file(const api::Request& request);
  api::ListingAnswer files(const api::ListFilesRequest& request);
  // Returns where it was mounted; the session is detached on return. Throws Error{wrong_state} when it is not mounted,
  // Error{unavailable} when its host has not let go of it within ten seconds.
  std::string unmount();

 private:
  api::Answer ask(const api::Request& request, const std::function<void(const api::DiffPart&)>& on_part = {});
  void remark_what_changes(const api::Request& request);
  std::optional<api::Answer> ask_host(api::ControlClient& client, const api::Request& request,
                                      const std::function<void(const api::DiffPart&)>& on_part);
  std::optional<api::Answer> act_detached(const session::SessionManager::Listed& listed, const api::Request& request,
                                          const std::function<void(const api::DiffPart&)>& on_part);
  api::Answer act(session::Session& session, session::Attachment attachment, const api::Request& request,
                  const std::function<void(const api::DiffPart&)>& on_part);
  api::Answer answer_ended(const session::SessionManager::Listed& listed, const api::Request& request,
                           const std::function<void(const api::DiffPart&)>& on_part);

  RepositoryContext& context_;
  session::SessionId id_;
  std::string who_;
};

}  // namespace escrow::daemon
