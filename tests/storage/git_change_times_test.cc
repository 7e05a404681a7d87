// The index of times, over a real repository: what it costs to move it on, and what it says of any moment.
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <thread>
#include <utility>

#include "session/trees/listed_times.h"
#include "storage/database/sqlite_change_times.h"
#include "storage/database/sqlite_session_catalog.h"
#include "tests/storage/git_test_repository.h"

namespace escrow::storage {
namespace {

using session::BaseTimes;
using session::ChangeTimes;
using session::ObjectId;
using session::Timestamp;

// Counts what is read.
class CountingReader final : public session::ObjectReader {
 public:
  explicit CountingReader(const session::ObjectReader& inner) : inner_(inner) {}
  session::Tree read_tree(const ObjectId& id) const override {
    ++trees;
    return inner_.read_tree(id);
  }
  session::Commit read_commit(const ObjectId& id) const override {
    ++commits;
    return inner_.read_commit(id);
  }
  std::uint64_t blob_size(const ObjectId& id) const override { return inner_.blob_size(id); }
  std::shared_ptr<const session::ByteSource> open_blob(const ObjectId& id) const override {
    ADD_FAILURE() << "a blob is read";
    return inner_.open_blob(id);
  }
  bool contains(const ObjectId& id) const override { return inner_.contains(id); }

  mutable std::atomic<int> trees = 0, commits = 0;

 private:
  const session::ObjectReader& inner_;
};

class LastLine final : public session::Log {
 public:
  void write(session::LogLevel, const std::string& message) override { line = message; }
  std::string line;
};

class ChangeTimesTest : public testing::Test {
 protected:
  // A commit of git's on main, with what `script` does to its files.
  void commit(const std::string& script, const std::string& date = "") const {
    const std::string clone = repository_.scratch("clone");
    run("[ -d '" + clone + "' ] || git clone -q '" + repository_.path + "' '" + clone + "'; cd '" + clone + "'; " +
        script + "; git add -A; " + (date.empty() ? "" : "GIT_COMMITTER_DATE='" + date + "' ") +
        "git commit -q --allow-empty -m c; git push -q origin HEAD:main");
  }
  ChangeTimes::Seen see() { return times_.see("main", *repository_.references); }
  // By path, "" being the root: as a session has them that goes through everything.
  std::map<std::string, Timestamp> all(const ChangeTimes::Seen& seen) {
    const auto then = times_.as_of("main", seen.newest);
    const BaseTimes::Directory root = then->directory("");
    std::map<std::string, Timestamp> found{{"", root.modified}};
    walk(repository_.store->read_commit(*seen.head).tree, root.below, "", *then, found);
    return found;
  }
  void walk(const ObjectId& tree, const session::TimesBelow& below, const std::string& path, const BaseTimes& then,
            std::map<std::string, Timestamp>& found) {
    const session::Tree entries = repository_.store->read_tree(tree);
    const session::ListedTimes times(entries, below, &then);
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const std::string own = path + entries[i].name;
      found[own] = times.modified(i);
      if (entries[i].mode == session::GitMode::tree)
        walk(entries[i].id, times.below(i, entries[i].name), own + "/", then, found);
    }
  }

