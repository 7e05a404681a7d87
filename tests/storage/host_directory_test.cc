// Host directories and the mount table over them, without a kernel that remembers.
#include "storage/host_files/host_directory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "session/base/cross_device.h"
#include "session/base/error.h"
#include "session/decorators/mount_table.h"
#include "storage/disk/remove_tree.h"
#include "tests/support/fake_journal.h"
#include "tests/support/fake_object_store.h"
#include "tests/support/fake_staging.h"
#include "tests/support/temporary_directory.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::Error;
using session::kRootNode;
using session::MountTable;
using session::NodeId;
using session::RepoPath;
using session::WriteGate;

RepoPath path_of(const std::string& text) { return RepoPath::parse(text, "test"); }

template <typename Call>
std::optional<Errc> code_of(Call call) {
  try {
    call();
    return std::nullopt;
  } catch (const Error& error) {
    return error.code();
  }
}

class HostDirectoryTest : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(at(name)).parent_path());
    std::ofstream(at(name)) << text;
  }
  std::string at(const std::string& name) const { return host_.path() + "/" + name; }
  static NodeId walk(session::FileSystem& files, const std::string& path) {
    NodeId node = kRootNode;
    const session::RepoPath parsed = path_of(path);
    for (const std::string_view name : parsed.components()) node = files.lookup(node, name).value().node;
    return node;
  }
  static std::string text_of(session::FileSystem& files, NodeId node) {
    std::string text(100, '\0');
    text.resize(files.read(node, 0, std::as_writable_bytes(std::span(text))));
    return text;
  }
  static std::set<std::string> names_in(session::FileSystem& files, NodeId directory, std::size_t a_page = 1000) {
    std::set<std::string> names;
    std::uint64_t cookie = 0;
    for (bool goes_on = true; goes_on;) {
      std::size_t count = 0;
      files.list(directory, cookie, [&](const session::FileSystem::Entry& entry) {
        if (count == a_page) return false;
        EXPECT_TRUE(names.insert(std::string(entry.name)).second) << entry.name;
        cookie = entry.next_cookie;
        ++count;
        return true;
      });
      goes_on = count == a_page;
    }
    return names;
  }
  void open(HostDirectory::Options options = {}) {
    files_ = std::make_shared<HostDirectory>(host_.path(), options, "test");
  }

  support::TemporaryDirectory host_;
  std::shared_ptr<HostDirectory> files_;
};

TEST_F(HostDirectoryTest, ANodeIsTheSameAfterItWasForgotten) {
  write("d/one", "1");
  open();
  const NodeId directory = walk(*files_, "d"), one = walk(*files_, "d/one");
  files_->retain(directory);
  files_->retain(one);
  files_->release(one);
  files_->release(directory);
  EXPECT_EQ(directory, walk(*files_, "d"));
  EXPECT_EQ(one, walk(*files_, "d/one"));
}

// The kernel forgets a node and looks it up again: what it forgot comes in last.
TEST_F(HostDirectoryTest, ANodeThatWasJustLookedUpIsThereThoughItIsForgottenMeanwhile) {
  write("d/one", "1");
  open();
  const NodeId directory = walk(*files_, "d"), one = walk(*files_, "d/one");
  for (const NodeId node : {directory, one}) files_->retain(node);
  ASSERT_EQ(one, walk(*files_, "d/one"));
  for (const NodeId node : {one, directory}) files_->release(node);
  for (const NodeId node : {directory, one}) files_->retain(node);
  EXPECT_EQ("1", text_of(*files_, one));
}

// Nodes that nobody holds are bounded, and are the same when they are met again.
TEST_F(HostDirectoryTest, ANodeIsTheSameAfterThousandsOfOthers) {
  write("d/one", "1");
  for (int i = 0; i < 100; ++i) write("many/" + std::to_string(i), "");
  open();
  const NodeId one = walk(*files_, "d/one"), many = walk(*files_, "many");
  for (int round = 0; round < 400; ++round) {
    for (int i = 0; i < 100; ++i) {
      const std::string name = std::to_string(i);
      const NodeId node = files_->lookup(many, name).value().node;
      files_->retain(node);
      files_->release(node);
    }
  }
  EXPECT_EQ(Errc::not_found, code_of([&] { files_->attributes(one); })) << "nobody held it";
  EXPECT_EQ(one, walk(*files_, "d/one"));
}

