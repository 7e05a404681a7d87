// What `escrow verify` finds in Escrow's own state, after damage done by hand.
#include "storage/repository/state_check.h"

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "storage/database/sqlite.h"
#include "storage/database/sqlite_session_catalog.h"
#include "storage/staging/file_session_directories.h"
#include "tests/support/journal_rows.h"
#include "tests/support/sample_record.h"
#include "tests/support/temporary_directory.h"

namespace escrow::storage {
namespace {

class StateCheck : public testing::Test {
 protected:
  StateCheck() { std::filesystem::create_directory(sessions_); }

  // A session of two staged files, detached.
  void make_session() {
    const auto held = directories_.create(id_);
    held->staging().create(session::StagingId{1});
    held->staging().create(session::StagingId{2});
    held->staging().truncate(session::StagingId{2}, 1 << 20);  // a file of its own; 1 is in the shared log
    held->staging().write_behind();
    session::JournalBatch batch;
    batch.nodes = {support::sample_node(5), support::sample_node(6)};
    for (auto& row : batch.nodes) row.era = 0;
    batch.nodes[0].staging = session::StagingId{1};
    batch.nodes[1].staging = session::StagingId{2};
    batch.edges = {{session::NodeId{1}, "a", session::NodeId{5}, 1}, {session::NodeId{1}, "b", session::NodeId{6}, 2}};
    batch.blocks = {{session::NodeId{1}, session::NodeId{100}, 3, support::sample_id(1)}};
    held->journal().append(batch);
    held->journal().barrier();
  }
  void alter(const std::string& file, const char* sql) { Database(file, {}).execute(sql); }
  std::string path() const { return directories_.path_of(id_); }
  std::vector<Problem> check() const { return check_session_directory(path(), id_.text()); }

  support::TemporaryDirectory root_;
  const std::string sessions_ = root_.path() + "/sessions";
  const std::string catalog_ = root_.path() + "/catalog.db";
  const session::SessionId id_ = session::SessionId::generate();
  FileSessionDirectories directories_{sessions_, nullptr};
};

TEST_F(StateCheck, ASoundSessionAndCatalogHaveNoProblems) {
  make_session();
  EXPECT_TRUE(check().empty());
  SqliteSessionCatalog(catalog_).insert(support::sample_record(id_));
  EXPECT_TRUE(check_catalog(catalog_).empty());
}

TEST_F(StateCheck, ASessionThatStagedNothingHasNoProblems) {
  directories_.create(id_);
  EXPECT_TRUE(check().empty());
}

// A process that dies between the files it makes for a journal leaves each of these.
TEST_F(StateCheck, AJournalThatWasBeingMadeIsNoProblemAndIsMadeByTheNextUse) {
  directories_.create(id_);
  std::ofstream(path() + "/session.db");
  EXPECT_TRUE(check().empty());
  {
    Database database(path() + "/session.db", {});
    database.execute("PRAGMA synchronous = OFF");
    EXPECT_EQ(database.text("PRAGMA journal_mode = WAL"), "wal");
  }
  EXPECT_TRUE(check().empty());
  EXPECT_TRUE(directories_.try_open(id_)->journal().load().nodes.empty());
  EXPECT_TRUE(check().empty());
  alter(path() + "/session.db", "PRAGMA user_version = 0");
  EXPECT_EQ(check().size(), 1u) << "a journal with rows was not being made";
}

TEST_F(StateCheck, AMissingStagingFileIsNamed) {
  make_session();
  std::filesystem::remove(path() + "/staging/2");
  const auto problems = check();
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].where, "session " + id_.text());
  EXPECT_NE(problems[0].what.find("staging file 2 of node 6 is missing"), std::string::npos) << problems[0].what;
}

TEST_F(StateCheck, AMissingSmallFileIsNamed) {
  make_session();
  std::filesystem::resize_file(path() + "/staging/small-1", 20);
  const auto problems = check();
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].what.find("staging file 1 of node 5 is missing"), std::string::npos) << problems[0].what;
}

// Left by a removal or a kill; the next use of the session removes it.
TEST_F(StateCheck, AStagingFileWithoutARowIsNoProblem) {
  make_session();
  std::ofstream(path() + "/staging/1f") << "left over";
  {
    const auto held = directories_.try_open(id_);
    held->staging().create(session::StagingId{3});
    held->staging().write_behind();
    held->staging().remove(session::StagingId{3});
  }
  EXPECT_TRUE(check().empty());
}

TEST_F(StateCheck, ImpossibleRowsAreNamed) {
  make_session();
  alter(path() + "/session.db", "UPDATE node SET base = x'00' WHERE node = 5; UPDATE edge SET name = x'2f' "
                                "WHERE node = 6; UPDATE block SET tree = x''; "
                                "UPDATE node SET xattrs = x'ffffffff', staging = 2 WHERE node = 6");
  std::string all;
  for (const Problem& problem : check()) all += problem.what + '\n';
  EXPECT_NE(all.find("node 5 has an impossible object id"), std::string::npos) << all;
  EXPECT_NE(all.find("node 6 has an impossible list of extended attributes"), std::string::npos) << all;
  EXPECT_NE(all.find("impossible entry '/'"), std::string::npos) << all;
  EXPECT_NE(all.find("node 100 has an impossible object id"), std::string::npos) << all;
}

TEST_F(StateCheck, AnOverwrittenDatabaseIsDamagedAndNamed) {
  make_session();
  std::fstream file(path() + "/session.db", std::ios::in | std::ios::out | std::ios::binary);
  file << std::string(100, 'x');
  file.close();
  const auto problems = check();
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].what.find(path() + "/session.db is damaged"), std::string::npos) << problems[0].what;
}

TEST_F(StateCheck, AHeldSessionIsLeftAlone) {
  make_session();
  const auto held = directories_.try_open(id_);
  std::filesystem::remove(path() + "/staging/2");
  EXPECT_TRUE(check().empty());
}

TEST_F(StateCheck, AMissingCatalogAndBadRowsAreProblems) {
  ASSERT_EQ(check_catalog(catalog_).size(), 1u);
  {
    SqliteSessionCatalog catalog(catalog_);
    catalog.insert(support::sample_record(id_));
    catalog.insert(support::sample_record(session::SessionId::generate()));
  }
  alter(catalog_, ("UPDATE session SET state = 'bogus' WHERE id = '" + id_.text() + "'").c_str());
  const auto problems = check_catalog(catalog_);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].what.find(id_.text()), std::string::npos) << problems[0].what;
  EXPECT_NE(problems[0].what.find("bogus"), std::string::npos) << problems[0].what;
}

}  // namespace
}  // namespace escrow::storage
