// What the API's requests mean for a session object in this process, mounted or not: shared by the host process and by
// commands that act on a detached session. No state.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "api/protocol.h"
#include "fuse/mount.h"
#include "session/transaction/session.h"
#include "session/transaction/staged_state.h"
#include "storage/repository/repository.h"

namespace escrow::daemon {

using SendPart = std::function<void(const api::Answer&)>;

// Record, head and staged bytes; with `with_changes` also what a commit would do and leave out.
api::SessionView view_of(session::Session& session, session::Attachment attachment, bool with_changes);

// How much was denied in the session.
api::DenialView denials_of(const session::SessionCatalog& catalog, const session::SessionId& id);

// After what there is to say already.
void add_warning(api::CommitAnswer& answer, const std::string& more);
// Of Committed::squashed; "" for "".
std::string squashed_words(const std::string& why);
api::CommitAnswer commit_answer(const session::Session& session, const session::CommitOutcome& outcome);
// The same of a session that had been sealed before.
api::CommitAnswer commit_answer(const session::SessionRecord& record, const session::CommitOutcome& outcome);
// What a session that has ended, or awaits approval, answers to a request that comes late or twice: its outcome when
// it is the one that was asked for, Error{wrong_state} otherwise.
api::CommitAnswer late_commit_answer(const session::SessionRecord& record);
api::RollbackAnswer late_rollback_answer(const session::SessionRecord& record);
// Ends an open session as the request says; the gate is sealed, or nobody uses its file system.
api::Answer finish_session(session::Session& session, const api::FinishRequest& request, const std::string& who,
                           std::string warning);
// The end of a session whose mount was asked for nothing, though a success counts `only_if_seen`.
api::FinishRequest unseen(api::FinishRequest request);
api::Answer late_finish_answer(const session::SessionRecord& record, const api::FinishRequest& request);
[[noreturn]] void refuse_ended(const session::SessionRecord& record, const std::string& verb);

// What a command that commits exits with.
int exit_status_of(const api::CommitAnswer& answer);

api::DiffEnd send_diff(session::Session& session, const storage::Repository& repository,
                       const api::DiffRequest& request, const SendPart& send_part);

api::DiffEnd send_export(session::KeptToExport& kept, const storage::Repository& repository,
                         const SendPart& send_part);

// What approving the session would commit.
api::DiffEnd send_sealed_diff(const session::SessionRecord& record, const storage::Repository& repository,
                              const api::DiffRequest& request, const SendPart& send_part);

// Each checked; throws Error{bad_request}.
std::vector<session::RepoPath> parse_paths(const std::vector<std::string>& texts);

// What is to be read in the history of a session for a request that changes what is in it, or seals it; null: it does
// not.
const char* changing_verb_of(const api::Request& request);

// Settles the paths, or lists what there is to settle.
api::ResolveAnswer resolve(session::Session& session, const api::ResolveRequest& request, const std::string& who);

// Does what is asked, or lists what there is. `is_cut`: as Session::create_savepoint() calls it. Throws what Session
// throws.
api::SavepointsAnswer change_savepoints(session::Session& session, const api::SavepointRequest& request,
                                        const std::function<void()>& is_cut = {});

// The parent's part of a fork's beginning, and of its commit. `is_cut`: nothing need wait any more.
api::ForkAnswer fork_into(session::Session& parent, const api::ForkRequest& request,
                          const std::function<void()>& is_cut);
api::LandAnswer land(session::Session& parent, const api::LandRequest& request, const std::string& who);

// The requests that a mount has served.
std::vector<api::TrafficAnswer::Operation> operations_of(const std::vector<fuse::OperationCount>& counts);

// Whether the disk below has more room than what waits in memory to be recorded ever needs; false also when unknown.
bool has_plenty_of_room(const std::string& directory);

api::UpdateAnswer update_answer(const session::UpdateOutcome& outcome);

}  // namespace escrow::daemon
