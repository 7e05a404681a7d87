// The policy in front of an overlay: what each call needs, and that no sequence of calls gets round it.
#include "session/decorators/policed_file_system.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <thread>

#include "session/base/error.h"
#include "tests/support/fake_journal.h"
#include "tests/support/fake_object_store.h"
#include "tests/support/fake_staging.h"
#include "tests/support/manual_clock.h"
#include "tests/support/seed.h"

namespace escrow::session {
namespace {

constexpr Caller kRootUser{};
constexpr std::uint32_t kPolicedFile = S_IFREG | 0644, kPolicedDirectory = S_IFDIR | 0755;
constexpr Actions kAllActions = Actions::all();

class CollectedDenials final : public DenialSink {
 public:
  void denied(const Denial& denial) noexcept override { all_.lock()->push_back(denial); }
  std::vector<Denial> take() { return std::exchange(*all_.lock(), {}); }

 private:
  Synchronized<std::vector<Denial>> all_;
};

class Policed : public testing::Test {
 protected:
  void rules(bool allows_by_default, std::vector<PolicyRule> rules, const std::string& prefix = "") {
    policy = std::make_unique<AccessPolicy>(std::vector<PolicyDocument>{{allows_by_default, std::move(rules)}});
    files = std::make_unique<PolicedFileSystem>(overlay, overlay, prefix, *policy, denials);
  }
  NodeId at(std::string_view path) {
    NodeId node = kRootNode;
    while (!path.empty()) {
      const std::size_t slash = path.find('/');
      const auto found = files->lookup(node, path.substr(0, slash));
      if (!found) throw Error(Errc::not_found, "no " + std::string(path));
      node = found->node;
      path.remove_prefix(slash == std::string_view::npos ? path.size() : slash + 1);
    }
    return node;
  }
  static bool denied(const std::function<void()>& call) {
    try {
      call();
      return false;
    } catch (const Error& error) {
      if (error.code() != Errc::access_denied) throw;
      return true;
    }
  }
  bool opens(NodeId node, OpenIntent intent) {
    return !denied([&] { files->open(node, intent); });
  }
  std::vector<std::string> listed(NodeId directory) {
    std::vector<std::string> names;
    files->list(directory, 0, [&](const FileSystem::Entry& entry) {
      if (entry.name != "." && entry.name != "..") names.emplace_back(entry.name);
      return true;
    });
    return names;
  }

  support::FakeObjectStore objects;
  support::FakeStaging staging;
  support::FakeJournal journal;
  support::ManualClock clock;
  NullLog log;
  Overlay overlay{[this] {
                    Overlay::Options result;
                    result.base_tree = objects.put_files({{"a/one", "1"}, {"a/deep/x.key", "k"}, {"a/deep/y", "y"},
                                                          {"b/two", "2"}, {"c", "3"}});
                    return result;
                  }(),
                  objects, staging, journal, clock, log};
  CollectedDenials denials;
  std::unique_ptr<AccessPolicy> policy;
  std::unique_ptr<PolicedFileSystem> files;
};

TEST_F(Policed, AnOpenNeedsWhatItIsFor) {
  rules(true, {{false, {Action::write}, {"c"}}, {false, {Action::read}, {"a/one"}}});
  EXPECT_TRUE(opens(at("c"), {.read = true}));
  EXPECT_FALSE(opens(at("c"), {.read = true, .write = true}));
  EXPECT_FALSE(opens(at("a/one"), {.read = true}));
  EXPECT_TRUE(opens(at("a/one"), {.write = true}));
  EXPECT_TRUE(opens(at("a/one"), {.read = true, .permitted = true})) << "what was just made";
  const std::vector<Denial> seen = denials.take();
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].operation + " " + seen[0].action + " " + seen[0].path + " " + seen[0].rule,
            "open write c policy 1, rule 1: deny c");
}

TEST_F(Policed, PathsAreThoseOfTheRepository) {
  rules(true, {{false, {Action::write}, {"/team/models/c"}}}, "team/models");
  EXPECT_FALSE(opens(at("c"), {.write = true}));
  rules(true, {{false, kAllActions, {"team"}}}, "team/models");
  EXPECT_TRUE(denied([&] { at("c"); }));
}

TEST_F(Policed, AHiddenNameAnswersTheSameWhetherItExistsOrNot) {
  rules(true, {{false, kAllActions, {"c", "a/deep", "b/none"}}});
  for (const char* path : {"c", "a/deep", "b/none"}) EXPECT_TRUE(denied([&] { at(path); })) << path;
  rules(false, {{true, {Action::read}, {"a/deep/x.key"}}});
  EXPECT_NO_THROW(at("a/deep/x.key")) << "the way to what is allowed stays open";
  EXPECT_TRUE(denied([&] { at("a/deep/y"); }));
  EXPECT_TRUE(denied([&] { at("a/deep/z"); }));
  EXPECT_TRUE(denied([&] { at("c"); }));
}

