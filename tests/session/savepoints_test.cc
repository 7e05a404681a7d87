// Savepoints of an overlay: what they keep, what a restore makes of it, what a drop gives back.
#include <algorithm>
#include <utility>

#include "session/overlay/content_form.h"
#include "tests/session/overlay_fixture.h"

namespace escrow::session {
namespace {

constexpr std::uint64_t kBlock = BlockMap::kBlockSize;
// Beyond what is copied whole at the first write.
constexpr std::uint64_t kLarge = 20 * kBlock;

class SavepointsTest : public OverlayTest {
 protected:
  NodeId make(std::string_view directory, std::string_view name, std::string_view text) {
    const NodeId made = overlay->make_node(node(directory), name, kFile, 0, kRootUser).node;
    if (!text.empty()) write(made, text);
    return made;
  }
  std::string content(std::string_view path) { return read(node(path)); }
  // As Session does it: the cut, then the disk.
  void savepoint(const std::string& name) {
    overlay->create_savepoint(name, "");
    overlay->flush(true);
  }
  std::vector<std::string> savepoint_names() {
    std::vector<std::string> names;
    for (const Savepoint& one : overlay->savepoints()) names.push_back(one.name);
    return names;
  }
  // The host is killed; everything recorded is there.
  void kill() {
    overlay->flush(false);
    overlay->abandon();
    open();
  }
  // As the kernel: it has it open, or looks at it.
  void hold(NodeId id) { overlay->retain(id); }
  std::set<StagingId> staging_files() {
    const auto all = staging.list();
    return {all.begin(), all.end()};
  }
};

TEST_F(SavepointsTest, ARestoreBringsBackEverythingThatTheSavepointHad) {
  make("a", "new", "made before");
  write(node("b.txt"), "edited");
  overlay->set_xattr(node("b.txt"), "user.kept", "before", XattrMode::any);
  overlay->change_attributes(node("a/two"), {.mode = 0600});
  overlay->make_node(kRootNode, "empty", kDir, 0, kRootUser);
  overlay->make_symlink(kRootNode, "to", "b.txt", kRootUser);
  overlay->link(node("a/new"), kRootNode, "second");
  overlay->unlink(node("a"), "one");
  const auto before = tree();
  savepoint("here");

  write(node("a/new"), "changed afterwards");
  write(node("b.txt"), "XXXXXXXXXXX");
  overlay->set_xattr(node("b.txt"), "user.kept", "after", XattrMode::any);
  overlay->set_xattr(node("b.txt"), "user.other", "after", XattrMode::any);
  overlay->change_attributes(node("a/two"), {.mode = 0777});
  overlay->change_attributes(node("empty"), {.mode = 0700});
  overlay->remove_directory(kRootNode, "empty");
  overlay->unlink(kRootNode, "to");
  overlay->unlink(kRootNode, "second");
  make("a", "one", "another");
  make("a/deep", "y", "why");
  overlay->rename(node("a"), "deep", kRootNode, "deeper", RenameMode::replace);
  ASSERT_NE(tree(), before);

  overlay->restore_savepoint("here");
  for (int look = 0; look < 2; ++look) {
    EXPECT_EQ(tree(), before);
    EXPECT_EQ(content("a/new"), "made before");
    EXPECT_EQ(content("b.txt"), "edited");
    EXPECT_EQ(overlay->xattr(node("b.txt"), "user.kept"), "before");
    EXPECT_EQ(overlay->xattr(node("b.txt"), "user.other"), std::nullopt);
    EXPECT_EQ(at("a/two").mode, S_IFREG | 0600u);
    EXPECT_EQ(at("empty").mode, S_IFDIR | 0755u);
    EXPECT_EQ(overlay->read_link(node("to")), "b.txt");
    EXPECT_EQ(node("second"), node("a/new"));
    EXPECT_EQ(at("second").links, 2u);
    EXPECT_FALSE(try_at("a/one"));
    EXPECT_FALSE(try_at("a/deep/y"));
    EXPECT_EQ(content("a/deep/x"), "xxx");
    EXPECT_FALSE(try_at("deeper"));
    kill();
  }
}

TEST_F(SavepointsTest, AFreshSessionIsRestoredToItsBase) {
  savepoint("start");
  const NodeId a = node("a"), deep = node("a/deep");
  write(node("a/deep/x"), "changed");
  overlay->unlink(kRootNode, "b.txt");
  overlay->change_attributes(a, {.mode = 0700});
  overlay->restore_savepoint("start");
  EXPECT_EQ(tree(), options.base_tree);
  EXPECT_EQ(content("a/deep/x"), "xxx");
  EXPECT_EQ(content("b.txt"), "bee");
  EXPECT_EQ(at("a").mode, S_IFDIR | 0755u);
  EXPECT_EQ(at("a").modified, options.base_time);
  EXPECT_EQ(node("a"), a) << "directories stay what they are, for who works in them";
  EXPECT_EQ(node("a/deep"), deep);
}

TEST_F(SavepointsTest, WhatDidNotChangeKeepsItsNodeAndNoNodeIsMoved) {
  const NodeId kept = make("a", "kept", "the same"), changed = make("a", "changed", "once");
  const NodeId moved = make("a", "moving", "about");
  const NodeId directory = overlay->make_node(kRootNode, "d", kDir, 0, kRootUser).node;
  make("d", "inside", "it");
  const NodeId stays = overlay->make_node(kRootNode, "stays", kDir, 0, kRootUser).node;
  savepoint("here");
  overlay->rename(node("a"), "moving", kRootNode, "moved", RenameMode::replace);
  overlay->rename(kRootNode, "d", node("a"), "e", RenameMode::replace);
  make("stays", "new", "");
  write(changed, "twice");
  overlay->restore_savepoint("here");
  EXPECT_EQ(node("a/kept"), kept);
  EXPECT_EQ(node("stays"), stays);
  EXPECT_FALSE(try_at("stays/new"));
  EXPECT_NE(node("a/moving"), moved) << "what was judged by its path is judged anew";
  EXPECT_NE(node("d"), directory);
  EXPECT_EQ(content("a/moving"), "about");
  EXPECT_EQ(content("d/inside"), "it");
  EXPECT_FALSE(try_at("moved"));
  EXPECT_FALSE(try_at("a/e"));
  EXPECT_NE(node("a/changed"), changed);
  EXPECT_EQ(content("a/changed"), "once");
}

TEST_F(SavepointsTest, AnOpenFileGoesOnAsARemovedOneWhenTheRestoreBringsBackAnother) {
  const NodeId open_file = make("a", "log", "one");
  hold(open_file);
  savepoint("here");
  write(open_file, "two", 3);
  overlay->restore_savepoint("here");
  EXPECT_EQ(read(open_file), "onetwo");
  write(open_file, "three", 6);
  EXPECT_EQ(read(open_file), "onetwothree");
  EXPECT_EQ(content("a/log"), "one");
  EXPECT_EQ(overlay->attributes(open_file).links, 0u);
  write(node("a/log"), "1");
  EXPECT_EQ(read(open_file), "onetwothree");
  EXPECT_EQ(content("a/log"), "1ne");
}

TEST_F(SavepointsTest, AFileThatWasRemovedWhileItWasOpenIsNotTheRestoredOne) {
  const NodeId open_file = make("a", "log", "text");
  hold(open_file);
  savepoint("here");
  overlay->unlink(node("a"), "log");
  overlay->restore_savepoint("here");
  // Both show one sealed staging file until they are written to, also when no savepoint has it any more.
  overlay->drop_savepoint("here");
  write(open_file, "T");
  EXPECT_EQ(content("a/log"), "text");
  write(node("a/log"), "L");
  EXPECT_EQ(read(open_file), "Text");
  overlay->release(open_file);
  overlay->flush(true);
  EXPECT_EQ(content("a/log"), "Lext");
  kill();
  EXPECT_EQ(content("a/log"), "Lext");
}

TEST_F(SavepointsTest, ARestoreIsUndoneByRestoringWhatWasSealedBefore) {
  write(node("b.txt"), "first");
  savepoint("first");
  write(node("b.txt"), "second");
  make("a", "later", "too");
  const auto second = tree();
  savepoint("undo");
  overlay->restore_savepoint("first");
  EXPECT_EQ(content("b.txt"), "first");
  overlay->restore_savepoint("undo");
  EXPECT_EQ(tree(), second);
  kill();
  EXPECT_EQ(tree(), second);
  EXPECT_EQ(savepoint_names(), (std::vector<std::string>{"first", "undo"}));
}

TEST_F(SavepointsTest, ASavepointIsThereAfterAKillAndAPowerLoss) {
  write(node("b.txt"), "synced");
  overlay->sync_file(node("b.txt"));
  savepoint("here");
  write(node("b.txt"), "after");
  kill();
  EXPECT_EQ(content("b.txt"), "afterd");
  EXPECT_EQ(savepoint_names(), std::vector<std::string>{"here"});
  write(node("b.txt"), "later ");
  lose_power();
  EXPECT_EQ(savepoint_names(), std::vector<std::string>{"here"});
  overlay->restore_savepoint("here");
  EXPECT_EQ(content("b.txt"), "synced");
}

TEST_F(SavepointsTest, ARestoreIsOnDiskWhenItReturns) {
  write(node("b.txt"), "synced");
  overlay->sync_file(node("b.txt"));
  savepoint("here");
  write(node("b.txt"), "after!");
  overlay->sync_file(node("b.txt"));
  overlay->restore_savepoint("here");
  lose_power();
  EXPECT_EQ(content("b.txt"), "synced");
}

TEST_F(SavepointsTest, ALargeFileIsCopiedBlockByBlockOverWhatWasSealed) {
  const NodeId large = make("a", "large", std::string(kLarge, 'a'));
  overlay->flush(true);
  savepoint("one");
  const std::uint64_t before = staging.held_bytes();
  write(large, "B", 5 * kBlock + 7);
  EXPECT_LE(staging.held_bytes() - before, kBlock) << "only what was touched was copied";
  savepoint("two");
  write(large, "C", 9 * kBlock);
  overlay->change_attributes(large, {.size_bytes = 12 * kBlock});
  std::string expected(12 * kBlock, 'a');
  expected[5 * kBlock + 7] = 'B';
  expected[9 * kBlock] = 'C';
  EXPECT_EQ(content("a/large"), expected);
  kill();
  EXPECT_EQ(content("a/large"), expected);
  overlay->drop_savepoint("one");
  EXPECT_EQ(content("a/large"), expected);
  overlay->restore_savepoint("two");
  std::string two(kLarge, 'a');
  two[5 * kBlock + 7] = 'B';
  EXPECT_EQ(content("a/large"), two);
  overlay->drop_savepoint("two");
  kill();
  EXPECT_EQ(content("a/large"), two);
}

// The row of the new file names the sealed one below it: that one must not be less than it was.
TEST_F(SavepointsTest, APowerLossLeavesTheSyncedBytesOfALargeFileUnderItsEdits) {
  const NodeId large = make("a", "large", std::string(kLarge, 'a'));
  overlay->sync_file(large);
  savepoint("one");
  write(large, "B", 5 * kBlock);
  overlay->sync_file(large);
  write(large, "C", 7 * kBlock);
  overlay->flush(true);
  lose_power();
  std::string expected(kLarge, 'a');
  expected[5 * kBlock] = 'B';
  EXPECT_EQ(content("a/large"), expected);
}

TEST_F(SavepointsTest, AnFsyncAfterASavepointBringsAllOfALargeFileToTheDisk) {
  const NodeId large = make("a", "large", std::string(kLarge, 'a'));
  overlay->flush(true);
  savepoint("one");
  write(large, "B", 5 * kBlock);
  overlay->sync_file(large);
  lose_power();
  std::string expected(kLarge, 'a');
  expected[5 * kBlock] = 'B';
  EXPECT_EQ(content("a/large"), expected);
}

TEST_F(SavepointsTest, NoLargeFileIsWrittenOverOneThatCannotBeSynced) {
  const NodeId large = make("a", "large", std::string(kLarge, 'a'));
  overlay->flush(true);
  savepoint("one");
  staging.fail_next_sync();
  EXPECT_EQ(code_of([&] { write(large, "B", 5 * kBlock); }), Errc::input_output);
  EXPECT_EQ(read(large), std::string(kLarge, 'a'));
}

TEST_F(SavepointsTest, ARestoreThatCannotBeSyncedIsNotSaidToBeDone) {
  savepoint("one");
  write(node("b.txt"), "edited");
  overlay->flush(true);
  bool has_appended = false;
  journal.before_write = [&] {
    if (std::exchange(has_appended, true)) throw Error(Errc::input_output, "no barrier");
  };
  EXPECT_EQ(code_of([&] { overlay->restore_savepoint("one"); }), Errc::input_output);
  journal.before_write = {};
  EXPECT_EQ(content("b.txt"), "bee");
}

TEST_F(SavepointsTest, AFileIsWrittenOverWhatManySavepointsSealed) {
  const NodeId large = make("a", "large", std::string(kLarge, 'a'));
  std::string expected(kLarge, 'a');
  for (std::uint64_t i = 0; i < 40; ++i) {
    savepoint("s" + std::to_string(i));
    write(large, "x", i % 20 * kBlock + i);
    expected[i % 20 * kBlock + i] = 'x';
  }
  EXPECT_EQ(content("a/large"), expected);
  kill();
  EXPECT_EQ(content("a/large"), expected);
}

TEST_F(SavepointsTest, DroppingGivesBackWhatOnlyTheSavepointHad) {
  const NodeId file = make("a", "file", "one");
  overlay->flush(true);
  const auto one = staging_files();
  savepoint("one");
  write(file, "two");
  make("a", "other", "too");
  overlay->flush(true);
  savepoint("two");
  overlay->unlink(node("a"), "other");
  overlay->unlink(node("a"), "file");
  overlay->flush(true);
  EXPECT_EQ(staging_files().size(), 3u);
  overlay->drop_savepoint("one");
  EXPECT_EQ(staging_files().size(), 2u);
  EXPECT_EQ(staging_files().count(*one.begin()), 0u);
  overlay->drop_savepoint("two");
  EXPECT_TRUE(staging_files().empty());
  EXPECT_EQ(code_of([&] { overlay->drop_savepoint("two"); }), Errc::not_found);
  EXPECT_EQ(code_of([&] { overlay->restore_savepoint("two"); }), Errc::not_found);
}

TEST_F(SavepointsTest, WithoutSavepointsAFileIsWrittenInPlaceAgain) {
  const NodeId file = make("a", "file", "one");
  savepoint("one");
  overlay->drop_savepoint("one");
  overlay->flush(true);
  const auto before = staging_files();
  write(file, "two");
  EXPECT_EQ(staging_files(), before);
  savepoint("again");
  kill();
  overlay->drop_savepoint("again");
  write(node("a/file"), "3");
  EXPECT_EQ(staging_files(), before);
  EXPECT_EQ(content("a/file"), "3wo");
}

TEST_F(SavepointsTest, ADropThatThePowerCutsShortLosesNoSavepointsFiles) {
  make("a", "file", "one");
  overlay->sync_file(node("a/file"));
  savepoint("one");
  write(node("a/file"), "two");
  overlay->flush(true);
  journal.before_write = [writes = 0]() mutable {
    if (++writes == 2) throw Error(Errc::input_output, "no barrier");
  };
  EXPECT_EQ(code_of([&] { overlay->drop_savepoint("one"); }), Errc::input_output);
  journal.before_write = {};
  lose_power();
  overlay->restore_savepoint("one");
  EXPECT_EQ(content("a/file"), "one");
}

TEST_F(SavepointsTest, ASavepointThatCannotBeRecordedIsNone) {
  const NodeId file = make("a", "file", "one");
  overlay->flush(true);
  const auto before = staging_files();
  journal.fail_with(Error(Errc::no_space, "full"));
  EXPECT_EQ(code_of([&] { savepoint("one"); }), Errc::no_space);
  journal.fail_with(std::nullopt);
  EXPECT_TRUE(overlay->savepoints().empty());
  write(file, "two");
  EXPECT_EQ(staging_files(), before) << "nothing is sealed";
  savepoint("one");
  EXPECT_EQ(code_of([&] { savepoint("one"); }), Errc::exists);
}

TEST_F(SavepointsTest, WhatIsStaleForTheKernelIsTold) {
  make("a", "file", "one");
  savepoint("one");
  write(node("a/file"), "two");
  overlay->unlink(kRootNode, "b.txt");
  const auto stale = overlay->restore_savepoint("one");
  const auto has = [&](NodeId directory, std::string_view name) {
    return std::any_of(stale.begin(), stale.end(),
                       [&](const Overlay::Stale& one) { return one.directory == directory && one.name == name; });
  };
  EXPECT_TRUE(has(node("a"), "file"));
  EXPECT_TRUE(has(kRootNode, "b.txt"));
  EXPECT_TRUE(has(kRootNode, "")) << "its time is another one";
  EXPECT_FALSE(has(node("a"), "one"));
}

TEST(SealedForms, ComeBackFromTheJournalOrAreRefused) {
  BlockMap map(3);
  map.set(1);
  const auto lowest = std::make_shared<ContentForm>(
      ContentForm{ObjectId(ObjectId::Bytes{7}), 3 * kBlock - 1, StagingId{4}, map});
  ContentForm form{{}, 2 * kBlock, StagingId{9}, BlockMap(2), std::make_shared<ContentForm>(
                       ContentForm{{}, 3 * kBlock, StagingId{6}, BlockMap(3), lowest})};
  const std::string bytes = encode_sealed(form);
  const auto decoded = decode_sealed(bytes);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(*decoded, *form.sealed);
  EXPECT_EQ(form.staging_files(), (std::vector<StagingId>{StagingId{9}, StagingId{6}, StagingId{4}}));
  EXPECT_EQ(decode_sealed(""), nullptr);
  EXPECT_EQ(code_of([&] { decode_sealed(std::string_view(bytes).substr(0, bytes.size() - 1)); }),
            Errc::damaged_repository);
}

}  // namespace
}  // namespace escrow::session
