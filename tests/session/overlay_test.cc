// The overlay over fakes: its properties of the design, section 3, and what a restart keeps.
#include "tests/session/overlay_fixture.h"

namespace escrow::session {
namespace {

TEST_F(OverlayTest, OpeningReadsNoTreeAndLookingReadsOnlyTheWay) {
  const auto before = objects.reads();
  open();
  EXPECT_EQ(objects.reads().trees, before.trees);
  at("a/one");
  EXPECT_EQ(objects.reads().trees, before.trees + 2);
  EXPECT_EQ(objects.reads().blobs, before.blobs);
}

TEST_F(OverlayTest, AnUnchangedViewBuildsTheBaseTreeWithoutWriting) {
  names(node("a"));
  EXPECT_EQ(tree(), options.base_tree);
  EXPECT_EQ(quarantine.object_count(), 0u);
}

TEST_F(OverlayTest, CreatedWrittenAndRemovedFilesMakeTheExpectedTree) {
  const auto file = overlay->make_node(node("a"), "new", kFile, 0, kRootUser);
  write(file.node, "hello");
  overlay->unlink(kRootNode, "b.txt");
  EXPECT_EQ(tree(), objects.put_files({{"a/one", "1"}, {"a/two", "22"}, {"a/deep/x", "xxx"}, {"a/new", "hello"}}));
}

TEST_F(OverlayTest, RenamingADirectoryKeepsItsTreeUnread) {
  const auto before = objects.reads();
  overlay->rename(kRootNode, "a", kRootNode, "z", RenameMode::replace);
  const auto after = tree();
  EXPECT_EQ(objects.reads().trees, before.trees + 1) << "only the root is read";
  EXPECT_EQ(after, objects.put_files({{"z/one", "1"}, {"z/two", "22"}, {"z/deep/x", "xxx"}, {"b.txt", "bee"}}));
}

TEST_F(OverlayTest, ACleanNodeComesBackWithTheSameIdAfterItWasForgotten) {
  const NodeId deep = node("a/deep"), x = node("a/deep/x");
  for (const NodeId id : {node("a"), deep, x}) overlay->retain(id);
  for (const NodeId id : {x, deep, node("a")}) overlay->release(id);
  EXPECT_EQ(overlay->usage().nodes, 1u) << "only the root is left in memory";
  EXPECT_EQ(node("a/deep"), deep);
  EXPECT_EQ(node("a/deep/x"), x);
}

TEST_F(OverlayTest, NodeIdsSurviveARestart) {
  const NodeId x = node("a/deep/x"), two = node("a/two");
  write(two, "!");
  const NodeId fresh = overlay->make_node(kRootNode, "fresh", kFile, 0, kRootUser).node;
  overlay->rename(node("a"), "one", kRootNode, "moved", RenameMode::replace);
  const NodeId moved = node("moved");
  open();
  EXPECT_EQ(node("a/deep/x"), x);
  EXPECT_EQ(node("a/two"), two);
  EXPECT_EQ(node("fresh"), fresh);
  EXPECT_EQ(node("moved"), moved);
  EXPECT_EQ(read(node("a/two")), "!2");
  EXPECT_EQ(read(node("moved")), "1");
  EXPECT_FALSE(try_at("a/one"));
}

TEST_F(OverlayTest, RenameOverNonEmptyDirectoryIsRefused) {
  overlay->make_node(kRootNode, "d", kDir, 0, kRootUser);
  EXPECT_EQ(code_of([&] { overlay->rename(kRootNode, "d", kRootNode, "a", RenameMode::replace); }), Errc::not_empty);
  overlay->unlink(node("a/deep"), "x");
  overlay->rename(kRootNode, "d", node("a"), "deep", RenameMode::replace);
  EXPECT_TRUE(names(node("a/deep")).empty());
}

TEST_F(OverlayTest, RenameRefusesWhatPosixRefuses) {
  const NodeId a = node("a");
  EXPECT_EQ(code_of([&] { overlay->rename(kRootNode, "a", node("a/deep"), "a", RenameMode::replace); }),
            Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { overlay->rename(kRootNode, "b.txt", kRootNode, "a", RenameMode::replace); }),
            Errc::is_a_directory);
  EXPECT_EQ(code_of([&] { overlay->rename(kRootNode, "a", kRootNode, "b.txt", RenameMode::replace); }),
            Errc::not_a_directory);
  EXPECT_EQ(code_of([&] { overlay->rename(kRootNode, "b.txt", a, "one", RenameMode::no_replace); }), Errc::exists);
  EXPECT_EQ(code_of([&] { overlay->rename(kRootNode, "none", a, "one", RenameMode::replace); }), Errc::not_found);
  EXPECT_EQ(tree(), options.base_tree);
}

TEST_F(OverlayTest, ExchangeSwapsAFileAndADirectory) {
  overlay->rename(kRootNode, "b.txt", kRootNode, "a", RenameMode::exchange);
  EXPECT_EQ(read(node("a")), "bee");
  EXPECT_EQ(read(node("b.txt/one")), "1");
}

TEST_F(OverlayTest, HardLinksShareOneNodeAndOneContent) {
  const NodeId one = node("a/one");
  EXPECT_EQ(overlay->link(one, kRootNode, "other").links, 2u);
  write(node("other"), "shared");
  EXPECT_EQ(read(node("a/one")), "shared");
  overlay->unlink(node("a"), "one");
  EXPECT_EQ(at("other").links, 1u);
  open();
  EXPECT_EQ(read(node("other")), "shared");
}

TEST_F(OverlayTest, ARemovedFileLivesOnWhileTheKernelHoldsIt) {
  const NodeId one = node("a/one");
  overlay->retain(one);
  overlay->unlink(node("a"), "one");
  EXPECT_EQ(overlay->attributes(one).links, 0u);
  write(one, "still here");
  EXPECT_EQ(read(one), "still here");
  overlay->release(one);
  EXPECT_EQ(code_of([&] { overlay->attributes(one); }), Errc::not_found);
  overlay->flush(true);
  EXPECT_TRUE(staging.list().empty());
}

TEST_F(OverlayTest, ARemovedDirectoryShowsNothingAndTakesNothing) {
  const NodeId deep = node("a/deep");
  overlay->retain(deep);
  overlay->unlink(deep, "x");
  overlay->remove_directory(node("a"), "deep");
  EXPECT_TRUE(names(deep).empty());
  EXPECT_FALSE(overlay->lookup(deep, "x"));
  EXPECT_EQ(code_of([&] { overlay->make_node(deep, "y", kFile, 0, kRootUser); }), Errc::not_found);
  overlay->release(deep);
}

TEST_F(OverlayTest, AWhiteoutHidesANameUntilItIsMadeAgain) {
  overlay->unlink(kRootNode, "b.txt");
  open();
  EXPECT_FALSE(try_at("b.txt"));
  write(overlay->make_node(kRootNode, "b.txt", kFile, 0, kRootUser).node, "new");
  EXPECT_EQ(read(node("b.txt")), "new");
  overlay->unlink(kRootNode, "b.txt");
  EXPECT_FALSE(try_at("b.txt"));
  EXPECT_EQ(names(kRootNode), std::vector<std::string>{"a"});
}

TEST_F(OverlayTest, ListingsContinueFromTheirCookieWhileNamesGo) {
  std::map<std::string, std::string> files;
  for (int i = 0; i < 1000; ++i) files["f" + std::to_string(i)] = "x";
  base(objects.put_files(files));
  for (int i = 0; i < 500; ++i) overlay->make_node(kRootNode, "n" + std::to_string(i), kFile, 0, kRootUser);
  std::set<std::string> seen;
  std::uint64_t cookie = 0;
  for (bool more = true; more;) {
    std::vector<std::string> batch;
    overlay->list(kRootNode, cookie, [&](const FileSystem::Entry& entry) {
      batch.emplace_back(entry.name);
      cookie = entry.next_cookie;
      return batch.size() < 7;
    });
    more = batch.size() == 7;
    for (const auto& name : batch)
      if (name != "." && name != "..") {
        EXPECT_TRUE(seen.insert(name).second) << name;
        overlay->unlink(kRootNode, name);
      }
  }
  EXPECT_EQ(seen.size(), 1500u);
  EXPECT_EQ(tree(), std::nullopt);
}

TEST_F(OverlayTest, ALargeBaseIsCopiedBlockByBlock) {
  std::string big(5 << 20, 'a');
  for (std::size_t i = 0; i < big.size(); i += 4096) big[i] = static_cast<char>('a' + i / 4096 % 26);
  base(objects.put_files({{"big", big}}));
  const NodeId id = node("big");
  write(id, "EDIT", 3 << 20);
  big.replace(3 << 20, 4, "EDIT");
  EXPECT_EQ(read(id), big);
  write(id, "tail", big.size() + 100000);
  big += std::string(100000, '\0') + "tail";
  EXPECT_EQ(read(id), big);
  open();
  EXPECT_EQ(read(node("big")), big);
  overlay->change_attributes(id, {.size_bytes = 200000});
  overlay->change_attributes(id, {.size_bytes = 400000});
  big.resize(200000);
  big.resize(400000);
  EXPECT_EQ(read(id), big);
  EXPECT_EQ(tree(), objects.put_files({{"big", big}}));
}

TEST_F(OverlayTest, WhatGitCannotHoldIsLeftOutByName) {
  overlay->make_node(kRootNode, "pipe", S_IFIFO | 0644, 0, kRootUser);
  overlay->make_node(kRootNode, "sock", S_IFSOCK | 0755, 0, kRootUser);
  overlay->make_node(kRootNode, "empty", kDir, 0, kRootUser);
  const NodeId git = overlay->make_node(node("a"), ".git", kDir, 0, kRootUser).node;
  overlay->make_node(git, "config", kFile, 0, kRootUser);
  overlay->change_attributes(node("b.txt"), {.mode = 0600});
  const BuiltTree built = overlay->build_tree(quarantine, {});
  EXPECT_EQ(built.tree, options.base_tree);
  std::map<std::string, std::string> omitted;
  for (const auto& item : built.omitted) omitted[item.path] = name_of(item.kind);
  const std::map<std::string, std::string> expected{
      {"pipe", "fifo"}, {"sock", "socket"}, {"empty", "empty_directory"}, {"a/.git", "git_name"}, {"b.txt", "mode"}};
  EXPECT_EQ(omitted, expected);
}

TEST_F(OverlayTest, EntriesThatGitRefusesAreNeitherShownNorWrittenAgain) {
  const ObjectId blob = objects.put_blob("[core]\n\tfsmonitor = touch /tmp/run\n");
  const ObjectId git = objects.put_tree({{"config", GitMode::regular, blob}});
  const Tree shown{{"kept", GitMode::regular, blob}};
  Tree planted{{".GIT", GitMode::tree, git},
               {".git", GitMode::tree, git},
               {".gitmodules", GitMode::symlink, objects.put_blob("/etc/passwd")},
               {"git~1", GitMode::regular, blob},
               {"kept", GitMode::regular, blob}};
  const ObjectId inner = objects.put_tree(planted);
  planted.push_back({"sub", GitMode::tree, inner});
  base(objects.put_tree(planted));
  for (const char* name : {".git", ".GIT", ".gitmodules", "git~1", "sub/.git", "sub/.gitmodules"})
    EXPECT_FALSE(try_at(name)) << name;
  std::vector<std::string> listed;
  overlay->list(kRootNode, 0, [&](const FileSystem::Entry& entry) {
    listed.emplace_back(entry.name);
    return true;
  });
  std::sort(listed.begin(), listed.end());
  EXPECT_EQ(listed, (std::vector<std::string>{".", "..", "kept", "sub"}));
  EXPECT_EQ(tree(), options.base_tree) << "what nobody touched keeps its tree";
  write(overlay->make_node(kRootNode, "new", kFile, 0, kRootUser).node, "new");
  Tree expected = shown;
  expected.push_back({"new", GitMode::regular, objects.put_blob("new")});
  expected.push_back({"sub", GitMode::tree, inner});
  EXPECT_EQ(tree(), objects.put_tree(expected));
}

TEST_F(OverlayTest, WhatGitFsckRefusesLeavesThePathAsTheBaseHasIt) {
  const std::string long_line(2048, 'x'), good = "[submodule \"a\"]\n\tpath = a\n\turl = ../a\n";
  base(objects.put_files({{".gitmodules", good}, {"a/.gitattributes", "* text\n"}, {"bad", long_line}}));
  overlay->unlink(kRootNode, ".gitmodules");
  overlay->make_symlink(kRootNode, ".gitmodules", "bad", kRootUser);
  write(node("a/.gitattributes"), long_line);
  overlay->rename(kRootNode, "bad", kRootNode, ".gitattributes", RenameMode::replace);
  const NodeId directory = overlay->make_node(node("a"), ".gitmodules", kDir, 0, kRootUser).node;
  overlay->make_node(directory, "file", kFile, 0, kRootUser);
  const BuiltTree built = overlay->build_tree(quarantine, {});
  EXPECT_EQ(built.tree, objects.put_files({{".gitmodules", good}, {"a/.gitattributes", "* text\n"}}));
  std::map<std::string, std::string> omitted;
  for (const auto& item : built.omitted) omitted[item.path] = name_of(item.kind);
  const std::map<std::string, std::string> expected{{".gitmodules", "git_name"},
                                                    {".gitattributes", "git_refused"},
                                                    {"a/.gitattributes", "git_refused"},
                                                    {"a/.gitmodules", "git_refused"}};
  EXPECT_EQ(omitted, expected);
}

TEST_F(OverlayTest, ExcludedPathsStayAsTheBaseHasThem) {
  write(node("b.txt"), "changed");
  write(overlay->make_node(kRootNode, "x.log", kFile, 0, kRootUser).node, "log");
  overlay->unlink(node("a"), "one");
  const BuiltTree built = overlay->build_tree(quarantine, {"*.log", "/b.txt", "a/one"});
  EXPECT_EQ(built.tree, options.base_tree);
  EXPECT_EQ(built.omitted.size(), 3u);
}

TEST_F(OverlayTest, ModesOfUnchangedEntriesAreKeptExactly) {
  const ObjectId blob = objects.put_blob("x");
  const ObjectId commit = objects.put_blob("stands for a commit");
  Tree tree_entries{{"link", GitMode::symlink, objects.put_blob("target")},
                    {"old", GitMode::group_writable, blob},
                    {"run", GitMode::executable, blob},
                    {"sub", GitMode::gitlink, commit}};
  base(objects.put_tree(tree_entries));
  EXPECT_EQ(overlay->read_link(node("link")), "target");
  EXPECT_EQ(at("sub").mode, static_cast<std::uint32_t>(kDir));
  EXPECT_EQ(at("run").mode, static_cast<std::uint32_t>(S_IFREG | 0755));
  overlay->change_attributes(node("old"), {.modified = Timestamp{5, 0}});
  EXPECT_EQ(tree(), options.base_tree);
  overlay->change_attributes(node("old"), {.mode = 0755});
  tree_entries[1].mode = GitMode::executable;
  EXPECT_EQ(tree(), objects.put_tree(tree_entries));
}

TEST_F(OverlayTest, ADamagedBlobFailsThatFileAlone) {
  objects.damage(objects.put_blob("22"));
  EXPECT_EQ(code_of([&] { read(node("a/two")); }), Errc::input_output);
  EXPECT_EQ(read(node("a/one")), "1");
}

TEST_F(OverlayTest, AnAcknowledgedFsyncSurvivesPowerLoss) {
  const NodeId file = overlay->make_node(kRootNode, "f", kFile, 0, kRootUser).node;
  write(file, "durable");
  overlay->sync_file(file);
  write(file, "lost");
  overlay->make_node(kRootNode, "later", kFile, 0, kRootUser);
  overlay->flush(false);
  lose_power();
  EXPECT_EQ(read(node("f")), "durable");
  EXPECT_FALSE(try_at("later"));
}

TEST_F(OverlayTest, ABlockThatWasCopiedUpAndNeverSyncedShowsTheBaseAfterAPowerLoss) {
  std::string big(4 << 20, 'a');
  base(objects.put_files({{"big", big}, {"other", "o"}}));
  const NodeId id = node("big");
  write(id, "first", 1 << 20);
  overlay->sync_file(id);
  big.replace(1 << 20, 5, "first");
  write(id, "second", 2 << 20);
  write(node("other"), "O");
  overlay->sync_file(node("other"));  // names the second block, too
  EXPECT_EQ(journal.durable_count(), journal.batch_count()) << "its rows did reach the disk";
  lose_power();
  EXPECT_EQ(read(node("big")), big);
  EXPECT_EQ(read(node("other")), "O");
}

TEST_F(OverlayTest, AKillLosesNoEditThatWasRecorded) {
  std::string big(4 << 20, 'a');
  base(objects.put_files({{"big", big}}));
  write(node("big"), "edit", 2 << 20);
  overlay->flush(false);
  overlay->abandon();
  open();
  EXPECT_EQ(read(node("big")), big.replace(2 << 20, 4, "edit"));
}

TEST_F(OverlayTest, ALargeEditIsSyncedWhenTheSessionIsDetached) {
  std::string big(4 << 20, 'a');
  base(objects.put_files({{"big", big}}));
  write(node("big"), "edit", 2 << 20);
  overlay.reset();
  journal.barrier();  // SQLite's checkpoint, at some time
  staging.crash();
  open();
  EXPECT_EQ(read(node("big")), big.replace(2 << 20, 4, "edit"));
}

TEST_F(OverlayTest, AFileThatWasNeverSyncedIsWhatTheDiskHasOfItAfterAPowerLoss) {
  write(overlay->make_node(kRootNode, "kept", kFile, 0, kRootUser).node, "by the kernel");
  staging.write_back([] { return true; });
  write(overlay->make_node(kRootNode, "lost", kFile, 0, kRootUser).node, "bytes and name");
  overlay->flush(false);
  journal.barrier();
  lose_power();
  EXPECT_EQ(read(node("kept")), "by the kernel");
  EXPECT_EQ(read(node("lost")), "");
  write(node("lost"), "works");
  EXPECT_EQ(read(node("lost")), "works");
}

TEST_F(OverlayTest, AFileThatCouldNotBeSyncedIsInNoCommitUntilItIsWrittenAnew) {
  const NodeId file = overlay->make_node(node("a"), "f", kFile, 0, kRootUser).node;
  write(file, "text");
  staging.fail_next_sync();
  EXPECT_EQ(code_of([&] { overlay->sync_file(file); }), Errc::input_output);
  EXPECT_EQ(code_of([&] { overlay->sync_file(file); }), Errc::input_output) << "nothing was written again";
  write(node("b.txt"), "other");
  EXPECT_NO_THROW(overlay->sync_file(node("b.txt")));
  try {
    tree();
    ADD_FAILURE() << "it was committed";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("\"a/f\""), std::string::npos) << error.what();
  }
  overlay->change_attributes(file, {.size_bytes = 0});
  write(file, "anew");
  EXPECT_NO_THROW(overlay->sync_file(file));
  EXPECT_NO_THROW(tree());
}

