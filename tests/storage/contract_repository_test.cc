// What every object reader, quarantine and reference store does: the fakes in memory and git's.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>

#include "session/base/error.h"
#include "storage/git/git_references.h"
#include "storage/git/git_repository_pool.h"
#include "storage/objects/git_object_store.h"
#include "storage/objects/quarantine.h"
#include "tests/support/fake_object_store.h"
#include "tests/support/fake_references.h"
#include "tests/support/temporary_directory.h"

namespace escrow {
namespace {

using session::Error;
using session::GitMode;
using session::ObjectId;
using session::SessionId;
using session::Tree;
using support::read_whole;
using support::StringSource;

// A repository with nothing in it.
class World {
 public:
  virtual ~World() = default;
  virtual const session::ObjectReader& objects() = 0;
  virtual session::ReferenceStore& references() = 0;
  virtual std::unique_ptr<session::Quarantine> make_quarantine(const std::string& name) = 0;
};

class FakeWorld final : public World {
 public:
  explicit FakeWorld(const std::string&) {}
  const session::ObjectReader& objects() override { return store_; }
  session::ReferenceStore& references() override { return references_; }
  std::unique_ptr<session::Quarantine> make_quarantine(const std::string&) override {
    return std::make_unique<support::FakeQuarantine>(store_);
  }

 private:
  support::FakeObjectStore store_;
  support::FakeReferences references_{store_};
};

class GitWorld final : public World {
 public:
  explicit GitWorld(const std::string& directory)
      : directory_(directory), pool_(initialised(directory + "/r.git")), store_(pool_, directory + "/cache") {}
  const session::ObjectReader& objects() override { return store_; }
  session::ReferenceStore& references() override { return references_; }
  std::unique_ptr<session::Quarantine> make_quarantine(const std::string& name) override {
    return std::make_unique<storage::GitQuarantine>(pool_, store_, directory_ + '/' + name, directory_ + "/gc.lock");
  }

 private:
  static std::string initialised(const std::string& path) {
    const std::string command = "git init --quiet --bare --initial-branch=main '" + path + "' && git -C '" + path +
                                "' config core.logAllRefUpdates true";
    if (std::system(command.c_str()) != 0) throw std::runtime_error("git init failed");
    return path;
  }

  const std::string directory_;
  storage::GitRepositoryPool pool_;
  storage::GitObjectStore store_;
  storage::GitReferences references_{pool_};
};

struct RepositoryImplementation {
  const char* name;
  std::unique_ptr<World> (*make)(const std::string& directory);
};

const RepositoryImplementation kRepositories[] = {
    {"Fake",
     [](const std::string& directory) -> std::unique_ptr<World> { return std::make_unique<FakeWorld>(directory); }},
    {"Git",
     [](const std::string& directory) -> std::unique_ptr<World> { return std::make_unique<GitWorld>(directory); }},
};

class RepositoryContract : public testing::TestWithParam<RepositoryImplementation> {
 protected:
  const session::ObjectReader& objects() { return world_->objects(); }
  session::ReferenceStore& references() { return world_->references(); }
  std::unique_ptr<session::Quarantine> make_quarantine(const std::string& name) {
    return world_->make_quarantine(name);
  }

