// The API's requests about single files, carried out on a session in this process, mounted or not. Free functions
// without state, thread-safe; throw what SessionFiles throws.
#pragma once

#include "api/protocol.h"
#include "daemon/host/file_write_turns.h"
#include "daemon/host/session_files.h"
#include "session/transaction/session.h"

namespace escrow::daemon {

api::Answer ask_files(SessionFiles files, session::Session& session, const api::ReadFileRequest& request);
// Throws Error{busy} while a commit holds the session's calls back, and Error{bad_request} without a content.
api::Answer ask_files(SessionFiles files, session::Session& session, const api::WriteFileRequest& request);
// The same beside verbs that take a cut of the session, which has all of it or nothing.
api::Answer write_whole(SessionFiles files, session::Session& session, const api::WriteFileRequest& request,
                        FileWriteTurns& turns);
api::Answer ask_files(SessionFiles files, session::Session& session, const api::RemoveFileRequest& request);
api::Answer ask_files(SessionFiles files, session::Session& session, const api::ListFilesRequest& request);

// The changes that a commit would make.
api::ChangesAnswer changes_of(session::Session& session);
api::ChangesAnswer with_sizes(const session::ObjectReader& objects, std::vector<session::PathChange> changes);

}  // namespace escrow::daemon
