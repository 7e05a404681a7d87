#include "storage/database/sqlite_session_catalog.h"

#include <array>

#include "storage/database/schema.h"
#include "storage/database/session_query_sql.h"
#include "storage/database/sha256_text.h"
#include "storage/disk/joined_texts.h"

namespace escrow::storage {
namespace {

using session::DenialCount;
using session::Errc;
using session::Error;
using session::ObjectId;
using session::RepoPath;
using session::SessionId;
using session::SessionRecord;
using session::State;
using session::Timestamp;

constexpr std::string_view kColumns =
    "id, state, reason, branch, prefix, committer, issuer, source, image, trigger_name, trigger_id, uid, gid, umask, "
    "read_only, ephemeral, keep_on_failure, excludes, base, \"commit\", swap_from, swap_to, exit_code, message, "
    "mountpoint, last_error, conflicts, created_s, created_ns, changed_s, changed_ns, policies, contained_symlinks, "
    "require_approval, approval_expires_s, command, result, expires_s, expires_ns, reviewer, review_comment, "
    "counts_added, counts_modified, counts_deleted, limit_bytes, limit_files, updating_to, include_ignored, "
    "author_name, author_email, updating_keeps, unresolved, resumes, base_time_s, base_time_ns, "
    "isolation, reads, shows_lfs_pointers, parent";

std::string sql_select(std::string_view rest) {
  return "SELECT " + std::string(kColumns) + " FROM session " + std::string(rest);
}

std::optional<std::string> hex_of(const std::optional<ObjectId>& id) {
  return id ? std::optional(id->hex()) : std::nullopt;
}

constexpr char kSynced[] = "PRAGMA synchronous = FULL";
// In WAL mode only a checkpoint waits for the disk then.
constexpr char kUnsynced[] = "PRAGMA synchronous = NORMAL";

// Reads columns in order and refuses what was never written by insert().
class RowReader {
 public:
  RowReader(const Database& database, const Statement::Run& row)
      : database_(database), row_(row), session_(row.bytes(0)) {}

  std::string bytes() { return row_.bytes(column_++); }
  std::int64_t integer() { return row_.integer(column_++); }
  bool flag() { return integer() != 0; }
  std::uint32_t word() { return static_cast<std::uint32_t>(integer()); }
  Timestamp time() {
    const std::int64_t seconds = integer();
    return {seconds, word()};
  }
  std::optional<int> optional_integer() {
    const int column = column_++;
    return row_.is_null(column) ? std::nullopt : std::optional(static_cast<int>(row_.integer(column)));
  }
  std::optional<Timestamp> optional_time() {
    if (!row_.is_null(column_)) return time();
    column_ += 2;
    return std::nullopt;
  }
  std::optional<session::ChangeCounts> optional_counts() {
    std::array<std::uint64_t, 3> counts{};
    const bool none = row_.is_null(column_);
    for (std::uint64_t& count : counts) {
      if (!none) count = static_cast<std::uint64_t>(row_.integer(column_));
      ++column_;
    }
    if (none) return std::nullopt;
    return session::ChangeCounts{counts[0], counts[1], counts[2]};
  }
  std::optional<ObjectId> optional_id() {
    const int column = column_++;
    if (row_.is_null(column)) return std::nullopt;
    return checked(ObjectId::from_hex(row_.bytes(column)), "object id", row_.bytes(column));
  }
  std::string optional_text() {
    const int column = column_++;
    return row_.is_null(column) ? std::string() : row_.bytes(column);
  }
  template <typename T>
  T checked(const std::optional<T>& value, const char* what, const std::string& text) const {
    if (value) return *value;
    throw Error(Errc::damaged_repository, "the database " + database_.path() + " is damaged: session '" + session_ +
                                              "' has an impossible " + what + " '" + text + "'");
  }

