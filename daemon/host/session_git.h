// git inside a session (--git): a .git directory of the session's own, and the commits that were made with it.
//
// HEAD is the session's branch at its base, the index says that nothing has changed, the other branches are
// refs/remotes/origin/*, and the objects of the repository are borrowed (gitrepository-layout(5), objects/info/
// alternates), so git writes nothing there. The directory is staged like everything else in the session and is left out
// of its commit; a mark in it keeps it from being named among what was left out. Of the commits made inside only the
// messages count: what is committed is what is in the session.
//
// Sources: gitrepository-layout(5), git-config(1), git-pack-refs(1).
#pragma once

#include <string>

#include "session/transaction/session.h"
#include "storage/repository/repository.h"

namespace escrow::daemon {

// Throws Error{bad_request} where git must not be inside: objects know no paths, so it would show what a policy or a
// path prefix hides.
void check_git_inside(const session::SessionOptions& options);

// Of a fresh session that nobody uses yet. `objects`: where git finds the repository's objects. Costs as much as
// reading every tree of the base. Throws as the session's file system and its objects.
void add_git_directory(session::Session& session, const storage::Repository& repository, const std::string& objects);
// This machine's path of the objects.
std::string objects_directory(const storage::Repository& repository);

// `given`, or where that is empty and nothing was said at the opening, the messages of the commits that were made
// inside, the oldest first; empty: there are none. What is in the .git is the command's: whatever cannot be read as git
// writes it is passed over.
std::string message_of(session::Session& session, const std::string& given);

}  // namespace escrow::daemon
