#include "storage/database/sqlite_change_times.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "session/base/repo_path.h"
#include "session/trees/different_trees.h"
#include "storage/database/recent_changes.h"
#include "storage/database/schema.h"
#include "storage/database/times_steps.h"
#include "storage/disk/lock_file.h"
#include "storage/disk/unique_fd.h"

namespace escrow::storage {
namespace {

using session::BaseTimes;
using session::Errc;
using session::Error;
using session::ObjectId;
using session::ObjectReader;
using session::Timestamp;
using session::TimesBelow;

constexpr std::int64_t kSecond_ns = 1'000'000'000;
// A session that is being opened, and is not in the catalog so far, may need rows that are no older.
constexpr std::int64_t kKept_ns = 3600 * kSecond_ns;
// Stands for the time of what is gone: older than all that is asked for.
constexpr std::int64_t kGone_ns = -1;
// How much later than the session's clock a file system may stamp the same moment: a tick of the kernel's coarse clock.
constexpr std::int64_t kClockStep_ns = 10'000'000;
// Others may be bringing the index over a large change.
constexpr const char* kPatience = "PRAGMA busy_timeout = 120000";

std::int64_t to_ns(Timestamp time) { return time.seconds * kSecond_ns + time.nanoseconds; }

Timestamp from_ns(std::int64_t ns) {
  const std::int64_t rest = (ns % kSecond_ns + kSecond_ns) % kSecond_ns;
  return {(ns - rest) / kSecond_ns, static_cast<std::uint32_t>(rest)};
}

// A commit knows its second only: it counts as made at the end of that, for it is newer than what was built in it, but
// not as made in the future.
std::int64_t end_of_second(std::int64_t at_s, std::int64_t now_ns) {
  const std::int64_t now_s = now_ns / kSecond_ns;
  if (at_s >= now_s) return now_ns;
  return (std::max<std::int64_t>(at_s, 0) + 1) * kSecond_ns - 1;
}

struct Row {
  std::int64_t at = 0;
  std::optional<std::int64_t> modified, oldest_below;
};

std::optional<std::int64_t> optional_at(const Statement::Run& run, int column) {
  return run.is_null(column) ? std::nullopt : std::optional(run.integer(column));
}

constexpr std::string_view kReadLatest =
    "SELECT at, modified, oldest_below FROM change WHERE branch = ?1 AND directory = ?2 AND name = ?3 AND at <= ?4 "
    "ORDER BY at DESC LIMIT 1";

std::optional<Row> latest(Statement& statement, std::int64_t branch, const std::string& directory,
                          std::string_view name, std::int64_t as_of) {
  auto run = statement.run(branch, Bytes{directory}, Bytes{name}, as_of);
  if (!run.next()) return std::nullopt;
  return Row{run.integer(0), optional_at(run, 1), optional_at(run, 2)};
}

constexpr std::string_view kReadBranch = "SELECT id, seen, newest FROM branch WHERE name = ?1";

using Branch = SqliteChangeTimes::Branch;

std::optional<Branch> find_branch(Statement& statement, const Database& database, const std::string& name) {
  auto run = statement.run(Bytes{name});
  if (!run.next()) return std::nullopt;
  const std::optional<ObjectId> seen = ObjectId::from_hex(run.bytes(1));
  if (!seen)
    throw Error(Errc::damaged_repository, "the database " + database.path() + " is damaged: branch '" + name +
                                              "' has an impossible commit");
  return Branch{run.integer(0), *seen, run.integer(2)};
}

bool is_sound_index(Database& database) {
  if (database.text("PRAGMA quick_check") != "ok") return false;
  Statement statement(database, "SELECT seen FROM branch");
  for (auto row = statement.run(); row.next();)
    if (!ObjectId::from_hex(row.bytes(0))) return false;
  return true;
}

}  // namespace

struct SqliteChangeTimes::Reader {
  explicit Reader(const std::string& path) : database(open_durable(path, times_schema())) {
    database.forget_checkpoint_on_close();
  }

  Database database;
  Statement read_branch{database, kReadBranch};
  Statement read_latest{database, kReadLatest};
  Statement read_newer{database,
                       "SELECT name, at, modified, oldest_below FROM change WHERE branch = ?1 AND directory = ?2 AND "
                       "name <> x'' AND at > ?3 AND at <= ?4 ORDER BY name, at"};
};

struct SqliteChangeTimes::Writer {
  explicit Writer(const std::string& path) : database(open_durable(path, times_schema())) {
    database.execute(kPatience);
    database.forget_checkpoint_on_close();  // one now and then will do
  }

