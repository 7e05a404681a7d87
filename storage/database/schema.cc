#include "storage/database/schema.h"

#include <array>
#include <chrono>
#include <string>
#include <thread>

#include "storage/disk/durable_file.h"
#include "storage/disk/file_lookup.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::Error;

// Paths and other names of any bytes are BLOBs; lists of them are joined with a NUL after each.
constexpr std::array<const char*, 11> kCatalogMigrations = {R"(
  CREATE TABLE session (
    id TEXT PRIMARY KEY NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    branch BLOB NOT NULL,
    prefix BLOB NOT NULL,
    committer TEXT NOT NULL, issuer TEXT NOT NULL, source TEXT NOT NULL, image TEXT NOT NULL,
    trigger_name TEXT NOT NULL, trigger_id TEXT NOT NULL,
    uid INTEGER NOT NULL, gid INTEGER NOT NULL, umask INTEGER NOT NULL,
    read_only INTEGER NOT NULL, ephemeral INTEGER NOT NULL, keep_on_failure INTEGER NOT NULL,
    excludes BLOB NOT NULL,
    base TEXT, "commit" TEXT, swap_from TEXT, swap_to TEXT,
    exit_code INTEGER,
    message BLOB NOT NULL,
    mountpoint BLOB NOT NULL,
    last_error TEXT NOT NULL,
    conflicts BLOB NOT NULL,
    created_s INTEGER NOT NULL, created_ns INTEGER NOT NULL,
    changed_s INTEGER NOT NULL, changed_ns INTEGER NOT NULL
  ) WITHOUT ROWID;
  CREATE TABLE history (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    session TEXT NOT NULL,
    time_s INTEGER NOT NULL, time_ns INTEGER NOT NULL,
    from_state TEXT, to_state TEXT NOT NULL,
    who TEXT NOT NULL, why TEXT NOT NULL
  );
  CREATE INDEX history_by_session ON history (session);
)",
                                                              R"(
  ALTER TABLE session ADD COLUMN policies BLOB NOT NULL DEFAULT x'';
  ALTER TABLE session ADD COLUMN contained_symlinks INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE session ADD COLUMN require_approval INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE session ADD COLUMN approval_expires_s INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE session ADD COLUMN command BLOB NOT NULL DEFAULT x'';
  ALTER TABLE session ADD COLUMN result TEXT;
  ALTER TABLE session ADD COLUMN expires_s INTEGER;
  ALTER TABLE session ADD COLUMN expires_ns INTEGER;
  ALTER TABLE session ADD COLUMN reviewer TEXT NOT NULL DEFAULT '';
  ALTER TABLE session ADD COLUMN review_comment TEXT NOT NULL DEFAULT '';
  ALTER TABLE session ADD COLUMN counts_added INTEGER;
  ALTER TABLE session ADD COLUMN counts_modified INTEGER;
  ALTER TABLE session ADD COLUMN counts_deleted INTEGER;
  CREATE TABLE denial (
    session TEXT NOT NULL, operation TEXT NOT NULL, path BLOB NOT NULL, rule TEXT NOT NULL,
    count INTEGER NOT NULL,
    first_s INTEGER NOT NULL, first_ns INTEGER NOT NULL,
    last_s INTEGER NOT NULL, last_ns INTEGER NOT NULL,
    PRIMARY KEY (session, operation, path, rule)
  ) WITHOUT ROWID;
)",
                                                              R"(
  ALTER TABLE session ADD COLUMN limit_bytes INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE session ADD COLUMN limit_files INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE denial ADD COLUMN number INTEGER NOT NULL DEFAULT 0;
  CREATE INDEX denial_by_number ON denial (number);
  CREATE TABLE denial_counter (last INTEGER NOT NULL);
  INSERT INTO denial_counter VALUES (0);
)",
                                                              R"(
  ALTER TABLE session ADD COLUMN updating_to TEXT;
)",
                                                              // A host of an older Escrow may go on meanwhile: its
                                                              // REPLACE is an INSERT that fires no DELETE trigger.
                                                              R"(
  CREATE INDEX session_unended ON session (created_s, created_ns, id)
    WHERE state NOT IN ('committed', 'commit_failed', 'rolled_back');
  CREATE INDEX session_by_age ON session (created_s, created_ns, id);
  CREATE INDEX session_by_state ON session (state, created_s, created_ns, id);
  CREATE INDEX session_by_issuer ON session (issuer, created_s, created_ns, id);
  CREATE INDEX session_by_issuer_and_state ON session (issuer, state, created_s, created_ns, id);
  CREATE INDEX session_by_change ON session (changed_s, changed_ns, created_s, created_ns, id);
  CREATE TABLE tally (name TEXT PRIMARY KEY NOT NULL, value INTEGER NOT NULL) WITHOUT ROWID;
  INSERT INTO tally SELECT state, count(*) FROM session GROUP BY state;
  INSERT OR IGNORE INTO tally VALUES ('open', 0), ('awaiting_approval', 0), ('committing', 0), ('committed', 0),
    ('commit_failed', 0), ('rolled_back', 0);
  INSERT INTO tally SELECT 'denied calls', coalesce(sum(count), 0) FROM denial;
  CREATE TRIGGER session_added BEFORE INSERT ON session BEGIN
    UPDATE tally SET value = value - 1 WHERE name = (SELECT state FROM session WHERE id = NEW.id);
    UPDATE tally SET value = value + 1 WHERE name = NEW.state;
  END;
  CREATE TRIGGER session_moved AFTER UPDATE OF state ON session WHEN OLD.state <> NEW.state BEGIN
    UPDATE tally SET value = value - 1 WHERE name = OLD.state;
    UPDATE tally SET value = value + 1 WHERE name = NEW.state;
  END;
  CREATE TRIGGER session_forgotten AFTER DELETE ON session BEGIN
    UPDATE tally SET value = value - 1 WHERE name = OLD.state;
  END;
  CREATE TRIGGER denial_added AFTER INSERT ON denial BEGIN
    UPDATE tally SET value = value + NEW.count WHERE name = 'denied calls';
  END;
  CREATE TRIGGER denial_counted AFTER UPDATE OF count ON denial BEGIN
    UPDATE tally SET value = value + NEW.count - OLD.count WHERE name = 'denied calls';
  END;
  CREATE TRIGGER denial_forgotten AFTER DELETE ON denial BEGIN
    UPDATE tally SET value = value - OLD.count WHERE name = 'denied calls';
  END;
)",
                                                              R"(
  ALTER TABLE session ADD COLUMN include_ignored INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE session ADD COLUMN author_name BLOB NOT NULL DEFAULT x'';
  ALTER TABLE session ADD COLUMN author_email BLOB NOT NULL DEFAULT x'';
)",
                                                              R"(
  ALTER TABLE session ADD COLUMN updating_keeps INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE session ADD COLUMN unresolved BLOB NOT NULL DEFAULT x'';
  ALTER TABLE session ADD COLUMN resumes TEXT;
  CREATE INDEX session_by_resumed ON session (resumes) WHERE resumes IS NOT NULL;
)",
                                                              R"(
  ALTER TABLE session ADD COLUMN base_time_s INTEGER;
  ALTER TABLE session ADD COLUMN base_time_ns INTEGER;
)",
                                                              R"(
  ALTER TABLE session ADD COLUMN isolation TEXT NOT NULL DEFAULT 'snapshot';
  ALTER TABLE session ADD COLUMN reads TEXT NOT NULL DEFAULT '';
  CREATE TABLE session_reads (session TEXT PRIMARY KEY NOT NULL, reads BLOB NOT NULL) WITHOUT ROWID;
)",
                                                              // Sessions that an older Escrow opened go on with
                                                              // pointers, of which their journals have the sizes.
                                                              R"(
  ALTER TABLE session ADD COLUMN shows_lfs_pointers INTEGER NOT NULL DEFAULT 1;
)",
                                                              R"(
  ALTER TABLE session ADD COLUMN parent TEXT;
  CREATE INDEX session_by_parent ON session (parent) WHERE parent IS NOT NULL;
)"};