TEST_F(HostDirectoryTest, NamesOfOneFileAreOneNode) {
  write("one", "1");
  ASSERT_EQ(0, ::link(at("one").c_str(), at("two").c_str()));
  open();
  EXPECT_EQ(walk(*files_, "one"), walk(*files_, "two"));
  EXPECT_EQ(2u, files_->names(walk(*files_, "one")).paths.size());
  files_->unlink(kRootNode, "one");
  EXPECT_EQ("1", text_of(*files_, walk(*files_, "two")));
}

TEST_F(HostDirectoryTest, ANodeFollowsWhatOthersRenameOnceItWasSeenThere) {
  write("d/sub/one", "1");
  open();
  const NodeId one = walk(*files_, "d/sub/one");
  std::filesystem::rename(at("d"), at("e"));
  EXPECT_EQ(Errc::not_found, code_of([&] { files_->attributes(one); }));
  EXPECT_EQ(one, walk(*files_, "e/sub/one"));
  EXPECT_EQ((std::vector<std::string>{"e/sub/one"}), files_->names(one).paths);
}

// Directories that others move into one another can be seen as a circle.
TEST_F(HostDirectoryTest, DirectoriesThatOthersTurnInsideOutEndNoWalk) {
  write("a/b/one", "1");
  open();
  const NodeId a = walk(*files_, "a"), b = walk(*files_, "a/b"), one = walk(*files_, "a/b/one");
  for (const NodeId node : {a, b, one}) files_->retain(node);
  std::filesystem::rename(at("a/b"), at("b"));
  std::filesystem::rename(at("a"), at("b/a"));
  EXPECT_EQ(b, walk(*files_, "b"));
  EXPECT_EQ(a, walk(*files_, "b/a"));
  EXPECT_EQ("1", text_of(*files_, walk(*files_, "b/one")));
  for (const NodeId node : {one, b, a}) files_->release(node);
}

TEST_F(HostDirectoryTest, NoPathLeadsOut) {
  write("d/one", "1");
  support::TemporaryDirectory outside;
  std::ofstream(outside.path() + "/one") << "outside";
  open();
  const NodeId directory = walk(*files_, "d"), one = walk(*files_, "d/one");
  std::filesystem::remove_all(at("d"));
  std::filesystem::create_directory_symlink(outside.path(), at("d"));
  EXPECT_EQ(Errc::not_found, code_of([&] { files_->attributes(one); }));
  EXPECT_EQ(Errc::not_found, code_of([&] { files_->lookup(directory, "one"); }));
  EXPECT_EQ(Errc::not_found, code_of([&] { files_->make_node(directory, "new", S_IFREG | 0644, 0, {}); }));
  EXPECT_FALSE(std::filesystem::exists(outside.path() + "/new"));
  EXPECT_FALSE(code_of([&] { EXPECT_EQ(std::nullopt, files_->lookup(kRootNode, "..")); }));
}

TEST_F(HostDirectoryTest, AListingGoesOnWhereItEnded) {
  for (int i = 0; i < 300; ++i) write("f" + std::to_string(i), "");
  open();
  EXPECT_EQ(302u, names_in(*files_, kRootNode, 7).size());
}

// As many files as no process may have open.
TEST_F(HostDirectoryTest, DescriptorsAreBounded) {
  open();
  const auto count = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  const auto before = count();
  for (int i = 0; i < 2000; ++i) {
    const NodeId node =
        files_->make_node(kRootNode, std::to_string(i), S_IFREG | 0644, 0, {::getuid(), ::getgid()}).node;
    files_->retain(node);
    files_->write(node, 0, std::as_bytes(std::span("x", 1)), session::WriteOrigin::call);
  }
  EXPECT_LT(count(), before + 400);
}

TEST_F(HostDirectoryTest, WhatTookItsOwnPermissionsAwayIsRemovedAllTheSame) {
  write("d/e/one", "1");
  ASSERT_EQ(0, ::chmod(at("d/e").c_str(), 0));
  ASSERT_EQ(0, ::chmod(at("d").c_str(), 0500));
  const pid_t child = ::fork();
  if (child == 0) {
    // Root is above permissions.
    if (::geteuid() == 0 &&
        (::chown(at("d/e/one").c_str(), 65534, 65534) != 0 || ::chown(at("d/e").c_str(), 65534, 65534) != 0 ||
         ::chown(at("d").c_str(), 65534, 65534) != 0 || ::chown(host_.path().c_str(), 65534, 65534) != 0 ||
         ::setgid(65534) != 0 || ::setuid(65534) != 0)) {
      ::_exit(2);
    }
    try {
      remove_tree(at("d"));
      ::_exit(0);
    } catch (const Error&) {
      ::_exit(1);
    }
  }
  int status = 0;
  ASSERT_EQ(child, ::waitpid(child, &status, 0));
  EXPECT_EQ(0, WEXITSTATUS(status));
  EXPECT_FALSE(std::filesystem::exists(at("d")));
}