 private:
  const Database& database_;
  const Statement::Run& row_;
  const std::string session_;
  int column_ = 0;
};

RepoPath checked_prefix(const RowReader& reader, const std::string& text) {
  try {
    return RepoPath::parse(text, "prefix");
  } catch (const Error&) {
    return reader.checked(std::optional<RepoPath>(), "prefix", text);
  }
}

SessionRecord decode(const Database& database, const Statement::Run& row) {
  RowReader reader(database, row);
  const auto named = [&](auto parse, const char* what) {
    const std::string text = reader.bytes();
    return reader.checked(parse(text), what, text);
  };
  SessionRecord record{.id = named(SessionId::parse, "id"), .options = {}, .base = {}, .commit = {}, .swap_from = {},
                       .swap_to = {}, .exit_code = {}, .message = {}, .mountpoint = {}, .last_error = {},
                       .conflicts = {}, .result = {}, .expires = {}, .reviewer = {}, .review_comment = {},
                       .counts = {}, .created = {}, .changed = {}};
  record.state = named(session::state_from_name, "state");
  record.reason = named(session::reason_from_name, "reason");
  session::SessionOptions& options = record.options;
  options.branch = reader.bytes();
  options.prefix = checked_prefix(reader, reader.bytes());
  session::Audit& audit = options.audit;
  for (std::string* value : {&audit.committer, &audit.issuer, &audit.source, &audit.image, &audit.trigger,
                             &audit.trigger_id})
    *value = reader.bytes();
  for (std::uint32_t* value : {&options.uid, &options.gid, &options.umask}) *value = reader.word();
  for (bool* value : {&options.read_only, &options.ephemeral, &options.keep_on_failure}) *value = reader.flag();
  options.excludes = split_texts(reader.bytes());
  for (std::optional<ObjectId>* id : {&record.base, &record.commit, &record.swap_from, &record.swap_to})
    *id = reader.optional_id();
  record.exit_code = reader.optional_integer();
  for (std::string* value : {&record.message, &record.mountpoint, &record.last_error}) *value = reader.bytes();
  record.conflicts = split_texts(reader.bytes());
  record.created = reader.time();
  record.changed = reader.time();
  options.policies = split_texts(reader.bytes());
  for (bool* value : {&options.contained_symlinks, &options.require_approval}) *value = reader.flag();
  options.approval_expires_s = reader.integer();
  options.command = split_texts(reader.bytes());
  record.result = reader.optional_id();
  record.expires = reader.optional_time();
  for (std::string* value : {&record.reviewer, &record.review_comment}) *value = reader.bytes();
  record.counts = reader.optional_counts();
  for (std::uint64_t* value : {&options.limits.staged_bytes, &options.limits.files})
    *value = static_cast<std::uint64_t>(reader.integer());
  record.updating_to = reader.optional_id();
  options.include_ignored = reader.flag();
  for (std::string* value : {&audit.author_name, &audit.author_email}) *value = reader.bytes();
  record.updating_keeps = reader.flag();
  record.unresolved =
      named([](const std::string& text) { return session::unresolved_from(split_texts(text)); }, "conflict");
  if (const std::string resumed = reader.optional_text(); !resumed.empty())
    record.resumes = reader.checked(SessionId::parse(resumed), "session that it resumes", resumed);
  record.base_time = reader.optional_time();
  options.isolation = named(session::isolation_from_name, "isolation");
  record.reads = reader.bytes();
  options.shows_lfs_pointers = reader.flag();
  if (const std::string parent = reader.optional_text(); !parent.empty())
    record.parent = reader.checked(SessionId::parse(parent), "session that it is a fork of", parent);
  return record;
}

// Puts the whole row; the columns are those of kColumns.
void put_row(Statement& statement, const SessionRecord& record) {
  const session::SessionOptions& options = record.options;
  const session::Audit& audit = options.audit;
  const auto count = [&](std::uint64_t session::ChangeCounts::* which) {
    return record.counts ? std::optional(static_cast<std::int64_t>((*record.counts).*which)) : std::nullopt;
  };
  statement.execute(record.id.text(), session::name_of(record.state), session::name_of(record.reason),
                    Bytes{options.branch}, Bytes{options.prefix.text()}, audit.committer, audit.issuer, audit.source,
                    audit.image, audit.trigger, audit.trigger_id, options.uid, options.gid, options.umask,
                    options.read_only, options.ephemeral, options.keep_on_failure, Bytes{join_texts(options.excludes)},
                    hex_of(record.base), hex_of(record.commit), hex_of(record.swap_from), hex_of(record.swap_to),
                    record.exit_code, Bytes{record.message}, Bytes{record.mountpoint}, record.last_error,
                    Bytes{join_texts(record.conflicts)}, record.created.seconds, record.created.nanoseconds,
                    record.changed.seconds, record.changed.nanoseconds, Bytes{join_texts(options.policies)},
                    options.contained_symlinks, options.require_approval, options.approval_expires_s,
                    Bytes{join_texts(options.command)}, hex_of(record.result),
                    record.expires ? std::optional(record.expires->seconds) : std::nullopt,
                    record.expires ? std::optional(std::int64_t{record.expires->nanoseconds}) : std::nullopt,
                    record.reviewer, record.review_comment, count(&session::ChangeCounts::added),
                    count(&session::ChangeCounts::modified), count(&session::ChangeCounts::deleted),
                    options.limits.staged_bytes, options.limits.files, hex_of(record.updating_to),
                    options.include_ignored, Bytes{audit.author_name}, Bytes{audit.author_email},
                    record.updating_keeps, Bytes{join_texts(session::texts_of(record.unresolved))},
                    record.resumes ? std::optional(record.resumes->text()) : std::nullopt,
                    record.base_time ? std::optional(record.base_time->seconds) : std::nullopt,
                    record.base_time ? std::optional(std::int64_t{record.base_time->nanoseconds}) : std::nullopt,
                    session::name_of(options.isolation), record.reads, options.shows_lfs_pointers,
                    record.parent ? std::optional(record.parent->text()) : std::nullopt);
}

Error no_session(const SessionId& id) {
  return Error(Errc::no_session, "there is no session " + id.text() + "; `escrow sessions` lists them");
}

std::string sql_insert() {
  std::string sql = "INSERT INTO session (" + std::string(kColumns) + ") VALUES (?";
  for (const char c : kColumns) sql += c == ',' ? ", ?" : "";
  return sql + ")";
}

std::vector<SessionId> read_ids(Statement::Run run) {
  std::vector<SessionId> ids;
  while (run.next())
    if (auto id = SessionId::parse(run.bytes(0))) ids.push_back(*std::move(id));
  return ids;
}

constexpr int kPrunedAtOnce = 256;  // everybody else waits for the transaction

}  // namespace

struct SqliteSessionCatalog::Connection {
  explicit Connection(const std::string& path) : database(open_durable(path, catalog_schema())) {}

