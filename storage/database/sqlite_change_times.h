// The index of times (change_times.h) in <state>/times.db.
//
// Thread-safe, and safe between processes: whoever finds a branch at a commit that the index has not seen brings the
// index there; of several threads that find the same, one does. The trees that differ are read first; then one
// transaction under SQLite's own lock writes the times, if the index still is where it was. It is on disk when it ends.
// Where more differs than session/trees/different_trees.h lists, all that the branch holds counts as new. Sessions read
// rows up to the moment at which they were opened; later ones do not concern them. Rows that later ones took the place
// of, and those of paths that are gone, go once no open session can need them. A file that is removed or damaged is
// made anew: everything is then as new as the newest change of which the catalog knows.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "session/base/clock.h"
#include "session/base/log.h"
#include "session/base/synchronized.h"
#include "session/interfaces/change_times.h"

namespace escrow::storage {

struct TimesSteps;

class SqliteChangeTimes final : public session::ChangeTimes {
 public:
  struct Branch {
    std::int64_t id = 0;
    session::ObjectId seen;
    std::int64_t newest_ns = 0;
  };

  // Nothing is opened before it is needed. `objects` and `log` must outlive it.
  SqliteChangeTimes(std::string path, std::string catalog_path, const session::ObjectReader& objects,
                    session::Log& log);
  ~SqliteChangeTimes() override;

  Seen see(const std::string& branch, const session::ReferenceStore& references) override;
  std::shared_ptr<const session::BaseTimes> as_of(const std::string& branch, session::Timestamp newest) override;

 private:
  struct Reader;
  struct Writer;
  struct Step;
  struct Plan;
  class AsOf;
  class Planning;
  using Way = std::pair<std::string, session::ObjectId>;  // of a branch to a commit
  Reader& reader(std::unique_ptr<Reader>& opened) const;
  Seen look(const std::string& branch, const session::ReferenceStore& references);
  // Takes the damaged file away, and lets go of it.
  void discard(const std::string& why);
  // Reads the trees that differ between what the index has seen (nullopt: nothing) and `head`.
  Plan plan_of(const std::string& branch, const std::optional<session::ObjectId>& seen,
               const session::ObjectId& head) const;
  std::vector<Step> changes_of(const TimesSteps& way) const;
  // Both return the time of the newest change, in nanoseconds since the epoch.
  std::int64_t begin(Writer& writer, const std::string& branch, const Plan& plan) const;
  std::int64_t move_on(Writer& writer, const std::string& branch, const Branch& known, const Plan& plan) const;
  // Moves `newest_ns` on with each step.
  void write_steps(Writer& writer, const std::string& branch, std::int64_t id, const Plan& plan,
                   std::int64_t& newest_ns) const;
  std::int64_t not_before(const std::string& branch, const std::vector<session::ObjectId>& commits) const;

  const std::string path_, catalog_path_;
  const session::ObjectReader& objects_;
  session::Log& log_;
  session::SystemClock clock_;
  session::Synchronized<std::unique_ptr<Reader>> reader_;  // self-locking; null: not needed so far
  session::Synchronized<std::unique_ptr<Writer>> writer_;  // the same; not held while trees are read
  session::Synchronized<std::set<Way>> planned_;           // by threads that read their trees
  std::condition_variable no_more_planned_;
};

}  // namespace escrow::storage
