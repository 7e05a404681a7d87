// The text of a commit and the identity behind it.
//
// The message is what the user wrote, then one paragraph of trailers that is the audit record (T11), so that
// `git interpret-trailers --parse` reads exactly the trailers Escrow wrote, whatever the user's text ends with.
// Pure functions; thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "session/interfaces/object_store.h"
#include "session/interfaces/session_record.h"
#include "session/trees/tree_changes.h"

namespace escrow::session {

// Throws Error{bad_request} when `message` holds a control character other than newline, tab and carriage return
// before a newline.
void check_commit_message(std::string_view message);

// record.message, or, when that is blank, a subject that names the command of a run, if there is one (at most 72
// bytes), and a line that counts the changes and names the session; then
// Escrow-Session, Escrow-Committer, Escrow-Issuer, Escrow-Image, Escrow-Source, Escrow-Trigger, Escrow-Trigger-Id,
// Escrow-Exit-Code, Escrow-Base, Escrow-Reviewer and Escrow-Review-Comment, leaving out those without a value. A line
// of the user's at which git would stop looking for trailers ("---" and the scissors line) is indented by one space.
std::string compose_commit_message(const SessionRecord& record, const ChangeCounts& counts);

// Author and committer of the commits of "KIND:NAME": name NAME, address NAME@KIND.escrow.invalid (a name that cannot
// exist, RFC 2606), with bytes that do not belong in an address as %XX. UTC.
Signature signature_of(std::string_view principal, Timestamp now);
// The author that the record names, else its committer.
Signature signature_of(const Audit& audit, Timestamp now);

}  // namespace escrow::session
