#include "storage/repository/state_check.h"

#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <set>

#include "session/base/error.h"
#include "storage/database/schema.h"
#include "storage/database/sqlite.h"
#include "storage/database/sqlite_session_catalog.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/file_lookup.h"
#include "storage/staging/file_session_directories.h"
#include "storage/staging/file_staging_area.h"
#include "storage/staging/journal_codec.h"
#include "storage/staging/tiered_staging_area.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::Error;
using session::NodeId;
using session::NodeRow;
using session::StagingId;

// Runs `check`; what it throws becomes a problem, but for `busy`: somebody is working there.
void collect(std::vector<Problem>& problems, const std::string& where, const std::function<void()>& check) {
  try {
    check();
  } catch (const Error& error) {
    if (error.code() != Errc::busy) problems.push_back({where, error.what()});
  }
}

// What SQLite's own check says; true when nothing.
bool check_integrity(Database& database, const std::string& where, std::vector<Problem>& problems) {
  bool sound = true;
  Statement statement(database, "PRAGMA integrity_check(20)");
  for (auto row = statement.run(); row.next();) {
    const std::string said = row.bytes(0);
    if (said == "ok") continue;
    problems.push_back({where, "the database " + database.path() + " is damaged: " + said});
    sound = false;
  }
  return sound;
}

void check_version(Database& database, const Schema& schema) {
  const auto newest = static_cast<std::int64_t>(schema.migrations.size());
  const std::int64_t version = database.integer("PRAGMA user_version");
  if (version > newest)
    throw Error(Errc::newer_state, "the " + std::string(schema.title) + " " + database.path() +
                                       " was written by a later Escrow; check it with that one");
  if (version < 1 || database.integer("PRAGMA application_id") != schema.application_id)
    throw Error(Errc::damaged_repository, database.path() + " is not an Escrow " + schema.title);
}

// The process that was making it died; it never held anything, and the session's next use makes it.
bool is_unmade(Database& database) {
  return database.integer("PRAGMA user_version") == 0 && database.integer("PRAGMA application_id") == 0 &&
         database.integer("SELECT count(*) FROM sqlite_schema") == 0;
}

class SessionCheck {
 public:
  SessionCheck(std::string directory, std::string where)
      : directory_(std::move(directory)), where_(std::move(where)), staging_(directory_ + "/staging") {}

  std::vector<Problem> run() {
    collect(problems_, where_, [&] {
      if (is_there(directory_ + "/session.db")) check_database();
      check_files();
    });
    return std::move(problems_);
  }

 private:
  void report(const std::string& what) { problems_.push_back({where_, what}); }

  void check_database() {
    Database database(directory_ + "/session.db", {.exclusive = true, .busy_timeout_ms = 0});
    database.forget_checkpoint_on_close();
    if (is_unmade(database)) return;
    check_version(database, session_schema());
    if (!check_integrity(database, where_, problems_)) return;
    check_nodes(database);
    check_edges(database);
    check_blocks(database);
  }

  void check_nodes(Database& database) {
    // The first version had no durable form: all that it named was to be there. The second had no savepoints.
    const std::int64_t version = database.integer("PRAGMA user_version");
    Statement statement(database, "SELECT node, mode, uid, gid, rdev, accessed_s, accessed_ns, modified_s, "
                                  "modified_ns, changed_s, changed_ns, base, base_mode, base_length, staging, "
                                  "block_map, target, xattrs, " +
                                      std::string(version < 2 ? "0, NULL" : "era, durable") +
                                      (version < 3 ? ", NULL, NULL" : ", sealed, durable_sealed") +
                                      (version < 4 ? ", NULL" : ", times") +
                                      " FROM node ORDER BY layer, node");
    for (auto row = statement.run(); row.next();) {
      collect(problems_, where_, [&] {
        const NodeRow node = decode_node(database.path(), row);
        if (node.base_mode == kDroppedNode) return;
        if ((node.mode & S_IFMT) == 0) report("node " + std::to_string(node.node.value) + " has no file type");
        // What was never synced, a power loss may have taken.
        const bool is_whole = node.era == 0 || node.era == staging_.era();
        const StagingId required = is_whole ? node.staging : node.durable.staging;
        if (required) required_[required] = node.node;
      });
    }
  }

