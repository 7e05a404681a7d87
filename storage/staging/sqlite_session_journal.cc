#include "storage/staging/sqlite_session_journal.h"

#include <map>
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
using session::Savepoint;
using session::StagingId;

constexpr const char* kAppended = "appended";
// When the log is this long it is copied into the database.
constexpr int kLogPages = 4000;

constexpr const char* kReadNodes =
    "SELECT node, mode, uid, gid, rdev, accessed_s, accessed_ns, modified_s, modified_ns, changed_s, changed_ns, base, "
    "base_mode, base_length, staging, block_map, target, xattrs, era, durable, sealed, durable_sealed, times "
    "FROM node WHERE layer = ?1 ORDER BY node";
constexpr const char* kInSealedLayers = " WHERE EXISTS (SELECT 1 FROM layer CROSS JOIN ";

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
                     unless_empty(encode_durable(row.durable)), unless_empty(row.sealed),
                     unless_empty(row.durable.sealed), unless_empty(encode_times(row.times)));
  }

  void drop(session::LayerId layer, NodeId node) {
    drop_node.execute(layer.value, node.value);
    if (has_sealed) hide_node.execute(layer.value, node.value);
  }
  void drop(session::LayerId layer, NodeId directory, const std::string& name) {
    drop_edge.execute(layer.value, directory.value, Bytes{name});
    if (has_sealed) hide_edge.execute(layer.value, directory.value, Bytes{name});
  }

  // Which layers there are, from the lowest up; the last one is written to.
  void read_layers() {
    const auto top = static_cast<std::uint64_t>(database.integer("SELECT id FROM layer WHERE sealed = 0"));
    live = session::LayerId{top};
    has_sealed = database.integer("SELECT count(*) FROM layer WHERE sealed = 1") > 0;
  }
  std::vector<Savepoint> savepoints() {
    std::vector<Savepoint> all;
    Statement statement(database,
                        "SELECT id, name, created, next_staging, context FROM layer WHERE sealed = 1 ORDER BY id");
    for (auto row = statement.run(); row.next();)
      all.push_back({session::LayerId{unsigned_at(row, 0)}, row.bytes(1), {row.integer(2), 0},
                     StagingId{unsigned_at(row, 3)}, row.bytes(4)});
    return all;
  }

  void seal(const Savepoint& as) {
    Statement seal(database, "UPDATE layer SET sealed = 1, name = ?2, created = ?3, next_staging = ?4, context = ?5 "
                             "WHERE id = ?1");
    seal.execute(live.value, as.name, as.created.seconds, as.next_staging.value, Bytes{as.context});
    Statement begin(database, "INSERT INTO layer (id, parent, sealed, name, created) VALUES (?1 + 1, ?1, 0, '', ?2)");
    begin.execute(live.value, as.created.seconds);
  }

  // Rows that the layer above has, too, hide those of this one, and go with it.
  void merge_up(session::LayerId layer) {
    Statement above(database, "SELECT id FROM layer WHERE id > ?1 ORDER BY id LIMIT 1");
    std::uint64_t next = 0;
    if (auto row = above.run(layer.value); row.next()) next = unsigned_at(row, 0);
    for (const char* const table : {"node", "edge", "block"}) {
      const std::string name = table;
      Statement(database, "UPDATE OR IGNORE " + name + " SET layer = ?2 WHERE layer = ?1").execute(layer.value, next);
      Statement(database, "DELETE FROM " + name + " WHERE layer = ?1").execute(layer.value);
    }
    Statement(database, "UPDATE layer SET parent = (SELECT parent FROM layer WHERE id = ?1) WHERE id = ?2")
        .execute(layer.value, next);
    Statement(database, "DELETE FROM layer WHERE id = ?1").execute(layer.value);
    if (database.integer("SELECT min(id) FROM layer") != static_cast<std::int64_t>(next)) return;
    // Nothing is left below that it could hide.
    Statement(database, "DELETE FROM node WHERE layer = ?1 AND base_mode = ?2").execute(next, kDroppedNode);
    Statement(database, "DELETE FROM edge WHERE layer = ?1 AND node = 0 AND cookie = ?2").execute(next, kDroppedName);
  }

  // How many batches it has.
  std::uint64_t appended() {
    Statement counter(database, "SELECT value FROM counter WHERE name = ?1");
    auto row = counter.run(kAppended);
    return row.next() ? unsigned_at(row, 0) : 0;
  }

  Database database;
  session::LayerId live;     // as read_layers() found it
  bool has_sealed = false;
  Statement put_node{database,
                     "REPLACE INTO node (layer, node, mode, uid, gid, rdev, accessed_s, accessed_ns, modified_s, "
                     "modified_ns, changed_s, changed_ns, base, base_mode, base_length, staging, block_map, target, "
                     "xattrs, era, durable, sealed, durable_sealed, times) "
                     "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"};
  Statement drop_node{database, "DELETE FROM node WHERE layer = ? AND node = ?"};
  Statement put_edge{database, "REPLACE INTO edge (layer, directory, name, node, cookie) VALUES (?,?,?,?,?)"};
  Statement drop_edge{database, "DELETE FROM edge WHERE layer = ? AND directory = ? AND name = ?"};
  // Only where a layer below has it: what came and went within one layer leaves nothing.
  Statement hide_node{database,
                      "INSERT INTO node (layer, node, mode, uid, gid, rdev, accessed_s, accessed_ns, modified_s, "
                      "modified_ns, changed_s, changed_ns, base_mode, base_length, staging) "
                      "SELECT ?1, ?2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, " +
                          std::to_string(kDroppedNode) + ", 0, 0" + kInSealedLayers +
                          "node WHERE layer.sealed = 1 AND node.layer = layer.id AND node.node = ?2)"};
  Statement hide_edge{database, "INSERT INTO edge (layer, directory, name, node, cookie) SELECT ?1, ?2, ?3, 0, " +
                                    std::to_string(kDroppedName) + kInSealedLayers +
                                    "edge WHERE layer.sealed = 1 AND edge.layer = layer.id AND edge.directory = ?2 "
                                    "AND edge.name = ?3)"};
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
    connection_->read_layers();
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