  GitTestRepository repository_;
  CountingReader reader_{*repository_.store};
  SqliteSessionCatalog catalog_{repository_.scratch("catalog.db")};
  LastLine log_;
  SqliteChangeTimes times_{repository_.scratch("times.db"), repository_.scratch("catalog.db"), reader_, log_};
};

TEST_F(ChangeTimesTest, MovingOnCostsWhatChangedAndNotTheSizeOfTheRepository) {
  commit("for d in 1 2 3 4 5 6 7 8 9; do mkdir -p $d/a/b; for f in 1 2 3; do echo $d > $d/a/b/$f; done; done");
  see();
  EXPECT_EQ(reader_.trees, 0);
  see();
  EXPECT_EQ(reader_.commits, 1);
  commit("echo changed > 5/a/b/2; mkdir -p new/deep/er; echo 1 > new/deep/er/file");
  reader_.trees = 0;
  const ChangeTimes::Seen seen = see();
  // The root and three directories below it, on each side; what is new is not read. And whether a root is empty.
  EXPECT_LE(reader_.trees, 2 * 4 + 2);
  std::map<std::string, Timestamp> found = all(seen);
  const Timestamp first = found.at("1");
  for (const char* path : {"", "5/a/b/2", "new", "new/deep", "new/deep/er", "new/deep/er/file"}) {
    EXPECT_EQ(found.at(path), seen.newest) << path;
    found.erase(path);
  }
  for (const auto& [path, time] : found) EXPECT_EQ(time, first) << path;
}

TEST_F(ChangeTimesTest, EachCommitOfAPushGivesItsTimeAndThoseOfALongOneTheLastOfTheOlder) {
  commit("echo 0 > a; echo 0 > b; echo 0 > c; echo 0 > d", "1000000000 +0000");
  see();
  // As quick as git can make them.
  run("cd '" + repository_.scratch("clone") + "' && (for i in $(seq 1 1100); do "
      "printf 'commit refs/heads/main\\ncommitter t <t@x> %d +0000\\ndata 1\\nc' $((1000000000 + i)); "
      "[ $i != 1 ] || printf '\\nfrom refs/heads/main^0'; "
      "case $i in 5) f=a;; 50) f=b;; 1050) f=c;; *) f=many;; esac; "
      "printf '\\nM 644 inline %s\\ndata 4\\n%04d\\n' $f $i; done) "
      "| git fast-import --quiet && git push -q origin main");
  const std::map<std::string, Timestamp> found = all(see());
  const auto at = [](std::int64_t seconds) { return Timestamp{seconds, 999'999'999}; };
  EXPECT_EQ(found.at("d"), at(1000000000));
  EXPECT_EQ(found.at("a"), at(1000000101));
  EXPECT_EQ(found.at("b"), at(1000000101));
  EXPECT_EQ(found.at("c"), at(1000001050));
  EXPECT_EQ(found.at("many"), at(1000001100));
}

TEST_F(ChangeTimesTest, WhatItSaidOfOneMomentStaysWhateverComesLater) {
  commit("mkdir -p x/y; echo 1 > x/y/one; echo 2 > x/y/two; echo 3 > three");
  std::vector<std::pair<ChangeTimes::Seen, std::map<std::string, Timestamp>>> moments;
  for (const char* script : {"true", "echo 11 > x/y/one", "rm -r x; echo file > x",
                             "rm x; mkdir -p x/y; echo 2 > x/y/two", "git mv x z; chmod +x three",
                             "echo 1 > z/y/one"}) {
    commit(script);
    const ChangeTimes::Seen seen = see();
    if (!moments.empty()) {
      EXPECT_GT(seen.newest, moments.back().first.newest);
    }
    moments.emplace_back(seen, all(seen));
    for (const auto& [moment, said] : moments) EXPECT_EQ(all(moment), said) << script;
  }
  EXPECT_EQ(moments.front().second.at("three"), moments.back().second.at("three"));
}

TEST_F(ChangeTimesTest, ThreadsThatLookAtOnceMoveItOnce) {
  commit("echo 1 > one");
  see();
  commit("echo 2 > one");
  reader_.trees = 0;
  see();
  const int read_by_one = reader_.trees;
  for (int round = 0; round < 5; ++round) {
    commit("echo " + std::to_string(round) + " > one");
    reader_.trees = 0;
    std::vector<ChangeTimes::Seen> seen(8);
    std::vector<std::thread> threads;
    for (ChangeTimes::Seen& own : seen) threads.emplace_back([&] { own = see(); });
    for (std::thread& thread : threads) thread.join();
    for (const ChangeTimes::Seen& own : seen) {
      EXPECT_EQ(own.head, seen.front().head);
      EXPECT_EQ(own.newest, seen.front().newest);
    }
    EXPECT_EQ(reader_.trees, read_by_one);
  }
}

TEST_F(ChangeTimesTest, RowsThatNoOpenSessionNeedsGo) {
  commit("echo 0 > one", "1000000000 +0000");
  see();
  for (int day = 1; day <= 20; ++day) {
    commit("echo " + std::to_string(day) + " > one", std::to_string(1000000000 + day * 86400) + " +0000");
    see();
  }
  Database database(repository_.scratch("times.db"), {});
  // The root and the file, as they are and as they were before.
  EXPECT_LE(database.integer("SELECT count(*) FROM change"), 4);
}

TEST_F(ChangeTimesTest, PathsThatAreGoneGoOnceNoOpenSessionNeedsThem) {
  for (int day = 0; day < 20; ++day) {
    const std::string name = std::to_string(day);
    commit("rm -rf d*; mkdir -p d" + name + "/deep; echo 1 > d" + name + "/deep/one",
           std::to_string(1000000000 + day * 86400) + " +0000");
    see();
  }
  Database database(repository_.scratch("times.db"), {});
  // The root, the last directory with what is in it, and the one that it took the place of.
  EXPECT_LE(database.integer("SELECT count(*) FROM change"), 10);
}

// A push of a few kilobytes: thirty directories that each have the next one under ten names.
TEST_F(ChangeTimesTest, AFewTreesThatStandForCountlessPathsMakeEverythingNewAndAreReadOnce) {
  // Made in place: git-push(1) goes through all paths when it looks for what the other side has.
  const auto push_bomb = [&](const std::string& content) {
    run("cd '" + repository_.path + "'; "
        "t=$(printf '100644 blob %s\tf\n' $(echo " + content + " | git hash-object -w --stdin) | git mktree); "
        "for level in $(seq 30); do t=$(for i in 0 1 2 3 4 5 6 7 8 9; do printf '040000 tree %s\t%s\n' $t $i; done "
        "| git mktree); done; git update-ref refs/heads/main "
        "$(git commit-tree -m bomb $(git rev-parse -q --verify main | sed 's/^/-p /') $t)");
  };
  push_bomb("1");
  see();
  for (const char* content : {"2", "3"}) {
    push_bomb(content);
    reader_.trees = 0;
    const ChangeTimes::Seen seen = see();
    EXPECT_LT(reader_.trees, 25'000);
    EXPECT_NE(log_.line.find("counts as new"), std::string::npos) << log_.line;
    const auto then = times_.as_of("main", seen.newest);
    for (const char* path : {"", "0", "9/9/9"}) EXPECT_EQ(then->directory(path).modified, seen.newest) << path;
  }
  log_.line.clear();
  run("cd '" + repository_.path + "'; t=$( (git ls-tree main; printf '100644 blob %s\tone\n' "
      "$(echo 1 | git hash-object -w --stdin)) | git mktree); "
      "git update-ref refs/heads/main $(git commit-tree -m c -p main $t)");
  const ChangeTimes::Seen seen = see();
  EXPECT_EQ(log_.line, "");
  EXPECT_LT(times_.as_of("main", seen.newest)->directory("0").modified, seen.newest);
}

TEST_F(ChangeTimesTest, ATreeThatIsDeeperThanEscrowReadsMakesEverythingNew) {
  const auto push_deep = [&](const std::string& content) {
    run("cd '" + repository_.path + "'; from=$(git rev-parse -q --verify main | sed 's/^/from /'); "
        "printf 'commit refs/heads/main\ncommitter t <t@x> 1000000000 +0000\ndata 0\n%s\n"
        "M 644 inline %sf\ndata 2\n%s\n\n' \"$from\" $(printf 'd/%.0s' $(seq 2100)) " + content +
        " | git fast-import --quiet");
  };
  push_deep("1");
  see();
  push_deep("2");
  const ChangeTimes::Seen seen = see();
  EXPECT_NE(log_.line.find("counts as new"), std::string::npos) << log_.line;
  EXPECT_EQ(times_.as_of("main", seen.newest)->directory("d").modified, seen.newest);
}

// Others move the index on while this one reads trees: it waits for no lock, and what it has read counts no more.
TEST_F(ChangeTimesTest, NoLockIsHeldWhileTreesAreRead) {
  class MovingReader final : public session::ObjectReader {
   public:
    explicit MovingReader(const session::ObjectReader& inner) : inner_(inner) {}
    session::Tree read_tree(const ObjectId& id) const override {
      if (const auto once = std::exchange(meanwhile, nullptr)) once();
      return inner_.read_tree(id);
    }
    session::Commit read_commit(const ObjectId& id) const override { return inner_.read_commit(id); }
    std::uint64_t blob_size(const ObjectId& id) const override { return inner_.blob_size(id); }
    std::shared_ptr<const session::ByteSource> open_blob(const ObjectId& id) const override {
      return inner_.open_blob(id);
    }
    bool contains(const ObjectId& id) const override { return inner_.contains(id); }
    mutable std::function<void()> meanwhile;

   private:
    const session::ObjectReader& inner_;
  };
  const std::string index = repository_.scratch("times.db");
  const MovingReader reader(*repository_.store);
  SqliteChangeTimes mine(index, repository_.scratch("catalog.db"), reader, log_);
  commit("echo 1 > one");
  mine.see("main", *repository_.references);
  commit("echo 2 > two");
  ChangeTimes::Seen others;
  reader.meanwhile = [&] {
    Database database(index, {});
    database.execute("PRAGMA busy_timeout = 0");
    database.execute("BEGIN IMMEDIATE");
    database.execute("ROLLBACK");
    commit("echo 3 > three");
    others = std::async(std::launch::async, [&] { return mine.see("main", *repository_.references); }).get();
    EXPECT_EQ(see().newest, others.newest);
  };
  const ChangeTimes::Seen seen = mine.see("main", *repository_.references);
  EXPECT_EQ(seen.head, others.head);
  EXPECT_EQ(seen.newest, others.newest);
  EXPECT_EQ(all(seen).at("three"), seen.newest);
}

// It can be read no more, or says what cannot be.
TEST_F(ChangeTimesTest, ADamagedIndexIsMadeAnewAndEverythingIsNew) {
  const std::string index = repository_.scratch("times.db");
  const auto overwrite = [&] {
    for (const char* end : {"", "-wal"}) std::ofstream(index + end, std::ios::trunc) << "no database";
  };
  const auto falsify = [&] {
    Database database(index, {});
    database.execute("UPDATE branch SET seen = 'nothing'");
  };
  for (const std::function<void()>& damage : {std::function<void()>(overwrite), std::function<void()>(falsify)}) {
    commit("echo 1 > one; date +%N > two");
    SqliteChangeTimes(index, repository_.scratch("catalog.db"), reader_, log_).see("main", *repository_.references);
    log_.line.clear();
    damage();
    SqliteChangeTimes after(index, repository_.scratch("catalog.db"), reader_, log_);
    const ChangeTimes::Seen seen = after.see("main", *repository_.references);
    EXPECT_NE(log_.line.find("made anew"), std::string::npos) << log_.line;
    EXPECT_EQ(after.as_of("main", seen.newest)->directory("").modified, seen.newest);
    log_.line.clear();
    after.see("main", *repository_.references);
    EXPECT_EQ(log_.line, "");
  }
}

TEST_F(ChangeTimesTest, WhoHasReadAnIndexThatAnotherMadeAnewGoesOn) {
  const std::string index = repository_.scratch("times.db");
  commit("echo 1 > one");
  see();
  SqliteChangeTimes reader(index, repository_.scratch("catalog.db"), reader_, log_);
  reader.see("main", *repository_.references);
  for (const char* end : {"", "-wal", "-shm"}) std::filesystem::remove(index + end);
  SqliteChangeTimes anew(index, repository_.scratch("catalog.db"), reader_, log_);
  anew.see("main", *repository_.references);
  commit("echo 2 > one");
  EXPECT_EQ(reader.see("main", *repository_.references).head, repository_.references->head("main"));
}

}  // namespace
}  // namespace escrow::storage