  std::optional<State> state_of(const SessionId& id) {
    auto run = read_state.run(id.text());
    if (!run.next()) return std::nullopt;
    const std::string name = run.bytes(0);
    const auto state = session::state_from_name(name);
    if (!state)
      throw Error(Errc::damaged_repository, "the database " + database.path() + " is damaged: session '" + id.text() +
                                                "' has an impossible state '" + name + "'");
    return state;
  }
  std::vector<SessionRecord> read(Statement::Run run) const {
    std::vector<SessionRecord> records;
    while (run.next()) records.push_back(decode(database, run));
    return records;
  }
  void remember(const SessionRecord& record, const std::optional<std::string>& from, const std::string& who,
                const std::string& why) {
    add_history.execute(record.id.text(), record.changed.seconds, record.changed.nanoseconds, from,
                        session::name_of(record.state), who, why);
  }

  void remember_resumed(const SessionRecord& record) {
    const std::string& older = record.resumes->text();
    const std::optional<State> state = state_of(*record.resumes);
    if (!state) return;  // its record has just been dropped
    const char* name = session::name_of(*state);
    add_history.execute(older, record.changed.seconds, record.changed.nanoseconds, name, name,
                        record.options.audit.issuer, "resumed as session " + record.id.text());
    const std::string why = "had a part in session " + older + ", which it resumes";
    add_parts.execute(record.id.text(), record.changed.seconds, record.changed.nanoseconds, why, older);
  }