// ---- the table ----

class MountTableTest : public HostDirectoryTest {
 protected:
  MountTableTest() {
    session::Overlay::Options options;
    options.base_tree = objects_.put_files({{"dir/in", "in"}, {"dir/hidden/x", "x"}, {"top", "top"}});
    overlay_ = std::make_unique<session::Overlay>(options, objects_, staging_, journal_, clock_, log_);
    gate_ = std::make_unique<WriteGate>(*overlay_, WriteGate::Position::open);
    write("one", "1");
    open();
    table_ = std::make_unique<MountTable>(
        *gate_, [this](NodeId node) { return overlay_->names(node); }, *gate_,
        std::vector<MountTable::Entry>{{path_of("dir/hidden"), files_, false, true},
                                       {path_of("on/way"), files_, true, true}},
        MountTable::Owner{7, 8, {}});
  }
  NodeId at_path(const std::string& path) { return walk(*table_, path); }

  support::FakeObjectStore objects_;
  support::FakeStaging staging_;
  support::FakeJournal journal_;
  session::SystemClock clock_;
  session::NullLog log_;
  std::unique_ptr<session::Overlay> overlay_;
  std::unique_ptr<WriteGate> gate_;
  std::unique_ptr<MountTable> table_;
};

TEST_F(MountTableTest, EachEntryHasNodesOfItsOwn) {
  const NodeId first = at_path("dir/hidden/one"), second = at_path("on/way/one");
  EXPECT_NE(first, second);
  EXPECT_EQ("1", text_of(*table_, first));
  EXPECT_EQ("1", text_of(*table_, second));
  EXPECT_LT(second.value, std::uint64_t{1} << 53) << "exact as a number of JavaScript";
  EXPECT_EQ((std::vector<std::string>{"on/way/one"}), table_->names(second).paths);
  EXPECT_EQ((std::vector<std::string>{"on"}), table_->names(at_path("on")).paths);
  EXPECT_EQ((std::vector<std::string>{"on/way"}), table_->names(at_path("on/way")).paths);
  EXPECT_TRUE(table_->is_volatile(second));
  EXPECT_FALSE(table_->is_volatile(at_path("top")));
  EXPECT_FALSE(table_->is_volatile(at_path("on")));
}

TEST_F(MountTableTest, ListingsHaveEachNameOnceWhateverThePages) {
  for (const std::size_t page : {1u, 2u, 3u, 1000u}) {
    EXPECT_EQ((std::set<std::string>{".", "..", "dir", "on", "top"}), names_in(*table_, kRootNode, page));
    EXPECT_EQ((std::set<std::string>{".", "..", "hidden", "in"}), names_in(*table_, at_path("dir"), page));
    EXPECT_EQ((std::set<std::string>{".", "..", "way"}), names_in(*table_, at_path("on"), page));
  }
}

TEST_F(MountTableTest, WhatTheRepositoryHasIsKnownToBeHidden) {
  EXPECT_TRUE(table_->hides(path_of("dir/hidden")));
  EXPECT_FALSE(table_->hides(path_of("on/way")));
}

// An update of a session brings and takes directories.
TEST_F(MountTableTest, ADirectoryOnTheWayIsTheRepositorysAsLongAsItHasOne) {
  const NodeId of_the_table = at_path("on");
  EXPECT_EQ(7u, table_->attributes(of_the_table).uid);
  overlay_->make_node(kRootNode, "on", S_IFDIR | 0755, 0, {});
  const NodeId of_the_repository = at_path("on");
  EXPECT_NE(of_the_table, of_the_repository);
  EXPECT_EQ((std::set<std::string>{".", "..", "way"}), names_in(*table_, of_the_repository));
  EXPECT_EQ("1", text_of(*table_, at_path("on/way/one")));
  EXPECT_EQ(Errc::busy, code_of([&] { table_->remove_directory(kRootNode, "on"); }));
  overlay_->remove_directory(kRootNode, "on");
  EXPECT_EQ(of_the_table, at_path("on"));
  EXPECT_EQ("1", text_of(*table_, at_path("on/way/one")));
}