JournalState SqliteSessionJournal::load(session::LayerId top) {
  JournalState state;
  if (abandoned_ || (!connection_ && !is_there(directory_ + "/session.db"))) return state;
  Database& database = connection().database;
  std::map<NodeId, NodeRow> all_nodes;
  std::map<std::pair<NodeId, std::string>, EdgeRow> all_edges;
  Statement layers(database, "SELECT id FROM layer WHERE ?1 = 0 OR id <= ?1 ORDER BY id");
  for (auto layer = layers.run(top.value); layer.next();) {
    const std::uint64_t id = unsigned_at(layer, 0);
    Statement nodes(database, kReadNodes);
    for (auto row = nodes.run(id); row.next();) {
      NodeRow node = decode_node(database.path(), row);
      if (node.base_mode == kDroppedNode)
        all_nodes.erase(node.node);
      else
        all_nodes.insert_or_assign(all_nodes.end(), node.node, std::move(node));
    }
    Statement edges(database,
                    "SELECT directory, name, node, cookie FROM edge WHERE layer = ?1 ORDER BY directory, name");
    for (auto row = edges.run(id); row.next();) {
      EdgeRow edge{NodeId{unsigned_at(row, 0)}, row.bytes(1), NodeId{unsigned_at(row, 2)}, unsigned_at(row, 3)};
      auto key = std::pair(edge.directory, edge.name);
      if (!edge.node && edge.cookie == kDroppedName)
        all_edges.erase(key);
      else
        all_edges.insert_or_assign(all_edges.end(), std::move(key), std::move(edge));
    }
  }
  state.nodes.reserve(all_nodes.size());
  for (auto& [id, node] : all_nodes) state.nodes.push_back(std::move(node));
  state.edges.reserve(all_edges.size());
  for (auto& [key, edge] : all_edges) state.edges.push_back(std::move(edge));

  Statement blocks(database,
                   "SELECT directory, first, count, tree FROM block WHERE ?1 = 0 OR layer <= ?1 ORDER BY first");
  for (auto row = blocks.run(top.value); row.next();) {
    const NodeId first{unsigned_at(row, 1)};
    state.blocks.push_back({NodeId{unsigned_at(row, 0)}, first, unsigned_at(row, 2),
                            decode_id(database.path(), row.bytes(3), first)});
  }
  state.savepoints = savepoints();

  Statement counters(database, "SELECT name, value FROM counter");
  for (auto row = counters.run(); row.next();) {
    if (row.bytes(0) == "next_node") state.next_node = NodeId{unsigned_at(row, 1)};
    if (row.bytes(0) == "next_staging") state.next_staging = StagingId{unsigned_at(row, 1)};
  }
  return state;
}

std::vector<Savepoint> SqliteSessionJournal::savepoints() {
  if (abandoned_ || (!connection_ && !is_there(directory_ + "/session.db"))) return {};
  return connection().savepoints();
}

std::vector<NodeRow> SqliteSessionJournal::all_nodes() {
  std::vector<NodeRow> all;
  if (abandoned_ || (!connection_ && !is_there(directory_ + "/session.db"))) return all;
  Database& database = connection().database;
  Statement layers(database, "SELECT id FROM layer");
  Statement nodes(database, kReadNodes);
  for (auto layer = layers.run(); layer.next();)
    for (auto row = nodes.run(unsigned_at(layer, 0)); row.next();) {
      NodeRow node = decode_node(database.path(), row);
      if (node.base_mode != kDroppedNode) all.push_back(std::move(node));
    }
  return all;
}

void SqliteSessionJournal::append(const JournalBatch& batch) {
  if (abandoned_) return;
  if (doubtful_) write_anew();
  Connection& open = connection();
  const std::uint64_t layer = open.live.value;
  Transaction transaction(open.database);
  for (const NodeId node : batch.dropped_nodes) open.drop(open.live, node);
  for (const auto& [directory, name] : batch.dropped_edges) open.drop(open.live, directory, name);
  for (const NodeRow& row : batch.nodes) open.put(open.live, row);
  for (const EdgeRow& row : batch.edges)
    open.put_edge.execute(layer, row.directory.value, Bytes{row.name}, row.node.value, row.cookie);
  for (const BlockRow& row : batch.blocks)
    open.put_block.execute(layer, row.first.value, row.directory.value, row.count, Bytes{raw(row.tree)});
  if (batch.next_node) open.put_counter.execute("next_node", batch.next_node.value);
  if (batch.next_staging) open.put_counter.execute("next_staging", batch.next_staging.value);
  if (batch.seals) open.seal(*batch.seals);
  if (batch.drops) open.merge_up(batch.drops);
  open.put_counter.execute(kAppended, appended_ + 1);
  transaction.commit();
  if (batch.seals || batch.drops) open.read_layers();
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

void SqliteSessionJournal::let_go() {
  if (doubtful_ && !abandoned_) write_anew();
  connection_.reset();
}

void SqliteSessionJournal::abandon() noexcept {
  abandoned_ = true;
  if (connection_) connection_->database.forget_checkpoint_on_close();
  connection_.reset();
}

}  // namespace escrow::storage