  void put(std::int64_t branch, const std::string& directory, const std::string& name, const Row& row,
           std::int64_t needed_ns) {
    put_row.execute(branch, Bytes{directory}, Bytes{name}, row.at, row.modified, row.oldest_below);
    drop_unneeded.execute(branch, Bytes{directory}, Bytes{name}, needed_ns);
  }

  Database database;
  Statement read_branch{database, kReadBranch};
  Statement read_latest{database, kReadLatest};
  Statement add_branch{database, "INSERT INTO branch (name, seen, newest) VALUES (?, ?, ?)"};
  Statement set_branch{database, "UPDATE branch SET seen = ?2, newest = ?3 WHERE id = ?1"};
  Statement put_row{database,
                    "REPLACE INTO change (branch, directory, name, at, modified, oldest_below) VALUES (?,?,?,?,?,?)"};
  // What was so at the given moment is needed, and what came later.
  Statement drop_unneeded{database,
                          "DELETE FROM change WHERE branch = ?1 AND directory = ?2 AND name = ?3 AND at < "
                          "(SELECT max(at) FROM change WHERE branch = ?1 AND directory = ?2 AND name = ?3 AND "
                          "at <= ?4)"};
  Statement list_gone{database,
                      "SELECT directory, name, at FROM change WHERE branch = ?1 AND modified = -1 AND at < ?2"};
  Statement drop_at{database,
                    "DELETE FROM change WHERE branch = ?1 AND directory = ?2 AND name = ?3 AND at <= ?4"};
  // Everything below a directory; '0' follows '/'.
  Statement drop_below{database,
                       "DELETE FROM change WHERE branch = ?1 AND (directory = ?2 OR (directory > ?3 AND directory < "
                       "?4)) AND at <= ?5"};

  // What came after is of a path that is there again.
  void drop_gone(std::int64_t branch, std::int64_t needed_ns) {
    struct Gone {
      std::string directory, name;
      std::int64_t at;
    };
    std::vector<Gone> gone;
    {
      auto run = list_gone.run(branch, needed_ns);
      while (run.next()) gone.push_back({run.bytes(0), run.bytes(1), run.integer(2)});
    }
    for (const Gone& one : gone) {
      const std::string path = session::join_path(one.directory, one.name);
      drop_at.execute(branch, Bytes{one.directory}, Bytes{one.name}, one.at);
      drop_below.execute(branch, Bytes{path}, Bytes{path + "/"}, Bytes{path + "0"}, one.at);
    }
  }
};

struct SqliteChangeTimes::Step {
  std::int64_t at_s = 0;  // of the commit
  RecordedChanges changes{};
};

// The way of the index from one commit to another, ready to be written.
struct SqliteChangeTimes::Plan {
  ObjectId head;
  std::vector<ObjectId> commits;  // that the steps came with
  std::vector<Step> steps;        // the oldest first
  bool all_is_new;                // what changed is not known
};

namespace {

// The entries that two trees do not have alike.
class DifferentEntries final : public ChangedEntries {
 public:
  void is_new(const std::string& directory, const std::string& name, bool is_directory) override {
    (is_directory ? directories_ : files_).insert(session::join_path(directory, name));
  }
  void is_gone(const std::string&, const std::string&) override {}
  void differs_below(const std::string&, const std::string&, bool) override {}

  bool has(const std::string& path) const {
    if (files_.contains(path)) return true;
    for (std::size_t end = path.size(); end != std::string::npos; end = end == 0 ? end - 1 : path.rfind('/', end - 1))
      if (directories_.contains(path.substr(0, end))) return true;
    return false;
  }

 private:
  std::set<std::string> files_, directories_;
};

}  // namespace

// ---- reading ----

class SqliteChangeTimes::AsOf final : public BaseTimes {
 public:
  AsOf(SqliteChangeTimes& times, const std::string& branch, Timestamp newest)
      : times_(times), branch_(branch), newest_(newest) {}

