#include "storage/database/volume_store.h"

#include <array>
#include <utility>

#include "storage/database/schema.h"
#include "storage/database/sqlite.h"

namespace escrow::storage {

using session::Errc;
using session::Error;
using session::SessionId;

namespace {

// Options are names and values, a NUL after each.
constexpr std::array<const char*, 3> kVolumeMigrations = {R"(
  CREATE TABLE volume (
    name TEXT PRIMARY KEY NOT NULL, options BLOB NOT NULL, created_s INTEGER NOT NULL
  ) WITHOUT ROWID;
  CREATE TABLE mount (
    session TEXT PRIMARY KEY NOT NULL,
    volume TEXT NOT NULL, repository TEXT NOT NULL, mount_id TEXT NOT NULL, path BLOB NOT NULL,
    created_ns INTEGER NOT NULL,
    runtime BLOB NOT NULL, container TEXT NOT NULL, image TEXT NOT NULL, shared_with TEXT NOT NULL,
    uses INTEGER NOT NULL, was_started INTEGER NOT NULL, stop_signal INTEGER NOT NULL,
    ran_out_of_memory INTEGER NOT NULL, hides_stops INTEGER NOT NULL, is_unmounted INTEGER NOT NULL,
    ending TEXT NOT NULL, exit_code INTEGER, keep_result INTEGER NOT NULL
  ) WITHOUT ROWID;
)",
                                                          R"(
  CREATE INDEX mount_by_volume ON mount (volume, created_ns, session);
  CREATE INDEX mount_by_age ON mount (created_ns, session);
)",
                                                          R"(
  ALTER TABLE mount ADD COLUMN has_gap INTEGER NOT NULL DEFAULT 0;
  CREATE TABLE anchor (
    runtime BLOB PRIMARY KEY NOT NULL, time_ns INTEGER NOT NULL,
    type TEXT NOT NULL, action TEXT NOT NULL, subject TEXT NOT NULL
  ) WITHOUT ROWID;
)"};

constexpr std::int32_t kVolumeStoreId = 0x65736376;  // "escv"
constexpr std::string_view kMount =
    "SELECT session, volume, repository, mount_id, path, created_ns, runtime, container, image, shared_with, "
    "uses, was_started, stop_signal, ran_out_of_memory, hides_stops, is_unmounted, ending, exit_code, "
    "keep_result, has_gap FROM mount ";

Database open_volume_database(const std::string& path) {
  static const Schema schema{"database of volumes", kVolumeStoreId, kVolumeMigrations};
  return open_durable(path, schema);
}

std::string join_options(const std::map<std::string, std::string>& options) {
  std::string joined;
  for (const auto& [name, value] : options) joined += name + '\0' + value + '\0';
  return joined;
}

std::map<std::string, std::string> split_options(const std::string& joined) {
  std::map<std::string, std::string> options;
  for (std::size_t start = 0; start < joined.size();) {
    const std::size_t middle = std::min(joined.find('\0', start), joined.size() - 1);
    const std::size_t end = std::min(joined.find('\0', middle + 1), joined.size());
    options[joined.substr(start, middle - start)] = joined.substr(middle + 1, end - middle - 1);
    start = end + 1;
  }
  return options;
}

VolumeStore::Mount mount_of(const Database& database, const Statement::Run& row) {
  const std::optional<SessionId> id = SessionId::parse(row.bytes(0));
  const std::optional<session::Reason> ending = session::reason_from_name(row.bytes(16));
  if (!id || !ending) {
    throw Error(Errc::damaged_repository, "the database " + database.path() + " is damaged: it has a mount '" +
                                              row.bytes(0) + "' that ended by '" + row.bytes(16) + "'");
  }
  return {.session = *id,
          .volume = row.bytes(1),
          .repository = row.bytes(2),
          .mount_id = row.bytes(3),
          .path = row.bytes(4),
          .created_ns = row.integer(5),
          .runtime = row.bytes(6),
          .container = row.bytes(7),
          .image = row.bytes(8),
          .shared_with = row.bytes(9),
          .uses = static_cast<int>(row.integer(10)),
          .was_started = row.integer(11) != 0,
          .stop_signal = static_cast<int>(row.integer(12)),
          .ran_out_of_memory = row.integer(13) != 0,
          .hides_stops = row.integer(14) != 0,
          .is_unmounted = row.integer(15) != 0,
          .ending = *ending,
          .exit_code = row.is_null(17) ? std::nullopt : std::optional(static_cast<int>(row.integer(17))),
          .keep_result = row.integer(18) != 0,
          .has_gap = row.integer(19) != 0};
}

}  // namespace

