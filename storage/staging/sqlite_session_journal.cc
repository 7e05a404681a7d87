#include "storage/staging/sqlite_session_journal.h"

#include <utility>

#include "storage/database/schema.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/file_lookup.h"
#include "storage/staging/journal_codec.h"

namespace escrow::storage {
namespace {

using session::BlockRow;
using session::EdgeRow;
using session::Errc;
using session::Error;
using session::JournalBatch;
using session::JournalState;
using session::NodeId;
using session::NodeRow;
using session::StagingId;

constexpr const char* kAppended = "appended";
// When the log is this long it is copied into the database.
constexpr int kLogPages = 4000;

constexpr const char* kReadNodes =
    "SELECT node, mode, uid, gid, rdev, accessed_s, accessed_ns, modified_s, modified_ns, changed_s, changed_ns, base, "
    "base_mode, base_length, staging, block_map, target, xattrs, era, durable, times FROM node WHERE layer = ?1 "
    "ORDER BY node";

std::string_view raw(const session::ObjectId& id) {
  return {reinterpret_cast<const char*>(id.bytes().data()), session::ObjectId::kSize};
}

std::optional<Bytes> unless_empty(std::string_view bytes) {
  return bytes.empty() ? std::nullopt : std::optional(Bytes{bytes});
}

}  // namespace

struct SqliteSessionJournal::Connection {
  explicit Connection(Database opened) : database(std::move(opened)) {}

  // Without SQLite's own syncs until the schema of a fresh one stands: the first barrier syncs file and directories.
  static std::unique_ptr<Connection> open(const std::string& path) {
    Database database(path, {.create = true, .exclusive = true});
    const bool is_fresh = database.integer("PRAGMA user_version") == 0;
    database.execute(is_fresh ? "PRAGMA synchronous = OFF" : "PRAGMA synchronous = NORMAL");
    // A fresh one has nothing that a rollback journal could bring back.
    if (database.text("PRAGMA journal_mode") != "wal") database.execute("PRAGMA journal_mode = MEMORY");
    if (database.text("PRAGMA journal_mode = WAL") != "wal")
      throw Error(Errc::input_output, "cannot put the database " + path + " into WAL mode");
    migrate(database, session_schema());
    database.execute("PRAGMA synchronous = NORMAL");
    database.checkpoint_by_hand();
    return std::make_unique<Connection>(std::move(database));
  }

  void put(session::LayerId layer, const NodeRow& row) {
    put_node.execute(layer.value, row.node.value, row.mode, row.uid, row.gid, row.rdev, row.accessed.seconds,
                     row.accessed.nanoseconds, row.modified.seconds, row.modified.nanoseconds, row.changed.seconds,
                     row.changed.nanoseconds, row.base.is_null() ? std::nullopt : std::optional(Bytes{raw(row.base)}),
                     row.base_mode, row.base_length, row.staging.value, unless_empty(row.block_map),
                     unless_empty(row.target), unless_empty(encode_xattrs(row.xattrs)), row.era,
                     unless_empty(encode_durable(row.durable)), unless_empty(encode_times(row.times)));
  }

  // How many batches it has.
  std::uint64_t appended() {
    Statement counter(database, "SELECT value FROM counter WHERE name = ?1");
    auto row = counter.run(kAppended);
    return row.next() ? unsigned_at(row, 0) : 0;
  }