  void change(State expected, const SessionRecord& record, const std::string& who, const std::string& why) {
    const std::optional<State> stored = state_of(record.id);
    if (!stored) throw no_session(record.id);
    if (*stored != expected || (session::is_final(expected) && record.state != expected))
      throw Error(Errc::wrong_state, "session " + record.id.text() + " is " + session::name_of(*stored) +
                                         ": it cannot become " + session::name_of(record.state));
    put_row(replace, record);
    remember(record, session::name_of(expected), who, why);
  }

  Error damaged_history(const std::string& id, const std::string& what) const {
    return Error(Errc::damaged_repository, "the database " + database.path() + " is damaged: the history of session '" +
                                               id + "' has an impossible '" + what + "'");
  }

  std::uint64_t kinds_of(const SessionId& id) {
    auto run = count_kinds.run(id.text());
    run.next();
    return static_cast<std::uint64_t>(run.integer(0));
  }
  // With its history and denials; false: there is none that has ended.
  bool drop(const std::string& id) {
    forget.execute(id);
    if (database.changes() == 0) return false;
    forget_history.execute(id);
    forget_denials.execute(id);
    forget_reads.execute(id);
    return true;
  }
  // False: no such kind was denied before.
  bool counted(const SessionId& id, const DenialCount& denial) {
    count_denial.execute(id.text(), denial.operation, Bytes{denial.path}, denial.rule, denial.count,
                         denial.last.seconds, denial.last.nanoseconds);
    return database.changes() > 0;
  }