struct VolumeStore::Connection {
  explicit Connection(const std::string& path) : database(open_volume_database(path)) {}

  std::vector<Volume> read_volumes(Statement::Run row) const {
    std::vector<Volume> found;
    while (row.next()) {
      found.push_back({.name = row.bytes(0), .options = split_options(row.bytes(1)), .created_s = row.integer(2)});
    }
    return found;
  }
  std::vector<Mount> read_mounts(Statement::Run row) const {
    std::vector<Mount> found;
    while (row.next()) found.push_back(mount_of(database, row));
    return found;
  }

  Database database;
  Statement add{database, "INSERT INTO volume (name, options, created_s) VALUES (?, ?, ?)"};
  Statement find{database, "SELECT name, options, created_s FROM volume WHERE name = ?"};
  Statement list{database, "SELECT name, options, created_s FROM volume ORDER BY name"};
  Statement remove{database, "DELETE FROM volume WHERE name = ?"};
  Statement put{database, "REPLACE INTO mount VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"};
  Statement mounts{database, std::string(kMount) + "ORDER BY created_ns, session"};
  Statement mounts_of{database, std::string(kMount) + "WHERE volume = ? ORDER BY created_ns, session"};
  Statement forget{database, "DELETE FROM mount WHERE session = ?"};
  Statement set_anchor{database, "REPLACE INTO anchor VALUES (?, ?, ?, ?, ?)"};
  Statement forget_anchor{database, "DELETE FROM anchor WHERE runtime = ?"};
  Statement anchor{database, "SELECT time_ns, type, action, subject FROM anchor WHERE runtime = ?"};
};

VolumeStore::VolumeStore(const std::string& database_path)
    : connection_(std::make_unique<Connection>(database_path)) {}

VolumeStore::~VolumeStore() = default;

void VolumeStore::add(const Volume& volume) {
  (*connection_.lock())->add.execute(volume.name, Bytes{join_options(volume.options)}, volume.created_s);
}

std::optional<VolumeStore::Volume> VolumeStore::find(const std::string& name) const {
  auto guard = connection_.lock();
  std::vector<Volume> found = (*guard)->read_volumes((*guard)->find.run(name));
  return found.empty() ? std::nullopt : std::optional(std::move(found.front()));
}

std::vector<VolumeStore::Volume> VolumeStore::list() const {
  auto guard = connection_.lock();
  return (*guard)->read_volumes((*guard)->list.run());
}

void VolumeStore::remove(const std::string& name) { (*connection_.lock())->remove.execute(name); }

void VolumeStore::put(const Mount& mount) {
  (*connection_.lock())
      ->put.execute(mount.session.text(), mount.volume, mount.repository, mount.mount_id, Bytes{mount.path},
                    mount.created_ns, Bytes{mount.runtime}, mount.container, mount.image, mount.shared_with,
                    mount.uses, mount.was_started, mount.stop_signal, mount.ran_out_of_memory, mount.hides_stops,
                    mount.is_unmounted, session::name_of(mount.ending), mount.exit_code, mount.keep_result,
                    mount.has_gap);
}

std::vector<VolumeStore::Mount> VolumeStore::mounts() const {
  auto guard = connection_.lock();
  return (*guard)->read_mounts((*guard)->mounts.run());
}

std::vector<VolumeStore::Mount> VolumeStore::mounts_of(const std::string& volume) const {
  auto guard = connection_.lock();
  return (*guard)->read_mounts((*guard)->mounts_of.run(volume));
}

void VolumeStore::forget(const SessionId& session) { (*connection_.lock())->forget.execute(session.text()); }

void VolumeStore::set_anchor(const std::string& runtime, const std::optional<Anchor>& anchor) {
  auto guard = connection_.lock();
  if (!anchor) return (*guard)->forget_anchor.execute(Bytes{runtime});
  (*guard)->set_anchor.execute(Bytes{runtime}, anchor->time_ns, anchor->type, anchor->action, anchor->subject);
}

std::optional<VolumeStore::Anchor> VolumeStore::anchor(const std::string& runtime) const {
  auto guard = connection_.lock();
  Statement::Run row = (*guard)->anchor.run(Bytes{runtime});
  if (!row.next()) return std::nullopt;
  return Anchor{.time_ns = row.integer(0), .type = row.bytes(1), .action = row.bytes(2), .subject = row.bytes(3)};
}

}  // namespace escrow::storage
