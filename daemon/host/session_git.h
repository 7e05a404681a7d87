// git inside a session (--git): which sessions have it, and what becomes of the commits that were made with it. The
// directory itself is git_inside.h.
//
// The directory is staged like everything else in the session and is left out of its commit; an attribute of it that no
// program can set keeps it from being named among what was left out.
//
// Sources: gitrepository-layout(5), git-config(1).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "session/transaction/session.h"
#include "storage/repository/repository.h"

namespace escrow::daemon {

// Below the root of a mount that shows the objects itself.
inline constexpr const char* kObjectsInMount = ".git/objects/borrowed";

struct GitTerms {
  // Where git finds the repository's objects, as who uses the mount sees that directory; empty: in the mount itself,
  // for users who do not see this machine's files.
  std::string objects{};
  bool keeps_commits = false;  // those made inside land one by one; else their messages are the message of the one
};

// What was asked for ("off", "squash", "keep", or nothing), for a session that is about to be opened in the repository
// that was named as `place`. Nothing is "squash" where `by_default`, git may be inside, no limit of the session would
// count its files, and the session does not note what it reads. Throws Error{bad_request} where git must not be
// inside: objects know no paths, so it would show what a policy or a path prefix hides; and a bucket's objects are not
// on this machine.
std::optional<GitTerms> git_terms(const std::string& asked, bool by_default, const session::SessionOptions& options,
                                  const storage::Repository& repository, const std::string& place);
// This machine's path of the objects.
std::string objects_directory(const storage::Repository& repository);

// Of a session that is mounted later or again, in its directory. Throws Error{input_output}.
void note_git_terms(const std::string& session_directory, const GitTerms& terms);
std::optional<GitTerms> noted_git_terms(const std::string& session_directory);

// `given` with what was committed inside: where it has no message and nothing was said at the opening, the messages of
// those commits, the oldest first; and where they are kept (GitTerms), the commits. Then the message that was given is
// that of what none of them has. What is in the .git is the command's: whatever cannot be read as git writes it is
// passed over. The session outlives the request.
session::CommitRequest with_commits_inside(session::Session& session, session::CommitRequest given);

}  // namespace escrow::daemon