  Database database;
  Statement insert{database, sql_insert()};
  Statement replace{database, sql_update(kColumns)};
  Statement read_one{database, sql_select("WHERE id = ?1")};
  Statement read_state{database, "SELECT state FROM session WHERE id = ?1"};
  Statement read_all{database, sql_select("ORDER BY created_s, created_ns, id")};
  Statement read_unended{database, sql_select("INDEXED BY session_unended WHERE " + std::string(kIsUnended) +
                                              " ORDER BY created_s, created_ns, id")};
  // 'g' sorts behind every hexadecimal digit.
  Statement read_prefix{database, "SELECT id FROM session WHERE id >= ?1 AND id < ?1 || 'g' ORDER BY id LIMIT ?2"};
  Statement add_history{database,
                        "INSERT INTO history (session, time_s, time_ns, from_state, to_state, who, why) "
                        "VALUES (?, ?, ?, ?, ?, ?, ?)"};
  // Whoever a review must not be by: until it was sealed they had a hand in it, afterwards they only looked.
  Statement add_parts{database,
                      "INSERT INTO history (session, time_s, time_ns, from_state, to_state, who, why) "
                      "SELECT ?1, ?2, ?3, 'open', 'open', who, ?4 FROM "
                      "(SELECT who FROM history WHERE session = ?5 AND who LIKE '%:%' AND number <= "
                      "coalesce((SELECT min(number) FROM history WHERE session = ?5 AND "
                      "to_state = 'awaiting_approval'), 9223372036854775807) "
                      "UNION SELECT committer FROM session WHERE id = ?5 UNION SELECT issuer FROM session "
                      "WHERE id = ?5)"};
  Statement read_resumed{database, "SELECT id FROM session WHERE resumes = ?1 ORDER BY created_s, created_ns, id"};
  Statement read_forks{database, "SELECT id FROM session WHERE parent = ?1 AND " + std::string(kIsUnended) +
                                     " ORDER BY created_s, created_ns, id"};
  Statement read_history{database,
                         "SELECT time_s, time_ns, from_state, to_state, who, why FROM history WHERE session = ?1 "
                         "ORDER BY number"};
  Statement sum_denials{database, "SELECT coalesce(sum(count), 0) FROM denial WHERE session = ?1"};
  Statement read_old{database,
                     "SELECT id FROM session INDEXED BY session_by_change WHERE (changed_s, changed_ns) < (?1, ?2) "
                     "AND NOT (" + std::string(kIsUnended) + ") LIMIT ?3"};
  Statement forget{database,
                   "DELETE FROM session WHERE id = ?1 AND state IN ('committed', 'commit_failed', 'rolled_back')"};
  Statement forget_history{database, "DELETE FROM history WHERE session = ?"};
  Statement forget_denials{database, "DELETE FROM denial WHERE session = ?"};
  Statement put_reads{database, "INSERT OR REPLACE INTO session_reads (session, reads) VALUES (?, ?)"};
  Statement read_reads{database, "SELECT reads FROM session_reads WHERE session = ?"};
  Statement forget_reads{database, "DELETE FROM session_reads WHERE session = ?"};
  Statement count_denial{database,
                         "UPDATE denial SET count = count + ?5, last_s = ?6, last_ns = ?7, "
                         "number = (SELECT last FROM denial_counter) WHERE session = ?1 AND "
                         "operation = ?2 AND path = ?3 AND rule = ?4"};
  Statement count_kinds{database, "SELECT count(*) FROM denial WHERE session = ?1 AND operation <> ''"};
  Statement add_denial{database, "INSERT INTO denial (session, operation, path, rule, count, first_s, first_ns, "
                                 "last_s, last_ns, number) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, "
                                 "(SELECT last FROM denial_counter))"};
  Statement count_up{database, "UPDATE denial_counter SET last = last + 1"};
  Statement read_transitions{database,
                             "SELECT number, session, time_s, time_ns, from_state, to_state, who, why FROM history "
                             "WHERE number > ?1 ORDER BY number LIMIT ?2"};
  Statement read_denied{database,
                        "SELECT number, session, operation, path, rule, count, last_s, last_ns FROM denial "
                        "WHERE number > ?1 ORDER BY number LIMIT ?2"};
  Statement read_numbers{database,
                         "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'history'), 0), "
                         "(SELECT last FROM denial_counter)"};
  Statement read_denials{database,
                         "SELECT operation, path, rule, count, first_s, first_ns, last_s, last_ns FROM denial "
                         "WHERE session = ?1 ORDER BY first_s, first_ns, operation, path, rule"};
};

SqliteSessionCatalog::SqliteSessionCatalog(const std::string& database_path)
    : path_(database_path), connection_(std::make_unique<Connection>(database_path)) {}

SqliteSessionCatalog::~SqliteSessionCatalog() = default;

void SqliteSessionCatalog::insert(const SessionRecord& record) {
  writes_.run(connection_, [&](Connection& connection) {
    if (connection.state_of(record.id))
      throw Error(Errc::exists, "session " + record.id.text() + " exists already");
    put_row(connection.insert, record);
    connection.remember(record, std::nullopt, record.options.audit.issuer, "created");
    if (record.resumes) connection.remember_resumed(record);
  });
}

std::optional<SessionRecord> SqliteSessionCatalog::find(const SessionId& id) const {
  auto guard = connection_.lock();
  auto run = (*guard)->read_one.run(id.text());
  if (!run.next()) return std::nullopt;
  return decode((*guard)->database, run);
}

std::vector<SessionId> SqliteSessionCatalog::find_by_prefix(const std::string& prefix) const {
  auto guard = connection_.lock();
  auto run = (*guard)->read_prefix.run(prefix, static_cast<std::int64_t>(session::kMostByPrefix));
  std::vector<SessionId> ids;
  while (run.next())
    if (auto id = SessionId::parse(run.bytes(0)); id && id->text().starts_with(prefix)) ids.push_back(*id);
  return ids;
}

std::vector<SessionRecord> SqliteSessionCatalog::unended() const {
  auto guard = connection_.lock();
  return (*guard)->read((*guard)->read_unended.run());
}

std::vector<SessionRecord> SqliteSessionCatalog::list() const {
  auto guard = connection_.lock();
  return (*guard)->read((*guard)->read_all.run());
}

// In WAL mode it sees what is committed, and neither waits for a writer nor makes one wait.
struct SqliteSessionCatalog::Reader {
  explicit Reader(const std::string& path) : database(path, {}) { database.keep_log(); }

  static Reader& of(std::unique_ptr<Reader>& reader, const std::string& path) {
    if (!reader) reader = std::make_unique<Reader>(path);
    return *reader;
  }