TEST_F(OverlayTest, AFileThatCannotBeSyncedDoesNotHoldUpTheRowsOfOthers) {
  write(node("a/one"), "staged");
  overlay->flush(false);
  overlay->change_attributes(node("a/one"), {.size_bytes = 0});
  write(node("a/one"), "in the place of others");
  staging.fail_next_sync();
  write(node("b.txt"), "other");
  EXPECT_NO_THROW(overlay->flush(false));
  overlay->abandon();
  open();
  EXPECT_EQ(read(node("b.txt")), "other");
}

TEST_F(OverlayTest, AFailingJournalIsReportedByFsyncAndNothingIsLost) {
  const NodeId file = overlay->make_node(kRootNode, "f", kFile, 0, kRootUser).node;
  write(file, "text");
  journal.fail_with(Error(Errc::no_space, "the disk is full"));
  EXPECT_EQ(code_of([&] { overlay->sync_file(file); }), Errc::no_space);
  journal.fail_with(std::nullopt);
  overlay->sync_file(file);
  lose_power();
  EXPECT_EQ(read(node("f")), "text");
}

TEST_F(OverlayTest, AFileThatLostPagesIsNamedUntilTheirPlaceIsWrittenAgain) {
  using Paths = std::vector<std::string>;
  EXPECT_EQ(overlay->incomplete_files(), Paths{});
  const NodeId one = node("a/one"), bee = node("b.txt");
  overlay->pages_lost(one, 0, 4096);
  EXPECT_EQ(overlay->incomplete_files(), Paths{"a/one"}) << "a file of the base that nothing was ever written to";
  overlay->pages_lost(bee, 4096, 8192);
  overlay->rename(kRootNode, "b.txt", node("a"), "moved", RenameMode::replace);
  overlay->link(bee, kRootNode, "also");
  EXPECT_EQ(overlay->incomplete_files(), (Paths{"a/moved", "a/one", "also"}));
  // A part is not enough.
  write(bee, std::string(4096, 'x'), 4096);
  EXPECT_EQ(overlay->incomplete_files(), (Paths{"a/moved", "a/one", "also"}));
  overlay->flush(false);
  open();
  EXPECT_EQ(overlay->incomplete_files(), (Paths{"a/moved", "a/one", "also"})) << "also after a restart";
  EXPECT_EQ(overlay->xattr_names(node("also")), Paths{});
  overlay->write(node("also"), 8192, bytes_of(std::string(4096, 'x')), WriteOrigin::page_cache);
  EXPECT_EQ(overlay->incomplete_files(), Paths{"a/one"});
  AttributeChange shorter;
  shorter.size_bytes = 0;
  overlay->change_attributes(node("a/one"), shorter);
  EXPECT_EQ(overlay->incomplete_files(), Paths{});
  overlay->flush(false);
  open();
  EXPECT_EQ(overlay->incomplete_files(), Paths{});
}

