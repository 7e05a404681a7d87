// The index of times (change_times.h) in <state>/times.db.
//
// Thread-safe, and safe between processes: whoever finds a branch at a commit that the index has not seen brings the
// index there, under SQLite's own lock, in one transaction that is on disk when it ends. Sessions read rows up to the
// moment at which they were opened; later ones do not concern them. Rows that later ones took the place of, and those
// of paths that are gone, go once no open session can need them. A file that is removed or damaged is made anew:
// everything is then as new as the newest change of which the catalog knows.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "session/base/clock.h"
#include "session/base/log.h"
#include "session/base/synchronized.h"
#include "session/interfaces/change_times.h"

namespace escrow::storage {

class SqliteChangeTimes final : public session::ChangeTimes {
 public:
  // Nothing is opened before it is needed. `objects` and `log` must outlive it.
  SqliteChangeTimes(std::string path, std::string catalog_path, const session::ObjectReader& objects,
                    session::Log& log);
  ~SqliteChangeTimes() override;

  Seen see(const std::string& branch, const session::ReferenceStore& references) override;
  std::shared_ptr<const session::BaseTimes> as_of(const std::string& branch, session::Timestamp newest) override;

 private:
  struct Reader;
  struct Writer;
  class AsOf;
  Reader& reader(std::unique_ptr<Reader>& opened) const;
  Seen look(const std::string& branch, const session::ReferenceStore& references);
  // Takes the damaged file away, and lets go of it.
  void discard(const std::string& why);
  // The time of the newest change in `head`, in nanoseconds since the epoch.
  std::int64_t bring_to(Writer& writer, const std::string& branch, const session::ObjectId& head);
  // Moves `newest_ns` on with each step.
  void apply_steps(Writer& writer, const std::string& branch, std::int64_t id, const session::ObjectId& seen,
                   const session::ObjectId& head, std::int64_t& newest_ns);
  std::int64_t not_before(const std::string& branch, const std::vector<session::ObjectId>& commits) const;

  const std::string path_, catalog_path_;
  const session::ObjectReader& objects_;
  session::Log& log_;
  session::SystemClock clock_;
  session::Synchronized<std::unique_ptr<Reader>> reader_;  // self-locking; null: not needed so far
  session::Synchronized<std::unique_ptr<Writer>> writer_;  // held while trees are read, by who opens sessions
};

}  // namespace escrow::storage
