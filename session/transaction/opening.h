// The moment at which a session comes into being: its row is recorded.
#pragma once

#include "session/transaction/session.h"

namespace escrow::session {

// Records the row of a session whose directory, which is `held`, has all that it begins with on disk; the directory is
// marked afterwards (SessionDirectory::opened()). A kill before the row leaves a directory that recovery removes, one
// behind it an open session: only a row that is lost later makes a marked directory one that is set aside.
// Throws what Catalog::insert() does. A mark that cannot be written is logged: the session is open.
void record_open(const Services& services, const SessionRecord& record, SessionDirectory& held);

// As far as that has not been done yet: for one whose row is known.
void mark_open(const Services& services, const SessionId& id, SessionDirectory& held);

}  // namespace escrow::session