  // Of a damaged index nothing is newer: it is made anew when a session is opened next.
  Directory directory(const std::string& path) const override {
    try {
      return directory_in_index(path);
    } catch (const Error& error) {
      if (error.code() != Errc::damaged_repository) throw;
      return {newest_, {newest_, std::nullopt}};
    }
  }

  std::vector<Newer> newer(const std::string& path, Timestamp than) const override {
    try {
      return newer_in_index(path, than);
    } catch (const Error& error) {
      if (error.code() != Errc::damaged_repository) throw;
      return {};
    }
  }

 private:
  Directory directory_in_index(const std::string& path) const {
    auto guard = times_.reader_.lock();
    Reader& reader = times_.reader(*guard);
    const std::int64_t branch = id(reader);
    const auto row_of = [&](const std::string& directory, std::string_view name) {
      return latest(reader.read_latest, branch, directory, name, to_ns(newest_));
    };
    std::optional<Row> row = row_of("", "");
    if (!row) return {newest_, {newest_, std::nullopt}};
    std::int64_t oldest = row->oldest_below.value_or(to_ns(newest_));
    std::string at;
    const session::RepoPath whole = session::RepoPath::parse(path, "path");
    for (const std::string_view name : whole.components()) {
      row = row_of(at, name);
      at = session::join_path(at, name);
      if (!row || row->at <= oldest) return {from_ns(oldest), {from_ns(oldest), std::nullopt}};
      oldest = std::max(oldest, row->oldest_below.value_or(oldest));
    }
    TimesBelow below{from_ns(oldest), std::nullopt};
    if (row->at > oldest) below.path = at;
    return {from_ns(std::max(oldest, row->modified.value_or(oldest))), std::move(below)};
  }

  std::vector<Newer> newer_in_index(const std::string& path, Timestamp than) const {
    auto guard = times_.reader_.lock();
    Reader& reader = times_.reader(*guard);
    const std::int64_t than_ns = to_ns(than);
    std::vector<Newer> found;
    auto run = reader.read_newer.run(id(reader), Bytes{path}, than_ns, to_ns(newest_));
    while (run.next()) {
      const std::int64_t oldest = std::max(than_ns, optional_at(run, 3).value_or(than_ns));
      const std::int64_t modified = std::max(oldest, optional_at(run, 2).value_or(oldest));
      Newer entry{run.bytes(0), from_ns(modified), from_ns(oldest), run.integer(1) > oldest};
      if (!found.empty() && found.back().name == entry.name)
        found.back() = std::move(entry);
      else
        found.push_back(std::move(entry));
    }
    return found;
  }

  std::int64_t id(Reader& reader) const {
    const std::optional<Branch> branch = find_branch(reader.read_branch, reader.database, branch_);
    return branch ? branch->id : 0;
  }

  SqliteChangeTimes& times_;
  const std::string branch_;
  const Timestamp newest_;
};

SqliteChangeTimes::SqliteChangeTimes(std::string path, std::string catalog_path, const ObjectReader& objects,
                                     session::Log& log)
    : path_(std::move(path)), catalog_path_(std::move(catalog_path)), objects_(objects), log_(log) {}

SqliteChangeTimes::~SqliteChangeTimes() = default;

SqliteChangeTimes::Reader& SqliteChangeTimes::reader(std::unique_ptr<Reader>& opened) const {
  if (!opened) opened = std::make_unique<Reader>(path_);
  return *opened;
}

std::shared_ptr<const BaseTimes> SqliteChangeTimes::as_of(const std::string& branch, Timestamp newest) {
  return std::make_shared<AsOf>(*this, branch, newest);
}

// ---- moving on ----

SqliteChangeTimes::Seen SqliteChangeTimes::see(const std::string& branch, const session::ReferenceStore& references) {
  try {
    return look(branch, references);
  } catch (const Error& error) {
    // The repository's own objects may be damaged, too: then the new index fails as this one did.
    if (error.code() != Errc::damaged_repository) throw;
    discard(error.what());
  }
  return look(branch, references);
}

// Another process may have done so meanwhile, and the file that is there be a sound one.
void SqliteChangeTimes::discard(const std::string& why) {
  auto writer = writer_.lock();
  auto reader = reader_.lock();
  writer->reset();
  reader->reset();
  const UniqueFd turn = lock_file(path_ + ".lock", LockKind::exclusive);
  try {
    Writer there(path_);
    if (is_sound_index(there.database)) return;
  } catch (const Error& error) {
    if (error.code() != Errc::damaged_repository) throw;
  }
  for (const char* end : {"", "-wal", "-shm"}) ::unlink((path_ + end).c_str());
  log_.write(session::LogLevel::warning, "the index of times is made anew, and all that is in the repository is taken "
                                         "for new: " + why);
}

// Makes one thread read the trees of a way, and others that are to go the same way wait for it.
class SqliteChangeTimes::Planning {
 public:
  Planning(SqliteChangeTimes& times, Way way) : times_(times), way_(std::move(way)) {
    auto planned = times_.planned_.lock();
    is_first_ = planned->insert(way_).second;
    if (!is_first_) times_.no_more_planned_.wait(planned.lock(), [&] { return !planned->contains(way_); });
  }
  ~Planning() {
    if (!is_first_) return;
    times_.planned_.lock()->erase(way_);
    times_.no_more_planned_.notify_all();
  }
  Planning(const Planning&) = delete;
  Planning& operator=(const Planning&) = delete;