TEST_F(Policed, AListingShowsOnlyWhatMayBeListed) {
  rules(true, {{false, {Action::list}, {"*.key", "b"}}});
  EXPECT_EQ(listed(kRootNode), (std::vector<std::string>{"a", "c"}));
  EXPECT_EQ(listed(at("a/deep")), std::vector<std::string>{"y"});
  EXPECT_FALSE(opens(at("b"), {.list = true}));
  EXPECT_TRUE(opens(at("a"), {.list = true}));
}

TEST_F(Policed, AFileWithSeveralNamesIsJudgedAtAllOfThem) {
  rules(true, {{false, {Action::write}, {"a/"}}});
  const NodeId c = at("c");
  EXPECT_TRUE(opens(c, {.write = true}));
  files->link(c, at("a"), "also");
  EXPECT_FALSE(opens(c, {.write = true}));
  files->rename(kRootNode, "c", at("b"), "c", RenameMode::replace);
  EXPECT_FALSE(opens(c, {.write = true})) << "whichever name is the newest";
  files->unlink(at("a"), "also");
  EXPECT_TRUE(opens(c, {.write = true}));
}

TEST_F(Policed, ALinkOrARenameGainsNothing) {
  rules(true, {{false, {Action::read}, {"a/one"}}, {false, {Action::write}, {"b"}}});
  EXPECT_TRUE(denied([&] { files->link(at("a/one"), kRootNode, "copy"); }));
  EXPECT_TRUE(denied([&] { files->rename(at("a"), "one", kRootNode, "copy", RenameMode::replace); }));
  EXPECT_TRUE(denied([&] { files->rename(at("b"), "two", kRootNode, "copy", RenameMode::replace); }));
  EXPECT_TRUE(denied([&] { files->rename(kRootNode, "b", kRootNode, "moved", RenameMode::replace); }));
  EXPECT_TRUE(denied([&] { files->rename(kRootNode, "a", kRootNode, "moved", RenameMode::replace); }))
      << "a/one would be moved/one";
  EXPECT_TRUE(denied([&] { files->rename(kRootNode, "c", at("a"), "one", RenameMode::exchange); }));
  files->rename(kRootNode, "c", at("b"), "c", RenameMode::replace);  // less than before is no gain
  EXPECT_FALSE(opens(at("b/c"), {.write = true}));
}

TEST_F(Policed, AFileThatIsRenamedOverIsDeleted) {
  rules(true, {{false, {Action::remove}, {"b/two"}}});
  ASSERT_TRUE(denied([&] { files->rename(kRootNode, "c", at("b"), "two", RenameMode::replace); }));
  EXPECT_EQ(denials.take().back().action, "delete");
  EXPECT_EQ(overlay.lookup(at("b"), "two")->size_bytes, 1u);
  files->rename(kRootNode, "c", at("a"), "one", RenameMode::replace);
}

TEST_F(Policed, ADirectoryMovesOnlyWithAllItHolds) {
  rules(true, {{false, {Action::remove}, {"*.key"}}});
  EXPECT_TRUE(denied([&] { files->rename(kRootNode, "a", kRootNode, "z", RenameMode::replace); }));
  const Denial why = denials.take().back();
  EXPECT_EQ(why.path, "a/deep/x.key");
  EXPECT_EQ(why.rule, "policy 1, rule 1: deny *.key");
  files->rename(kRootNode, "b", kRootNode, "z", RenameMode::replace);
  EXPECT_NO_THROW(at("z/two"));
}

TEST_F(Policed, ATreeIsNotVisitedWhereNoRuleCanSeeADifference) {
  rules(true, {{false, {Action::write}, {"/secret/**"}}});
  at("a");
  const auto before = objects.reads().trees;
  files->rename(kRootNode, "a", kRootNode, "z", RenameMode::replace);
  EXPECT_EQ(objects.reads().trees, before);
}

TEST_F(Policed, WhatWasRememberedOfAMovedDirectoryIsForgotten) {
  rules(true, {{false, {Action::write, Action::metadata}, {"z"}}});
  const NodeId one = at("a/one");
  EXPECT_TRUE(opens(one, {.write = true}));
  files->rename(kRootNode, "a", kRootNode, "z", RenameMode::replace);
  EXPECT_FALSE(opens(one, {.write = true}));
}