TEST_F(MountTableTest, ASealHoldsForEntriesToo) {
  const NodeId one = at_path("dir/hidden/one");
  const auto write_as = [&](session::WriteOrigin origin) {
    return code_of([&] { table_->write(one, 0, std::as_bytes(std::span("2", 1)), origin); });
  };
  gate_->move_to(WriteGate::Position::draining);
  EXPECT_EQ(Errc::read_only, write_as(session::WriteOrigin::call));
  EXPECT_EQ(std::nullopt, write_as(session::WriteOrigin::page_cache));
  gate_->move_to(WriteGate::Position::sealed);
  EXPECT_EQ(Errc::read_only, write_as(session::WriteOrigin::page_cache));
  EXPECT_EQ(Errc::read_only, code_of([&] { table_->unlink(at_path("dir/hidden"), "one"); }));
}

// More entries than there are ranges of node ids come and go.
TEST_F(MountTableTest, AnEntryThatStaysKeepsItsNodesWhateverComesAndGoes) {
  const NodeId stays = at_path("dir/hidden/one"), leaves = at_path("on/way/one");
  table_->retain(leaves);
  const MountTable::Entry kept{path_of("dir/hidden"), files_, false, true};
  for (int round = 0; round < 9000; ++round) {
    auto fresh = std::make_shared<HostDirectory>(host_.path(), HostDirectory::Options{}, "--mount");
    table_->replace({kept, {path_of("on/way"), std::move(fresh), true, false}});
  }
  EXPECT_EQ(stays, at_path("dir/hidden/one"));
  EXPECT_NE(leaves, at_path("on/way/one"));
  EXPECT_LT(at_path("on/way/one").value, std::uint64_t{1} << 53);
  EXPECT_EQ("1", text_of(*table_, leaves)) << "the kernel holds it";
  EXPECT_TRUE(table_->names(leaves).paths.empty());
  table_->close_departed();
  EXPECT_EQ(std::nullopt, table_->lookup(NodeId{(leaves.value >> 40 << 40) | 1}, "one"));
  table_->release(leaves);
  EXPECT_EQ(Errc::not_found, code_of([&] { table_->attributes(leaves); }));
}

TEST_F(MountTableTest, AChangeNamesWhatTheKernelMayRemember) {
  const NodeId dir = at_path("dir"), on = at_path("on");
  const auto changed = [&](std::vector<MountTable::Entry> entries) {
    std::set<std::pair<std::uint64_t, std::string>> names;
    for (const auto& [directory, name] : table_->replace(std::move(entries))) names.emplace(directory.value, name);
    return names;
  };
  const MountTable::Entry hidden{path_of("dir/hidden"), files_, false, true};
  const MountTable::Entry way{path_of("on/way"), files_, true, true};
  EXPECT_TRUE(changed({hidden, way}).empty());
  EXPECT_EQ((std::set<std::pair<std::uint64_t, std::string>>{{1, "on"}, {on.value, "way"}}), changed({hidden}));
  EXPECT_EQ(std::nullopt, table_->lookup(kRootNode, "on"));
  const auto last = changed({});
  EXPECT_TRUE(last.contains({1, "dir"}) && last.contains({dir.value, "hidden"}));
  EXPECT_EQ((std::set<std::string>{".", "..", "x"}), names_in(*table_, at_path("dir/hidden")));
  changed({{path_of("dir/in"), files_, true, false}});
  EXPECT_EQ("1", text_of(*table_, at_path("dir/in/one"))) << "by the directory that was looked up before";
}

TEST_F(MountTableTest, EntriesLieBesideOneAnother) {
  EXPECT_FALSE(code_of([] { MountTable::check_paths({path_of("a"), path_of("ab"), path_of("b/c"), path_of("b/d")}); }));
  EXPECT_EQ(Errc::bad_request, code_of([] { MountTable::check_paths({path_of("a/b"), path_of("a")}); }));
  EXPECT_EQ(Errc::bad_request, code_of([] { MountTable::check_paths({path_of("a"), path_of("a")}); }));
  EXPECT_EQ(Errc::bad_request, code_of([] { MountTable::check_paths({RepoPath()}); }));
  EXPECT_EQ(Errc::bad_request, code_of([] {
              std::vector<RepoPath> many;
              for (std::size_t i = 0; i <= MountTable::kMostEntries; ++i) many.push_back(path_of(std::to_string(i)));
              MountTable::check_paths(many);
            }));
}

}  // namespace
}  // namespace escrow::storage