// A savepoint or a fork is a new row of `layer`; nothing is copied.
constexpr std::array<const char*, 4> kSessionMigrations = {R"(
  CREATE TABLE layer (
    id INTEGER PRIMARY KEY NOT NULL,
    parent INTEGER,
    sealed INTEGER NOT NULL,
    name TEXT NOT NULL,
    created INTEGER NOT NULL
  );
  INSERT INTO layer VALUES (1, NULL, 0, '', CAST(strftime('%s', 'now') AS INTEGER));
  CREATE TABLE node (
    layer INTEGER NOT NULL, node INTEGER NOT NULL,
    mode INTEGER NOT NULL, uid INTEGER NOT NULL, gid INTEGER NOT NULL, rdev INTEGER NOT NULL,
    accessed_s INTEGER NOT NULL, accessed_ns INTEGER NOT NULL,
    modified_s INTEGER NOT NULL, modified_ns INTEGER NOT NULL,
    changed_s INTEGER NOT NULL, changed_ns INTEGER NOT NULL,
    base BLOB, base_mode INTEGER NOT NULL, base_length INTEGER NOT NULL,
    staging INTEGER NOT NULL, block_map BLOB, target BLOB, xattrs BLOB,
    PRIMARY KEY (layer, node)
  ) WITHOUT ROWID;
  CREATE TABLE edge (
    layer INTEGER NOT NULL, directory INTEGER NOT NULL, name BLOB NOT NULL,
    node INTEGER NOT NULL, cookie INTEGER NOT NULL,
    PRIMARY KEY (layer, directory, name)
  ) WITHOUT ROWID;
  CREATE TABLE block (
    layer INTEGER NOT NULL, first INTEGER NOT NULL,
    directory INTEGER NOT NULL, count INTEGER NOT NULL, tree BLOB NOT NULL,
    PRIMARY KEY (layer, first)
  ) WITHOUT ROWID;
  CREATE TABLE counter (name TEXT PRIMARY KEY NOT NULL, value INTEGER NOT NULL) WITHOUT ROWID;
)", R"(
  ALTER TABLE node ADD COLUMN era INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE node ADD COLUMN durable BLOB;
)", R"(
  ALTER TABLE node ADD COLUMN sealed BLOB;
  ALTER TABLE node ADD COLUMN durable_sealed BLOB;
  ALTER TABLE layer ADD COLUMN next_staging INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE layer ADD COLUMN context BLOB NOT NULL DEFAULT x'';
)", R"(
  ALTER TABLE node ADD COLUMN times BLOB;
)"};