  // A commit of one file, only in the quarantine.
  static ObjectId put_commit(session::Quarantine& quarantine, const std::string& content,
                             const std::vector<ObjectId>& parents = {}) {
    const ObjectId blob = quarantine.put_blob(StringSource(content));
    session::Commit commit;
    commit.tree = quarantine.put_tree({{"file", GitMode::regular, blob}});
    commit.parents = parents;
    commit.author = {"Alice", "alice@example.invalid", 1'700'000'000, 90};
    commit.committer = {"Bob", "bob@example.invalid", 1'700'000'001, -480};
    commit.message = "subject\n\nbody of " + content + "\n";
    return quarantine.put_commit(commit);
  }
  ObjectId published_commit(const std::string& content) {
    const auto quarantine = make_quarantine("q-" + content);
    const ObjectId commit = put_commit(*quarantine, content);
    quarantine->publish(commit);
    return commit;
  }

  const SessionId session_ = SessionId::generate();

 private:
  support::TemporaryDirectory directory_;
  std::unique_ptr<World> world_ = GetParam().make(directory_.path());
};

TEST_P(RepositoryContract, IdsAreGitsOwn) {
  const auto quarantine = make_quarantine("q");
  EXPECT_EQ(quarantine->put_blob(StringSource("hello\n")).hex(), "ce013625030ba8dba906f756967f9e9ca394464a");
  EXPECT_EQ(quarantine->put_blob(StringSource("")).hex(), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
  EXPECT_EQ(quarantine->put_tree({}).hex(), "4b825dc642cb6eb9a060e54bf8d69288fbee4904");
}

TEST_P(RepositoryContract, WhatWasPutIsReadBackFromTheQuarantineAlone) {
  const auto quarantine = make_quarantine("q");
  const ObjectId blob = quarantine->put_blob(StringSource("some bytes"));
  const Tree tree = {{"a.txt", GitMode::executable, blob},
                     {"link", GitMode::symlink, blob},
                     {"old", GitMode::group_writable, blob},
                     {"sub", GitMode::tree, quarantine->put_tree({{"\xff\n", GitMode::regular, blob}})},
                     {"vendor", GitMode::gitlink, *ObjectId::from_hex("0123456789012345678901234567890123456789")}};
  const ObjectId root = quarantine->put_tree(tree);
  EXPECT_EQ(quarantine->read_tree(root), tree);
  EXPECT_EQ(quarantine->blob_size(blob), 10u);
  EXPECT_EQ(read_whole(*quarantine->open_blob(blob)), "some bytes");
  EXPECT_TRUE(quarantine->contains(blob));
  EXPECT_FALSE(objects().contains(blob));
  EXPECT_FALSE(objects().contains(root));
}

TEST_P(RepositoryContract, ABlobIsReadByRangesShortOnlyAtTheEnd) {
  const auto quarantine = make_quarantine("q");
  const auto source = quarantine->open_blob(quarantine->put_blob(StringSource("0123456789")));
  std::string out(4, '?');
  EXPECT_EQ(source->size(), 10u);
  EXPECT_EQ(source->read(2, std::as_writable_bytes(std::span(out))), 4u);
  EXPECT_EQ(out, "2345");
  EXPECT_EQ(source->read(8, std::as_writable_bytes(std::span(out))), 2u);
  EXPECT_EQ(source->read(10, std::as_writable_bytes(std::span(out))), 0u);
  EXPECT_EQ(source->read(99, std::as_writable_bytes(std::span(out))), 0u);
}

TEST_P(RepositoryContract, ACommitComesBackWithEveryField) {
  const auto quarantine = make_quarantine("q");
  const ObjectId parent = put_commit(*quarantine, "one");
  const session::Commit commit = quarantine->read_commit(put_commit(*quarantine, "two", {parent}));
  EXPECT_EQ(commit.parents, std::vector{parent});
  EXPECT_EQ(commit.author.name, "Alice");
  EXPECT_EQ(commit.author.offset_minutes, 90);
  EXPECT_EQ(commit.committer.email, "bob@example.invalid");
  EXPECT_EQ(commit.committer.time_s, 1'700'000'001);
  EXPECT_EQ(commit.committer.offset_minutes, -480);
  EXPECT_EQ(commit.message, "subject\n\nbody of two\n");
}

TEST_P(RepositoryContract, AMissingObjectIsAnInputOutputError) {
  const auto quarantine = make_quarantine("q");
  const ObjectId missing = *ObjectId::from_hex("0123456789012345678901234567890123456789");
  EXPECT_FALSE(quarantine->contains(missing));
  for (const session::ObjectReader* reader : {&objects(), static_cast<const session::ObjectReader*>(quarantine.get())})
    for (const auto& read : std::initializer_list<std::function<void()>>{
             [&] { reader->read_tree(missing); }, [&] { reader->read_commit(missing); },
             [&] { reader->blob_size(missing); }, [&] { reader->open_blob(missing); }}) {
      try {
        read();
        ADD_FAILURE() << "nothing was thrown";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), session::Errc::input_output) << error.what();
      }
    }
}

TEST_P(RepositoryContract, PublishingShowsWhatTheRootReachesAndNothingElse) {
  const auto quarantine = make_quarantine("q");
  const ObjectId commit = put_commit(*quarantine, "kept");
  const ObjectId other = quarantine->put_blob(StringSource("not reached"));
  const auto published = quarantine->publish(commit);
  EXPECT_TRUE(objects().contains(commit));
  const Tree tree = objects().read_tree(objects().read_commit(commit).tree);
  EXPECT_EQ(read_whole(*objects().open_blob(tree.at(0).id)), "kept");
  EXPECT_FALSE(objects().contains(other));
  EXPECT_NO_THROW(quarantine->publish(commit));
}

TEST_P(RepositoryContract, WhatWasDiscardedIsGoneAndTheQuarantineStaysUsable) {
  const auto quarantine = make_quarantine("q");
  const ObjectId commit = put_commit(*quarantine, "dropped");
  quarantine->discard();
  EXPECT_FALSE(quarantine->contains(commit));
  EXPECT_FALSE(objects().contains(commit));
  EXPECT_EQ(put_commit(*quarantine, "dropped"), commit);
  EXPECT_TRUE(quarantine->contains(commit));
}

TEST_P(RepositoryContract, ABranchIsCreatedFromAbsentOnceAndThenMovesByCompareAndSwap) {
  const ObjectId one = published_commit("1"), two = published_commit("2"), three = published_commit("3");
  EXPECT_EQ(references().default_branch(), "main");
  EXPECT_EQ(references().head("main"), std::nullopt);
  EXPECT_FALSE(references().compare_and_swap("main", one, two, "message"));
  EXPECT_TRUE(references().compare_and_swap("main", std::nullopt, one, "message"));
  EXPECT_FALSE(references().compare_and_swap("main", std::nullopt, two, "message"));
  EXPECT_TRUE(references().compare_and_swap("main", one, two, "message"));
  EXPECT_FALSE(references().compare_and_swap("main", one, three, "message"));
  EXPECT_EQ(references().head("main"), two);
  EXPECT_EQ(references().head("other"), std::nullopt);
}

TEST_P(RepositoryContract, TheReflogRemembersWhereABranchWas) {
  const ObjectId one = published_commit("1"), two = published_commit("2"), three = published_commit("3");
  references().compare_and_swap("main", std::nullopt, one, "message");
  references().compare_and_swap("main", one, two, "message");
  EXPECT_TRUE(references().reflog_has("main", one));
  EXPECT_TRUE(references().reflog_has("main", two));
  EXPECT_FALSE(references().reflog_has("main", three));
  EXPECT_FALSE(references().reflog_has("other", one));
}

TEST_P(RepositoryContract, ABranchNameThatGitRefusesIsABadRequest) {
  EXPECT_NO_THROW(references().check_target("main"));
  EXPECT_NO_THROW(references().check_target("feature/one"));
  for (const char* bad : {"", "a..b"}) {
    try {
      references().check_target(bad);
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), session::Errc::bad_request) << error.what();
    }
  }
}

TEST_P(RepositoryContract, ResultsAreKeptReplacedAndDropped) {
  const ObjectId one = published_commit("1"), two = published_commit("2");
  EXPECT_EQ(references().result(session_), std::nullopt);
  references().keep_result(session_, one);
  references().keep_result(session_, two);
  EXPECT_EQ(references().result(session_), two);
  EXPECT_EQ(references().result(SessionId::generate()), std::nullopt);
  references().drop_result(session_);
  references().drop_result(session_);
  EXPECT_EQ(references().result(session_), std::nullopt);
}

TEST_P(RepositoryContract, PinsAreSetAndDroppedAnyNumberOfTimes) {
  const ObjectId one = published_commit("1"), two = published_commit("2");
  references().pin_base(session_, one);
  references().pin_base(session_, one);
  references().pin_base(session_, two);
  references().unpin_base(session_);
  EXPECT_NO_THROW(references().unpin_base(session_));
}

INSTANTIATE_TEST_SUITE_P(, RepositoryContract, testing::ValuesIn(kRepositories),
                         [](const auto& chosen) { return std::string(chosen.param.name); });

}  // namespace
}  // namespace escrow