  void check_edges(Database& database) {
    Statement statement(database, "SELECT directory, name, node FROM edge ORDER BY layer, directory, name");
    for (auto row = statement.run(); row.next();) {
      const std::string name = row.bytes(1);
      if (row.integer(0) == 0 || name.empty() || name == "." || name == ".." ||
          name.find_first_of(std::string_view("/\0", 2)) != name.npos)
        report("directory " + std::to_string(unsigned_at(row, 0)) + " has an impossible entry '" + name + "'");
    }
  }

  void check_blocks(Database& database) {
    Statement statement(database, "SELECT first, count, tree FROM block ORDER BY layer, first");
    for (auto row = statement.run(); row.next();) {
      const NodeId first{unsigned_at(row, 0)};
      collect(problems_, where_, [&] { decode_id(database.path(), row.bytes(2), first); });
      if (!first) report("a block of node ids begins at 0");
    }
  }

  // A staging file without a row is no problem: one that was removed leaves its record in the log of small files, and
  // one that was made in the last moments before a kill is removed by the session's next use.
  void check_files() {
    const std::vector<StagingId> listed = staging_.list();
    const std::set<StagingId> present(listed.begin(), listed.end());
    for (const auto& [id, node] : required_)
      if (!present.contains(id))
        report("staging file " + FileStagingArea::file_name(id) + " of node " + std::to_string(node.value) +
               " is missing: the file's content is lost; `escrow discard` takes its path back to the base");
  }

  const std::string directory_;
  const std::string where_;
  const TieredStagingArea staging_;
  std::vector<Problem> problems_;
  std::map<StagingId, NodeId> required_;  // by rows
};

}  // namespace

std::vector<Problem> check_catalog(const std::string& database_path) {
  std::vector<Problem> problems;
  collect(problems, "catalog", [&] {
    Database database(database_path, {});
    check_version(database, catalog_schema());
    if (!check_integrity(database, "catalog", problems)) return;
    Statement statement(database, "SELECT id FROM session ORDER BY id");
    std::vector<std::string> ids;
    for (auto row = statement.run(); row.next();) ids.push_back(row.bytes(0));
    const SqliteSessionCatalog catalog(database_path);
    for (const std::string& text : ids) {
      const auto id = session::SessionId::parse(text);
      if (!id) problems.push_back({"catalog", "a session has the impossible id '" + text + "'"});
      if (id)
        collect(problems, "catalog", [&] {
          catalog.find(*id);
          catalog.history(*id);
        });
    }
  });
  return problems;
}

std::vector<Problem> check_times(const std::string& database_path) {
  std::vector<Problem> problems;
  if (::access(database_path.c_str(), F_OK) != 0) return problems;
  collect(problems, "times", [&] {
    Database database(database_path, {});
    if (database.integer("SELECT count(*) FROM sqlite_schema") == 0) return;  // whoever made it was broken off
    check_version(database, times_schema());
    check_integrity(database, "times", problems);
  });
  for (Problem& problem : problems) problem.what += "; it is an index: the next session that is opened makes it anew";
  return problems;
}

std::vector<Problem> check_session_directory(const std::string& directory, const std::string& session) {
  const std::string where = "session " + session;
  const std::optional<session::SessionId> id = session::SessionId::parse(session);
  std::vector<Problem> problems;
  if (!id) return {{where, "the directory " + directory + " is not named by a session id"}};
  collect(problems, where, [&] {
    if (!FileSessionDirectories(parent_of(directory), nullptr).is_held(*id))
      problems = SessionCheck(directory, where).run();
  });
  return problems;
}

}  // namespace escrow::storage
