// Where a session's private state lives: <gitdir>/escrow/sessions/<id>/ with `lock`, `control.sock`, `session.db`,
// `staging/` and `objects/`; in <gitdir>/escrow/orphans/<id>/ while no row of the catalog knows the session. Storage
// implements it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "session/interfaces/object_store.h"
#include "session/interfaces/read_log.h"
#include "session/interfaces/session_journal.h"
#include "session/interfaces/staging_area.h"

namespace escrow::session {

// One session's directory, held under its lock (an OFD write lock, fcntl(2)) until destroyed or the process ends,
// however it ends. The parts live as long as this object.
class SessionDirectory {
 public:
  virtual ~SessionDirectory() = default;
  virtual StagingArea& staging() = 0;
  virtual SessionJournal& journal() = 0;
  virtual Quarantine& quarantine() = 0;
  virtual ReadLog& reads() = 0;
  virtual std::string path() const = 0;
  // Its row is recorded. Until then what lies in a directory is a copy of what others have. On disk with the journal's
  // next barrier, and so before anything that the session promises. Throws Error; then what it holds says whether it
  // has_work().
  virtual void opened() = 0;
  // It was opened: something may be staged or published in it that nobody else has.
  virtual bool has_work() const = 0;
  // Moves it with all that it holds to where sessions wait of which no row says how they stand, and returns that path.
  // This object is not to be used any more then. A power cut may undo it. Throws Error.
  virtual std::string set_aside() = 0;
  // Removes what is staged, the journal and the quarantine's own copies: of a session whose result the quarantine has
  // published, and which is not to change any more. The lock stays, and the record of what was published. Idempotent;
  // false when there was nothing.
  virtual bool drop_staged() = 0;
  // Of a session whose outcome is recorded as committed: what it has of its caches is what later sessions see of them.
  // Throws Error naming the cache that stays as it was. Idempotent.
  virtual void publish_caches() = 0;
  // Drops the session's changes to its caches: they are never published. A cache with changes begins anew with its
  // published state when it is opened next; the names of these caches are returned. A kill may leave some of them
  // dropped. Throws Error.
  virtual std::vector<std::string> drop_caches() = 0;
  // `heir`, whose staging area nobody has used yet, has these staging files, too, under the same ids. No byte is
  // copied: neither may write to them any more.
  virtual void share_staging(const std::vector<StagingId>& files, SessionDirectory& heir) = 0;
  // Removes the directory and all it holds; nothing of the session remains below it.
  virtual void remove() = 0;
};

class SessionDirectories {
 public:
  virtual ~SessionDirectories() = default;
  virtual std::unique_ptr<SessionDirectory> create(const SessionId& id) = 0;
  // nullptr when another process (or this one) holds it. Throws Error{no_session} when there is none.
  virtual std::unique_ptr<SessionDirectory> try_open(const SessionId& id) = 0;
  // The directory of a session whose holder waits meanwhile, and has let go of its journal (SessionJournal::let_go()).
  // Throws Error{no_session} when there is none.
  virtual std::unique_ptr<SessionDirectory> borrow(const SessionId& id) = 0;
  virtual bool is_held(const SessionId& id) const = 0;
  virtual bool exists(const SessionId& id) const = 0;
  virtual std::vector<SessionId> list() const = 0;
  // Those that were set aside.
  virtual std::vector<SessionId> list_aside() const = 0;
  // One that was set aside is a session's directory again; a power cut may undo it. Throws Error when there is another.
  virtual void bring_back(const SessionId& id) = 0;
  virtual std::string path_of(const SessionId& id) const = 0;
};

}  // namespace escrow::session