  bool is_first() const { return is_first_; }

 private:
  SqliteChangeTimes& times_;
  const Way way_;
  bool is_first_ = false;
};

// No lock is held while trees are read: others wait for the write alone. The plan counts if the index still is where
// the plan begins; else somebody has moved it, and the rest is planned anew. The branch may be somewhere else by then:
// the session is opened over the commit that was seen, and the next one moves the index on from there.
SqliteChangeTimes::Seen SqliteChangeTimes::look(const std::string& branch, const session::ReferenceStore& references) {
  std::optional<ObjectId> head = references.head(branch);
  if (!head) return {};
  {
    auto guard = reader_.lock();
    Reader& opened = reader(*guard);
    const std::optional<Branch> known = find_branch(opened.read_branch, opened.database, branch);
    if (known && known->seen == *head) return {head, from_ns(known->newest_ns)};
  }
  const auto opened = [this](std::unique_ptr<Writer>& writer) -> Writer& {
    if (!writer) writer = std::make_unique<Writer>(path_);
    return *writer;
  };
  // By this connection alone: the reader may have a file that another process has made anew since.
  const auto known_to = [&](Writer& writer) { return find_branch(writer.read_branch, writer.database, branch); };
  while (true) {
    // In this order: an index that went on in between would take the branch for one that went back.
    const std::optional<Branch> before = known_to(opened(*writer_.lock()));
    head = references.head(branch);
    if (!head) return {};
    if (before && before->seen == *head) return {head, from_ns(before->newest_ns)};
    const Planning turn(*this, {branch, *head});
    if (!turn.is_first()) continue;
    const Plan plan = plan_of(branch, before ? std::optional(before->seen) : std::nullopt, *head);
    auto guard = writer_.lock();
    Writer& writer = opened(*guard);
    Transaction transaction(writer.database);
    const std::optional<Branch> known = known_to(writer);
    const bool was_moved = known.has_value() != before.has_value() || (known && known->seen != before->seen);
    if (was_moved) continue;
    const std::int64_t newest_ns = known ? move_on(writer, branch, *known, plan) : begin(writer, branch, plan);
    transaction.commit();
    return {head, from_ns(newest_ns)};
  }
}

// A session of another commit may have built from what was there before until it ended, and its outputs may be seen by
// later ones (in a cache, for example).
std::int64_t SqliteChangeTimes::not_before(const std::string& branch, const std::vector<ObjectId>& commits) const {
  const std::optional<Timestamp> changed = RecentChanges(catalog_path_).newest(branch, commits);
  return changed ? to_ns(*changed) + kClockStep_ns : 0;
}

SqliteChangeTimes::Plan SqliteChangeTimes::plan_of(const std::string& branch, const std::optional<ObjectId>& seen,
                                                    const ObjectId& head) const {
  Plan plan{head, {}, {}, false};
  if (!seen) {
    plan.steps.push_back({objects_.read_commit(head).committer.time_s, {}});
    return plan;
  }
  try {
    const TimesSteps way = steps_between(objects_, *seen, head);
    plan.commits = way.commits;
    plan.steps = changes_of(way);
  } catch (const Error& error) {
    const bool is_beyond_bounds = error.code() == Errc::result_too_large || error.code() == Errc::name_too_long;
    // Else the commit that was seen last is gone: the branch was rewritten, and git has collected it.
    if (!is_beyond_bounds && error.code() != Errc::input_output) throw;
    if (is_beyond_bounds)
      log_.write(session::LogLevel::warning, "everything in commit " + head.hex() + " of branch '" + branch +
                                                 "' counts as new, and build tools make all of it: " + error.what());
    plan.all_is_new = true;
  }
  return plan;
}

std::vector<SqliteChangeTimes::Step> SqliteChangeTimes::changes_of(const TimesSteps& way) const {
  // Of several commits, what one of them changed and another took back has not changed.
  std::optional<DifferentEntries> different;
  std::function<bool(const std::string&)> may_count;
  if (way.steps.size() > 1) {
    session::BoundedListing bound(objects_, session::WholeTrees::by_name);
    tell_changes(objects_, way.steps.front().before, way.steps.back().after, bound, different.emplace());
    may_count = [&different](const std::string& path) { return different->has(path); };
  }
  std::vector<Step> steps;
  session::BoundedListing bound(objects_, session::WholeTrees::by_name);
  for (const TimesStep& step : way.steps) {
    steps.push_back({step.at_s, {}});
    tell_changes(objects_, step.before, step.after, bound, steps.back().changes, may_count);
  }
  return steps;
}

std::int64_t SqliteChangeTimes::begin(Writer& writer, const std::string& branch, const Plan& plan) const {
  const std::int64_t committed = end_of_second(plan.steps.front().at_s, to_ns(clock_.now()));
  const std::int64_t at = std::max(committed, not_before(branch, {plan.head}));
  writer.add_branch.execute(Bytes{branch}, plan.head.hex(), at);
  const std::int64_t id = sqlite3_last_insert_rowid(writer.database.handle());
  writer.put(id, "", "", {at, at, at}, at);
  return at;
}

std::int64_t SqliteChangeTimes::move_on(Writer& writer, const std::string& branch, const Branch& known,
                                        const Plan& plan) const {
  std::int64_t newest_ns = known.newest_ns;
  if (plan.all_is_new) {
    newest_ns = std::max({to_ns(clock_.now()), newest_ns + 1, not_before(branch, {})});
    writer.put(known.id, "", "", {newest_ns, newest_ns, newest_ns}, known.newest_ns);
  } else {
    write_steps(writer, branch, known.id, plan, newest_ns);
  }
  writer.set_branch.execute(known.id, plan.head.hex(), newest_ns);
  return newest_ns;
}

void SqliteChangeTimes::write_steps(Writer& writer, const std::string& branch, std::int64_t id, const Plan& plan,
                                    std::int64_t& newest_ns) const {
  class Rows final : public ChangedEntries {
   public:
    Rows(Writer& writer, std::int64_t branch, std::int64_t at, std::int64_t needed)
        : writer_(writer), branch_(branch), at_(at), needed_(needed) {}
    void is_new(const std::string& directory, const std::string& name, bool is_directory) override {
      writer_.put(branch_, directory, name, {at_, at_, is_directory ? std::optional(at_) : std::nullopt}, needed_);
    }
    void differs_below(const std::string& directory, const std::string& name, bool has_other_names) override {
      Row row = latest(writer_.read_latest, branch_, directory, name, at_).value_or(Row{});
      row.at = at_;
      if (has_other_names) row.modified = at_;
      writer_.put(branch_, directory, name, row, needed_);
    }

    void is_gone(const std::string& directory, const std::string& name) override {
      writer_.put(branch_, directory, name, {at_, kGone_ns, kGone_ns}, needed_);
    }

   private:
    Writer& writer_;
    const std::int64_t branch_, at_, needed_;
  };

  const std::int64_t now_ns = to_ns(clock_.now());
  const std::int64_t lower_ns = not_before(branch, plan.commits);
  const std::optional<Timestamp> in_use = RecentChanges(catalog_path_).oldest_base_time(branch);
  const std::int64_t needed_ns = std::min({in_use ? to_ns(*in_use) : newest_ns, newest_ns, now_ns - kKept_ns});
  for (const Step& step : plan.steps) {
    newest_ns = std::max({end_of_second(step.at_s, now_ns), newest_ns + 1, lower_ns});
    Rows rows(writer, id, newest_ns, needed_ns);
    step.changes.tell(rows);
  }
  writer.drop_gone(id, needed_ns);
}

}  // namespace escrow::storage
