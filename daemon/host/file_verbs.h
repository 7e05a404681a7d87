// The API's requests about single files, carried out on a session in this process, mounted or not. Free functions
// without state, thread-safe; throw what SessionFiles throws.
#pragma once

#include "api/protocol.h"
#include "daemon/host/session_files.h"
#include "session/session.h"

namespace escrow::daemon {

api::FileAnswer read_file(SessionFiles files, const session::Session& session, const api::ReadFileRequest& request);
// Throws Error{busy} while a commit holds the session's calls back, and Error{bad_request} without a content.
api::FileAnswer write_file(SessionFiles files, session::Session& session, const api::WriteFileRequest& request);
api::FileAnswer remove_file(SessionFiles files, session::Session& session, const api::RemoveFileRequest& request);
// Of a directory; a path above the session's prefix is Error{not_found}.
api::ListingAnswer list_files(SessionFiles files, const session::Session& session,
                              const api::ListFilesRequest& request);

// The changes that a commit would make.
api::ChangesAnswer changes_of(session::Session& session);
api::ChangesAnswer with_sizes(const session::ObjectReader& objects, std::vector<session::PathChange> changes);

}  // namespace escrow::daemon