  Database database;
  Statement read_tally{database, "SELECT name, value FROM tally"};
};

std::vector<SessionRecord> SqliteSessionCatalog::page(const SessionQuery& query) const {
  const std::optional<std::string> sql = sql_of(query, kColumns);
  if (!sql) return {};
  auto guard = reader_.lock();
  Reader& reader = Reader::of(*guard, path_);
  Statement statement(reader.database, *sql);
  auto run = query.issuer ? statement.run(*query.issuer) : statement.run();
  std::vector<SessionRecord> records;
  while (run.next()) records.push_back(decode(reader.database, run));
  return records;
}

SessionCounts SqliteSessionCatalog::counts() const {
  SessionCounts counts;
  auto guard = reader_.lock();
  auto run = Reader::of(*guard, path_).read_tally.run();
  while (run.next()) {
    const auto value = static_cast<std::uint64_t>(run.integer(1));
    if (const auto state = session::state_from_name(run.bytes(0))) {
      counts.by_state[*state] = value;
    } else {
      counts.denied_calls = value;
    }
  }
  return counts;
}

std::vector<SessionId> SqliteSessionCatalog::forks_of(const SessionId& id) const {
  return read_ids((*connection_.lock())->read_forks.run(id.text()));
}

std::vector<SessionId> SqliteSessionCatalog::resumed_as(const SessionId& id) const {
  return read_ids((*connection_.lock())->read_resumed.run(id.text()));
}

void SqliteSessionCatalog::transition(State expected, const SessionRecord& record, const std::string& who,
                                      const std::string& why) {
  writes_.run(connection_, [&](Connection& connection) { connection.change(expected, record, who, why); });
}

void SqliteSessionCatalog::note(const SessionRecord& record, const std::string& who, const std::string& why) {
  auto guard = connection_.lock();
  std::exception_ptr failure;
  try {
    (*guard)->database.execute(kUnsynced);
    Transaction transaction((*guard)->database);
    (*guard)->change(record.state, record, who, why);
    transaction.commit();
  } catch (...) {
    failure = std::current_exception();
  }
  try {
    (*guard)->database.execute(kSynced);
  } catch (const Error&) {
    // No other write may go on without its sync.
    *guard = std::make_unique<Connection>((*guard)->database.path());
  }
  if (failure) std::rethrow_exception(failure);
}

void SqliteSessionCatalog::remark(const SessionId& id, Timestamp when, const std::string& who,
                                  const std::string& what) {
  writes_.run(connection_, [&](Connection& connection) {
    const std::optional<State> state = connection.state_of(id);
    if (!state) throw no_session(id);
    const char* name = session::name_of(*state);
    connection.add_history.execute(id.text(), when.seconds, when.nanoseconds, name, name, who, what);
  });
}

void SqliteSessionCatalog::add_denials(const SessionId& id, const std::vector<DenialCount>& denials) {
  auto guard = connection_.lock();
  Connection& connection = **guard;
  Transaction transaction(connection.database);
  auto kinds = connection.kinds_of(id);
  connection.count_up.execute();
  for (DenialCount denial : denials) {
    if (connection.counted(id, denial)) continue;
    if (kinds >= session::kMaxDenials) {
      denial.operation = denial.path = denial.rule = "";
      if (connection.counted(id, denial)) continue;
    }
    connection.add_denial.execute(id.text(), denial.operation, Bytes{denial.path}, denial.rule, denial.count,
                                  denial.first.seconds, denial.first.nanoseconds, denial.last.seconds,
                                  denial.last.nanoseconds);
    if (!denial.operation.empty()) ++kinds;
  }
  transaction.commit();
}

std::vector<DenialCount> SqliteSessionCatalog::denials(const SessionId& id) const {
  auto guard = connection_.lock();
  auto run = (*guard)->read_denials.run(id.text());
  std::vector<DenialCount> result;
  while (run.next())
    result.push_back({run.bytes(0), run.bytes(1), run.bytes(2), static_cast<std::uint64_t>(run.integer(3)),
                      {run.integer(4), static_cast<std::uint32_t>(run.integer(5))},
                      {run.integer(6), static_cast<std::uint32_t>(run.integer(7))}});
  return result;
}

std::string SqliteSessionCatalog::keep_reads(const SessionId& id, const std::string& reads) {
  writes_.run(connection_, [&](Connection& connection) {
    if (!connection.state_of(id)) throw no_session(id);
    connection.put_reads.execute(id.text(), Bytes{reads});
  });
  return sha256_text(reads);
}

std::optional<std::string> SqliteSessionCatalog::reads(const SessionId& id) const {
  auto guard = connection_.lock();
  auto run = (*guard)->read_reads.run(id.text());
  return run.next() ? std::optional(run.bytes(0)) : std::nullopt;
}

std::uint64_t SqliteSessionCatalog::prune(Timestamp before) {
  std::uint64_t pruned = 0;
  for (std::size_t found = kPrunedAtOnce; found == kPrunedAtOnce;) {
    auto guard = connection_.lock();
    Connection& connection = **guard;
    Transaction transaction(connection.database);
    std::vector<std::string> old;
    {
      auto run = connection.read_old.run(before.seconds, before.nanoseconds, kPrunedAtOnce);
      while (run.next()) old.push_back(run.bytes(0));
    }
    for (const std::string& id : old) pruned += connection.drop(id);
    transaction.commit();
    found = old.size();
  }
  return pruned;
}

void SqliteSessionCatalog::forget(const SessionId& id) {
  auto guard = connection_.lock();
  Transaction transaction((*guard)->database);
  (*guard)->drop(id.text());
  transaction.commit();
}

std::uint64_t SqliteSessionCatalog::denied_calls(const SessionId& id) const {
  auto guard = connection_.lock();
  auto run = (*guard)->sum_denials.run(id.text());
  return run.next() ? static_cast<std::uint64_t>(run.integer(0)) : 0;
}

std::vector<NumberedTransition> SqliteSessionCatalog::transitions_after(std::int64_t number, std::size_t limit) const {
  auto guard = connection_.lock();
  auto run = (*guard)->read_transitions.run(number, static_cast<std::int64_t>(limit));
  std::vector<NumberedTransition> found;
  while (run.next()) {
    const auto id = SessionId::parse(run.bytes(1));
    const auto to = session::state_from_name(run.bytes(5));
    if (!id || !to) throw (*guard)->damaged_history(run.bytes(1), run.bytes(5));
    found.push_back({run.integer(0), *id,
                     {{run.integer(2), static_cast<std::uint32_t>(run.integer(3))},
                      run.is_null(4) ? std::nullopt : session::state_from_name(run.bytes(4)), *to, run.bytes(6),
                      run.bytes(7)}});
  }
  return found;
}

std::vector<NumberedDenial> SqliteSessionCatalog::denials_after(std::int64_t number, std::size_t limit) const {
  auto guard = connection_.lock();
  auto run = (*guard)->read_denied.run(number, static_cast<std::int64_t>(limit));
  std::vector<NumberedDenial> found;
  while (run.next()) {
    const auto id = SessionId::parse(run.bytes(1));
    if (!id) throw (*guard)->damaged_history(run.bytes(1), "denial");
    const Timestamp last{run.integer(6), static_cast<std::uint32_t>(run.integer(7))};
    found.push_back({run.integer(0), *id,
                     {run.bytes(2), run.bytes(3), run.bytes(4), static_cast<std::uint64_t>(run.integer(5)), last,
                      last}});
  }
  return found;
}

CatalogNumbers SqliteSessionCatalog::numbers() const {
  auto guard = connection_.lock();
  auto run = (*guard)->read_numbers.run();
  return run.next() ? CatalogNumbers{run.integer(0), run.integer(1)} : CatalogNumbers{};
}

std::vector<Transition> SqliteSessionCatalog::history(const SessionId& id) const {
  auto guard = connection_.lock();
  auto run = (*guard)->read_history.run(id.text());
  std::vector<Transition> transitions;
  while (run.next()) {
    const auto state_at = [&](int column) { return session::state_from_name(run.bytes(column)); };
    const std::optional<State> to = state_at(3);
    if (!to) throw (*guard)->damaged_history(id.text(), run.bytes(3));
    transitions.push_back({{run.integer(0), static_cast<std::uint32_t>(run.integer(1))},
                           run.is_null(2) ? std::nullopt : state_at(2), *to, run.bytes(4), run.bytes(5)});
  }
  return transitions;
}

}  // namespace escrow::storage
