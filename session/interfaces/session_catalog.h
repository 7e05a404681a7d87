// The repository's table of sessions and their states; storage keeps it in SQLite.
//
// Thread-safe, and safe between processes. Every method that changes something is one transaction that is on disk
// (synchronous=FULL) when it returns, but for note().
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "session/base/denial.h"
#include "session/interfaces/session_record.h"

namespace escrow::session {

// So many sessions with a common prefix are enough to say that it is ambiguous.
inline constexpr std::size_t kMostByPrefix = 11;

class SessionCatalog {
 public:
  virtual ~SessionCatalog() = default;

  // Of one that resumes another, the other's history says so, and its own says who had a part in the other until that
  // was sealed.
  virtual void insert(const SessionRecord& record) = 0;
  virtual std::optional<SessionRecord> find(const SessionId& id) const = 0;
  // The sessions whose ids begin with `prefix`, at most kMostByPrefix of them, by id.
  virtual std::vector<SessionId> find_by_prefix(const std::string& prefix) const = 0;
  // Those whose state is not final, oldest first. Costs nothing for those that have ended.
  virtual std::vector<SessionRecord> unended() const = 0;
  // All, oldest first: for who checks everything. The cost grows with the repository's history.
  virtual std::vector<SessionRecord> list() const = 0;
  // Forks of the session whose state is not final, oldest first.
  virtual std::vector<SessionId> forks_of(const SessionId& id) const = 0;
  // The sessions that resume this one, oldest first.
  virtual std::vector<SessionId> resumed_as(const SessionId& id) const = 0;

  // Replaces the row of record.id, only while the stored state is `expected` (Error{wrong_state} naming the state it
  // is in otherwise), and appends {time, from, to, who, why} to the history.
  virtual void transition(State expected, const SessionRecord& record, const std::string& who,
                          const std::string& why) = 0;

  // The same for a change within a state that a power loss takes with it anyway, as it does every mount: it survives a
  // kill of the process, and is on disk with the next transition.
  virtual void note(const SessionRecord& record, const std::string& who, const std::string& why) = 0;

  // Appends to the history that `who` did `what`, in whatever state the session is, and changes nothing else: also for
  // who does not hold the session. Throws Error{no_session}.
  virtual void remark(const SessionId& id, Timestamp when, const std::string& who, const std::string& what) = 0;

  // Adds to what was denied in the session. At most kMaxDenials kinds are kept; the others are counted in the row with
  // everything empty.
  virtual void add_denials(const SessionId& id, const std::vector<DenialCount>& denials) = 0;
  // In the order in which they first came.
  virtual std::vector<DenialCount> denials(const SessionId& id) const = 0;

  // Keeps what a session had read when it was committed or sealed, in place of what was kept before, for as long as its
  // record. Returns "sha256:..." of it.
  virtual std::string keep_reads(const SessionId& id, const std::string& reads) = 0;
  virtual std::optional<std::string> reads(const SessionId& id) const = 0;

  // Forgets final sessions, their history and denials, older than `before`, in several transactions with room for
  // others in between. Returns how many.
  virtual std::uint64_t prune(Timestamp before) = 0;
};

}  // namespace escrow::session
