// A new session that begins with what an older one left: the way on from a conflict, and from a failed run whose result
// was kept.
//
// The result is merged by path onto the branch's head: base and result of the older session, the head. What does not
// conflict is staged in the new session; conflicting paths are as the older session has them, and unresolved. The older
// session is only read. Any number of sessions may be opened with one result.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "session/transaction/session.h"

namespace escrow::session {

struct ResumeTerms {
  SessionId id = SessionId::generate();          // the new session's
  std::function<void(SessionOptions&)> adapt{};  // which are the older one's, and what its branch's rule asks
  PrepareFor prepare{};
};

// The older session's branch, prefix, policies and limits hold, and what its branch's rule asks by now. Killed anywhere
// before it is in the catalog, with all it begins with on disk, nothing of it remains after recovery.
// Throws Error{no_session}; Error{wrong_state} when the older session has no result: it is open, was committed, or kept
// nothing; Error{no_branch}; Error{not_a_directory} when others made a file of the root of its mount.
std::unique_ptr<Session> resume_session(const Services& services, const SessionId& older, const std::string& who,
                                        const ResumeTerms& terms = {});

}  // namespace escrow::session