  Database database;
  Statement put_node{database,
                     "REPLACE INTO node (layer, node, mode, uid, gid, rdev, accessed_s, accessed_ns, modified_s, "
                     "modified_ns, changed_s, changed_ns, base, base_mode, base_length, staging, block_map, target, "
                     "xattrs, era, durable, times) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"};
  Statement drop_node{database, "DELETE FROM node WHERE layer = ? AND node = ?"};
  Statement put_edge{database, "REPLACE INTO edge (layer, directory, name, node, cookie) VALUES (?,?,?,?,?)"};
  Statement drop_edge{database, "DELETE FROM edge WHERE layer = ? AND directory = ? AND name = ?"};
  Statement put_block{database, "REPLACE INTO block (layer, first, directory, count, tree) VALUES (?,?,?,?,?)"};
  Statement put_counter{database, "REPLACE INTO counter (name, value) VALUES (?, ?)"};
  Statement count_barrier{database,
                          "INSERT INTO counter (name, value) VALUES ('barriers', 1) "
                          "ON CONFLICT (name) DO UPDATE SET value = value + 1"};
};

SqliteSessionJournal::SqliteSessionJournal(std::string session_directory) : directory_(std::move(session_directory)) {}

// SQLite would copy the log into the database without looking at its checksums.
SqliteSessionJournal::~SqliteSessionJournal() {
  if (doubtful_ && connection_) connection_->database.forget_checkpoint_on_close();
}

SqliteSessionJournal::Connection& SqliteSessionJournal::connection() {
  if (!connection_) {
    connection_ = Connection::open(directory_ + "/session.db");
    pending_ = true;  // what an earlier process appended may never have been synced
    if (!doubtful_) appended_ = connection_->appended();
  }
  return *connection_;
}

void SqliteSessionJournal::write_anew() {
  if (connection_) connection_->database.forget_checkpoint_on_close();
  connection_.reset();
  Connection& open = connection();  // reads the log, up to the first frame that is not what was written
  if (open.appended() != appended_)
    throw Error(Errc::input_output, "the disk lost what was written to " + open.database.path() +
                                        "; commit the session, or unmount it and look at what is left");
  if (const int result = open.database.checkpoint(SQLITE_CHECKPOINT_TRUNCATE); result != SQLITE_OK)
    throw open.database.error(result);
  doubtful_ = false;
}

// What cannot be done now is done the next time.
void SqliteSessionJournal::keep_log_short() {
  Database& database = connection_->database;
  if (database.log_pages() < kLogPages) return;
  if (database.checkpoint(SQLITE_CHECKPOINT_PASSIVE) != SQLITE_OK && database.has_failed_to_sync()) doubtful_ = true;
}

JournalState SqliteSessionJournal::load() {
  JournalState state;
  if (abandoned_ || (!connection_ && !is_there(directory_ + "/session.db"))) return state;
  Database& database = connection().database;
  const std::uint64_t layer = session::kFirstLayer.value;

  Statement nodes(database, kReadNodes);
  for (auto row = nodes.run(layer); row.next();) state.nodes.push_back(decode_node(database.path(), row));

  Statement edges(database, "SELECT directory, name, node, cookie FROM edge WHERE layer = ?1 ORDER BY directory, name");
  for (auto row = edges.run(layer); row.next();)
    state.edges.push_back(
        {NodeId{unsigned_at(row, 0)}, row.bytes(1), NodeId{unsigned_at(row, 2)}, unsigned_at(row, 3)});

  Statement blocks(database, "SELECT directory, first, count, tree FROM block WHERE layer = ?1 ORDER BY first");
  for (auto row = blocks.run(layer); row.next();) {
    const NodeId first{unsigned_at(row, 1)};
    state.blocks.push_back({NodeId{unsigned_at(row, 0)}, first, unsigned_at(row, 2),
                            decode_id(database.path(), row.bytes(3), first)});
  }

  Statement counters(database, "SELECT name, value FROM counter");
  for (auto row = counters.run(); row.next();) {
    if (row.bytes(0) == "next_node") state.next_node = NodeId{unsigned_at(row, 1)};
    if (row.bytes(0) == "next_staging") state.next_staging = StagingId{unsigned_at(row, 1)};
  }
  return state;
}

void SqliteSessionJournal::append(const JournalBatch& batch) {
  if (abandoned_) return;
  if (doubtful_) write_anew();
  Connection& open = connection();
  const std::uint64_t layer = batch.layer.value;
  Transaction transaction(open.database);
  for (const NodeId node : batch.dropped_nodes) open.drop_node.execute(layer, node.value);
  for (const auto& [directory, name] : batch.dropped_edges)
    open.drop_edge.execute(layer, directory.value, Bytes{name});
  for (const NodeRow& row : batch.nodes) open.put(batch.layer, row);
  for (const EdgeRow& row : batch.edges)
    open.put_edge.execute(layer, row.directory.value, Bytes{row.name}, row.node.value, row.cookie);
  for (const BlockRow& row : batch.blocks)
    open.put_block.execute(layer, row.first.value, row.directory.value, row.count, Bytes{raw(row.tree)});
  if (batch.next_node) open.put_counter.execute("next_node", batch.next_node.value);
  if (batch.next_staging) open.put_counter.execute("next_staging", batch.next_staging.value);
  open.put_counter.execute(kAppended, appended_ + 1);
  transaction.commit();
  ++appended_;
  pending_ = true;
  keep_log_short();
}

void SqliteSessionJournal::barrier() {
  if (abandoned_) return;
  if (doubtful_) write_anew();
  if (!connection_) return;
  if (pending_) {
    // A commit with FULL syncs the log, and with it every commit before. It has to change something: SQLite writes
    // no frame, and so syncs nothing, for a row that is as it was.
    Database& database = connection_->database;
    database.execute("PRAGMA synchronous = FULL");
    try {
      connection_->count_barrier.execute();
    } catch (...) {
      doubtful_ = doubtful_ || database.has_failed_to_sync();
      database.execute("PRAGMA synchronous = NORMAL");
      throw;
    }
    database.execute("PRAGMA synchronous = NORMAL");
    pending_ = false;
  }
  if (!directories_synced_) {
    try {
      connection_->database.sync_main_file();
    } catch (...) {
      doubtful_ = true;
      throw;
    }
    sync_directory(directory_);
    sync_directory(parent_of(directory_));
    directories_synced_ = true;
  }
}

void SqliteSessionJournal::abandon() noexcept {
  abandoned_ = true;
  if (connection_) connection_->database.forget_checkpoint_on_close();
  connection_.reset();
}

}  // namespace escrow::storage