TEST_F(OverlayTest, AFileThatIsRemovedOrTakenBackLacksNothing) {
  overlay->pages_lost(node("a/one"), 0, 4096);
  overlay->pages_lost(node("a/two"), 0, 4096);
  overlay->pages_lost(node("a/deep/x"), 0, 4096);
  overlay->unlink(node("a"), "one");
  const ObjectId other = objects.put_blob(std::string_view("22"));
  overlay->replace("a/two", TreeEntry{.name = "two", .mode = GitMode::regular, .id = other});
  overlay->rename(node("a"), "two", node("a/deep"), "x", RenameMode::replace);
  EXPECT_EQ(overlay->incomplete_files(), std::vector<std::string>{});
}

TEST_F(OverlayTest, StagingFilesWithoutARowAreRemovedAtLoad) {
  staging.create({77});
  open();
  EXPECT_TRUE(staging.list().empty());
  write(overlay->make_node(kRootNode, "f", kFile, 0, kRootUser).node, "x");
  EXPECT_GT(staging.list().front().value, 77u);
}

TEST_F(OverlayTest, ReplaceTakesAPathBackToTheBaseWhileTheKernelHoldsTheOldOne) {
  const NodeId a = node("a"), one = node("a/one"), x = node("a/deep/x");
  for (const NodeId id : {a, one, node("a/deep"), x}) overlay->retain(id);
  write(one, "changed");
  const Tree root = objects.read_tree(*options.base_tree);
  overlay->replace("a", root.front());
  EXPECT_NE(node("a"), a);
  EXPECT_EQ(read(node("a/one")), "1");
  EXPECT_EQ(read(one), "changed") << "an open file keeps its bytes";
  EXPECT_EQ(read(x), "xxx");
  EXPECT_EQ(tree(), options.base_tree);
  for (const NodeId id : {x, one, a}) overlay->release(id);
  overlay->replace("new/dir/file", TreeEntry{"file", GitMode::regular, objects.put_blob("f")});
  EXPECT_EQ(read(node("new/dir/file")), "f");
  overlay->replace("new", std::nullopt);
  EXPECT_EQ(tree(), options.base_tree);
  open();
  EXPECT_EQ(tree(), options.base_tree);
}