// Times are nanoseconds since the epoch. A row of `change` says of the entry `name` of `directory` (the root of the
// repository: both empty), from `at` on and until a later row: it was modified then (NULL: when its directory was), and
// nothing below it is older than `oldest_below` (NULL: than what is said of its directory). -1: it is gone.
constexpr std::array<const char*, 2> kTimesMigrations = {R"(
  CREATE TABLE branch (
    id INTEGER PRIMARY KEY NOT NULL, name BLOB NOT NULL UNIQUE, seen TEXT NOT NULL, newest INTEGER NOT NULL
  );
  CREATE TABLE change (
    branch INTEGER NOT NULL, directory BLOB NOT NULL, name BLOB NOT NULL, at INTEGER NOT NULL,
    modified INTEGER, oldest_below INTEGER,
    PRIMARY KEY (branch, directory, name, at)
  ) WITHOUT ROWID;
)", R"(
  CREATE INDEX gone ON change (branch, at) WHERE modified = -1;
)"};

constexpr std::int32_t kCatalogId = 0x65736363;  // "escc"
constexpr std::int32_t kSessionId = 0x65736373;  // "escs"
constexpr std::int32_t kTimesId = 0x65736374;    // "esct"

// Whether the database needs nothing more.
bool is_current(Database& database, const Schema& schema, std::int64_t& version) {
  version = database.integer("PRAGMA user_version");
  const std::int64_t newest = static_cast<std::int64_t>(schema.migrations.size());
  if (version > newest)
    throw Error(Errc::newer_state, "the " + std::string(schema.title) + " " + database.path() + " has version " +
                                       std::to_string(version) + ", written by a later Escrow; this one knows up to " +
                                       std::to_string(newest) + ": use that version, or a later one");
  const std::int64_t id = database.integer("PRAGMA application_id");
  if (version > 0 ? id != schema.application_id : id != 0 || database.integer("SELECT count(*) FROM sqlite_schema") > 0)
    throw Error(Errc::damaged_repository, database.path() + " is not an Escrow " + schema.title +
                                              "; move the file away if it is not yours");
  return version == newest;
}

}  // namespace

const Schema& catalog_schema() {
  static const Schema schema{"session catalog", kCatalogId, kCatalogMigrations};
  return schema;
}

const Schema& session_schema() {
  static const Schema schema{"session journal", kSessionId, kSessionMigrations};
  return schema;
}

const Schema& times_schema() {
  static const Schema schema{"index of times", kTimesId, kTimesMigrations};
  return schema;
}

namespace {

// SQLite syncs the directory of the log at each connection's first commit, but passes over an error of it. So whoever
// makes the log sees to its name, and from then on it stays when the last connection closes.
Database try_open_durable(const std::string& path, const Schema& schema) {
  const bool has_log = is_there(path + "-wal");
  Database database(path, {.create = true});
  database.execute("PRAGMA synchronous = FULL");
  if (database.text("PRAGMA journal_mode") != "wal") database.execute("PRAGMA journal_mode = WAL");
  migrate(database, schema);
  if (!has_log) sync_directory(parent_of(path));
  database.keep_log();
  return database;
}

}  // namespace

Database open_durable(const std::string& path, const Schema& schema) {
  // Two processes that create the database at once: SQLite's busy handler does not wait for a change of journal mode.
  for (int attempt = 0;; ++attempt) {
    try {
      return try_open_durable(path, schema);
    } catch (const Error& error) {
      if (error.code() != Errc::busy || attempt == 1000) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void migrate(Database& database, const Schema& schema) {
  const auto newest = static_cast<std::int64_t>(schema.migrations.size());
  if (database.integer("PRAGMA user_version") == newest &&
      database.integer("PRAGMA application_id") == schema.application_id)
    return;
  // Only in here do the values belong together: another process may be making the database at this moment.
  Transaction transaction(database);
  std::int64_t version = 0;
  if (is_current(database, schema, version)) return;
  for (auto step = static_cast<std::size_t>(version); step < schema.migrations.size(); ++step)
    database.execute(schema.migrations[step]);
  database.execute(("PRAGMA user_version = " + std::to_string(schema.migrations.size())).c_str());
  database.execute(("PRAGMA application_id = " + std::to_string(schema.application_id)).c_str());
  transaction.commit();
}

}  // namespace escrow::storage
