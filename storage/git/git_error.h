// One funnel from libgit2's return codes to Error. Call it on the thread that failed, before anything else touches
// libgit2: the message is thread-local and may be null.
#pragma once

#include <git2.h>

#include <string>

#include "session/base/error.h"
#include "session/base/ids.h"

namespace escrow::storage {

// libgit2's last message on this thread, or the code as a number.
std::string git_message(int code);

// Throws Error{fallback} "<doing>: <libgit2's message>". A full disk gives Error{no_space} whatever the fallback.
[[noreturn]] void throw_git_error(int code, const std::string& doing, session::Errc fallback);

// Throws unless `code` is 0 or positive.
inline void check_git(int code, const std::string& doing, session::Errc fallback = session::Errc::damaged_repository) {
  if (code < 0) throw_git_error(code, doing, fallback);
}

inline git_oid to_git(const session::ObjectId& id) {
  git_oid oid;
  git_oid_fromraw(&oid, id.bytes().data());
  return oid;
}
inline session::ObjectId from_git(const git_oid& oid) { return session::ObjectId::from_raw(oid.id); }

}  // namespace escrow::storage