TEST_F(OverlayTest, EditsStayOverTheTreeTheyWereMadeOverWhateverTheNextBaseIs) {
  options.base_tree.reset();
  journal.keep_first(0);
  open();
  overlay->replace("f", TreeEntry{"f", GitMode::regular, objects.put_blob("taken in")});
  overlay->unlink(kRootNode, "f");
  options.base_tree = objects.put_files({{"f", "taken in"}});
  open();
  EXPECT_FALSE(try_at("f")) << "a file removed after an update came back";
}

TEST_F(OverlayTest, NamesMayBeAnyBytesAndHaveALimit) {
  const std::string odd = "\xff\n\x1b \\\"";
  overlay->make_node(kRootNode, odd, kFile, 0, kRootUser);
  EXPECT_TRUE(overlay->lookup(kRootNode, odd));
  EXPECT_TRUE(overlay->make_node(kRootNode, std::string(255, 'n'), kFile, 0, kRootUser).node);
  EXPECT_EQ(code_of([&] { overlay->make_node(kRootNode, std::string(256, 'n'), kFile, 0, kRootUser); }),
            Errc::name_too_long);
}

TEST(PathPatterns, FollowGitignoresRules) {
  const PathPatterns patterns({"*.log", "/top", "build/", "a/**/z", "!keep.log", "[ab]?"});
  EXPECT_TRUE(patterns.match("x.log", false));
  EXPECT_TRUE(patterns.match("deep/er/x.log", false));
  EXPECT_FALSE(patterns.match("deep/keep.log", false));
  EXPECT_TRUE(patterns.match("top", false));
  EXPECT_FALSE(patterns.match("deep/top", false));
  EXPECT_TRUE(patterns.match("deep/build", true));
  EXPECT_FALSE(patterns.match("deep/build", false));
  EXPECT_TRUE(patterns.match("a/z", false));
  EXPECT_TRUE(patterns.match("a/b/c/z", false));
  EXPECT_FALSE(patterns.match("b/z", false));
  EXPECT_TRUE(patterns.match("b7", false));
  EXPECT_FALSE(patterns.match("c7", false));
  EXPECT_THROW(PathPatterns({"/"}), Error);
}

}  // namespace
}  // namespace escrow::session