TEST_F(Policed, ARemovedFileAllowsWhatItsNameDid) {
  rules(true, {{false, {Action::read}, {"c"}}});
  const NodeId c = at("c");
  files->retain(c);
  files->unlink(kRootNode, "c");
  EXPECT_FALSE(opens(c, {.read = true}));
  EXPECT_TRUE(opens(c, {.write = true}));
  EXPECT_TRUE(denied([&] { files->xattr_names(c); }));
  files->release(c);
}

TEST_F(Policed, AWriteMayClearSetIdBitsAndNothingElse) {
  rules(false, {{true, {Action::write, Action::create, Action::read}, {"/"}}});
  const NodeId made = files->make_node(kRootNode, "tool", S_IFREG | 06755, 0, kRootUser).node;
  const auto chmod = [&](std::uint32_t mode) {
    return !denied([&] {
      AttributeChange change;
      change.mode = mode;
      files->change_attributes(made, change);
    });
  };
  EXPECT_FALSE(chmod(06777));
  EXPECT_FALSE(chmod(0755 & ~0111u));
  EXPECT_FALSE(chmod(06755)) << "a change to what it is";
  EXPECT_TRUE(chmod(02755));
  EXPECT_TRUE(chmod(0755));
  EXPECT_FALSE(chmod(04755));
}

TEST_F(Policed, AttributesNeedMetadataAndSizesNeedWrite) {
  rules(true, {{false, {Action::metadata}, {"c"}}, {false, {Action::write}, {"a/one"}}});
  const auto changes = [&](const char* path, const std::function<void(AttributeChange&)>& set) {
    return !denied([&] {
      AttributeChange change;
      set(change);
      files->change_attributes(at(path), change);
    });
  };
  const auto size = [](AttributeChange& change) { change.size_bytes = 0; };
  const auto size_by_descriptor = [](AttributeChange& change) { change.size_bytes = 0, change.by_descriptor = true; };
  const auto times = [](AttributeChange& change) { change.modified_now = change.accessed_now = true; };
  const auto owner = [](AttributeChange& change) { change.uid = 1; };
  EXPECT_TRUE(changes("c", size));
  EXPECT_FALSE(changes("c", times));
  EXPECT_FALSE(changes("c", owner));
  EXPECT_FALSE(changes("a/one", size));
  EXPECT_TRUE(changes("a/one", size_by_descriptor)) << "it was opened for writing";
  EXPECT_TRUE(changes("a/one", times));
}

// Without the lock of names a file is made in the directory after it was judged and before it has moved.
TEST_F(Policed, NothingSlipsIntoADirectoryWhileItIsJudgedAndMoved) {
  rules(true, {{false, {Action::create}, {"/to/made"}}});
  for (int round = 0; round < 200; ++round) {
    const NodeId directory = files->make_node(kRootNode, "from", kPolicedDirectory, 0, kRootUser).node;
    std::atomic<bool> go = false;
    std::thread maker([&] {
      while (!go) std::this_thread::yield();
      denied([&] { files->make_node(directory, "made", kPolicedFile, 0, kRootUser); });
    });
    go = true;
    denied([&] { files->rename(kRootNode, "from", kRootNode, "to", RenameMode::replace); });
    maker.join();
    const auto moved = overlay.lookup(kRootNode, "to");
    const bool is_there = overlay.lookup(directory, "made").has_value();
    ASSERT_FALSE(moved && is_there) << "to/made may not be created";
    if (is_there) overlay.unlink(directory, "made");
    overlay.remove_directory(kRootNode, moved ? "to" : "from");
  }
}

TEST_F(Policed, ThreadsThatRenameAndOpenRememberNothingStale) {
  rules(true, {{false, {Action::write}, {"closed"}}});
  const NodeId c = at("c");
  std::atomic<bool> stop = false;
  std::vector<std::thread> openers;
  for (int i = 0; i < 3; ++i)
    openers.emplace_back([&] {
      while (!stop) opens(c, {.write = true});
    });
  for (std::uint64_t round = 0; round < support::gate_or_campaign(100, 500); ++round) {
    overlay.rename(kRootNode, "c", kRootNode, "closed", RenameMode::replace);
    overlay.rename(kRootNode, "closed", kRootNode, "c", RenameMode::replace);
    files->rename(kRootNode, "c", kRootNode, "closed", RenameMode::replace);
    ASSERT_FALSE(opens(c, {.write = true})) << round;
    ASSERT_TRUE(denied([&] { files->rename(kRootNode, "closed", kRootNode, "c", RenameMode::replace); }));
    overlay.rename(kRootNode, "closed", kRootNode, "c", RenameMode::replace);
    files->rename(kRootNode, "c", kRootNode, "d", RenameMode::replace);
    files->rename(kRootNode, "d", kRootNode, "c", RenameMode::replace);
  }
  stop = true;
  for (std::thread& opener : openers) opener.join();
}

}  // namespace
}  // namespace escrow::session
