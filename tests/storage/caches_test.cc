// Caches on a real disk: what sessions see, what publishing leaves when it is killed at each step, and what is removed.
#include "storage/caches/caches.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "session/base/error.h"
#include "storage/disk/lock_file.h"
#include "tests/support/loop_disk.h"
#include "tests/support/temporary_directory.h"

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using session::Attributes;
using session::Errc;
using session::Error;
using session::kRootNode;
using session::NodeId;
using Files = std::shared_ptr<session::EntryFileSystem>;

constexpr std::uint64_t kEnough_bytes = std::uint64_t{1} << 40;

class CachesTest : public testing::Test {
 protected:
  Files open(const std::string& session, const std::string& cache = "c", Caches::Place place = {}) {
    fs::create_directories(session_path(session));
    return caches_.open(session_path(session), cache, {::geteuid(), ::getegid(), 022}, place, "tests");
  }
  std::string session_path(const std::string& session) const { return state_.path() + "/sessions/" + session; }
  void publish(const std::string& session, std::uint64_t most_bytes = kEnough_bytes) {
    caches_.publish(session_path(session), most_bytes);
    end(session);
  }
  std::vector<std::string> drop_changes(const std::string& session) {
    return caches_.drop_changes(session_path(session));
  }
  // The names in the session's directory of caches, and of the copies that wait to be removed.
  std::string copies(const std::string& session) const {
    std::vector<std::string> names;
    for (const std::string& path : {session_path(session) + "/caches", state_.path() + "/caches/.removed"}) {
      if (!fs::is_directory(path)) continue;
      for (const fs::directory_entry& entry : fs::directory_iterator(path)) names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    std::string all;
    for (const std::string& name : names) all += name + " ";
    return all;
  }
  void end(const std::string& session) { fs::remove_all(session_path(session)); }

  static NodeId walk(session::FileSystem& files, const std::string& path) {
    NodeId node = kRootNode;
    for (const fs::path& name : fs::path(path)) node = files.lookup(node, name.string()).value().node;
    return node;
  }
  static bool has(session::FileSystem& files, const std::string& path) {
    NodeId node = kRootNode;
    for (const fs::path& name : fs::path(path)) {
      const std::optional<Attributes> found = files.lookup(node, name.string());
      if (!found) return false;
      node = found->node;
    }
    return true;
  }
  static NodeId parent(session::FileSystem& files, const std::string& path) {
    return walk(files, fs::path(path).parent_path().string());
  }
  static void make(session::FileSystem& files, const std::string& path, const std::string& text) {
    const NodeId made =
        files.make_node(parent(files, path), fs::path(path).filename().string(), S_IFREG | 0644, 0, me()).node;
    put(files, made, text);
  }
  static void make_directory(session::FileSystem& files, const std::string& path) {
    files.make_node(parent(files, path), fs::path(path).filename().string(), S_IFDIR | 0755, 0, me());
  }
  static void put(session::FileSystem& files, NodeId node, const std::string& text) {
    files.write(node, 0, std::as_bytes(std::span(text)), session::WriteOrigin::call);
  }
  static std::string text_of(session::FileSystem& files, NodeId node) {
    std::string text(100, '\0');
    text.resize(files.read(node, 0, std::as_writable_bytes(std::span(text))));
    return text;
  }
  static std::string text_at(session::FileSystem& files, const std::string& path) {
    return text_of(files, walk(files, path));
  }
  static session::Caller me() { return {::geteuid(), ::getegid()}; }
  std::size_t generations(const std::string& cache = "c") const {
    std::size_t count = 0;
    for (const fs::directory_entry& entry : fs::directory_iterator(state_.path() + "/caches/" + cache))
      count += entry.is_directory() && !entry.is_symlink() ? 1 : 0;
    return count;
  }
  // Its process ends by SIGKILL where `die` says.
  template <typename Work>
  static void killed(Work work) {
    const pid_t child = ::fork();
    if (child == 0) {
      work();
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(child, ::waitpid(child, &status, 0));
    ASSERT_TRUE(WIFSIGNALED(status)) << "it was not killed";
  }

  support::TemporaryDirectory state_;
  Caches caches_{state_.path()};
};

TEST_F(CachesTest, ASessionSeesWhatTheLastPublishedAndNothingOfOthersBeforeThat) {
  const Files first = open("1");
  make_directory(*first, "d");
  make(*first, "d/one", "one");
  EXPECT_FALSE(has(*open("2"), "d")) << "nothing is published yet";
  publish("1");
  const Files third = open("3");
  EXPECT_EQ("one", text_at(*third, "d/one"));
  EXPECT_FALSE(has(*open("2"), "d")) << "it goes on with what it had";
  put(*third, walk(*third, "d/one"), "two");
  EXPECT_EQ("one", text_at(*open("4"), "d/one"));
  EXPECT_EQ("two", text_at(*open("3"), "d/one")) << "the same session again, from another process";
  publish("3");
  EXPECT_EQ("one", text_at(*open("4"), "d/one")) << "its generation stays while it is over it";
  EXPECT_EQ("two", text_at(*open("5"), "d/one"));
  end("4");
  end("5");
  end("2");
  EXPECT_EQ(2u, generations());
  caches_.collect(kEnough_bytes);
  EXPECT_EQ(1u, generations());
}

TEST_F(CachesTest, NothingBelowIsChangedByAnyCallOfASession) {
  const Files first = open("1");
  make_directory(*first, "d");
  for (const char* name : {"written", "cut", "mode", "renamed", "replaced", "linked", "gone", "held"})
    make(*first, std::string("d/") + name, "before");
  publish("1");
  const Files two = open("2");
  const NodeId d = walk(*two, "d");
  put(*two, walk(*two, "d/written"), "after!");
  two->change_attributes(walk(*two, "d/cut"), {.size_bytes = 0});
  two->change_attributes(walk(*two, "d/mode"), {.mode = 0600});
  two->rename(d, "renamed", d, "new name", session::RenameMode::replace);
  make(*two, "d/new", "after!");
  two->rename(d, "new", d, "replaced", session::RenameMode::replace);
  two->link(walk(*two, "d/linked"), kRootNode, "second name");
  put(*two, walk(*two, "second name"), "after!");
  two->unlink(d, "gone");
  const NodeId held = walk(*two, "d/held");
  two->retain(held);
  two->unlink(d, "held");
  put(*two, held, "after!");
  EXPECT_EQ("after!", text_of(*two, held)) << "a file without a name that somebody has open";
  EXPECT_EQ("after!", text_at(*two, "d/linked"));
  EXPECT_EQ(2u, two->attributes(walk(*two, "d/linked")).links);
  const Files three = open("3");
  for (const char* name : {"written", "cut", "mode", "renamed", "replaced", "linked", "gone", "held"}) {
    const NodeId node = walk(*three, std::string("d/") + name);
    EXPECT_EQ("before", text_of(*three, node)) << name;
    EXPECT_EQ(1u, three->attributes(node).links) << name;
    EXPECT_EQ(static_cast<std::uint32_t>(S_IFREG | 0644), three->attributes(node).mode) << name;
  }
  EXPECT_FALSE(has(*three, "d/new name"));
}

TEST_F(CachesTest, NodesAreTheSameBeforeAndAfterTheFirstChange) {
  const Files first = open("1");
  make(*first, "one", "one");
  publish("1");
  const Files two = open("2");
  const NodeId before = walk(*two, "one");
  two->retain(before);
  const session::Timestamp directory_time = two->attributes(kRootNode).modified;
  put(*two, before, "new");
  EXPECT_EQ("new", text_of(*two, before));
  EXPECT_EQ(before, walk(*two, "one"));
  EXPECT_EQ(directory_time, two->attributes(kRootNode).modified) << "no name came or went";
  two->release(before);
  EXPECT_EQ(before, walk(*two, "one"));
}

TEST_F(CachesTest, TimesModesAndLinksAreKeptExactly) {
  const Files first = open("1");
  for (const char* name : {"d", "d/e", "far"}) make_directory(*first, name);
  make(*first, "d/one", "one");
  first->link(walk(*first, "d/one"), walk(*first, "far"), "one");
  first->link(walk(*first, "d/one"), kRootNode, "one");
  first->make_symlink(walk(*first, "d/e"), "link", "../one", me());
  const session::Timestamp past{1'000'000'000, 123'456'789};
  for (const char* path : {"d/one", "d/e/link", "d/e", "d"})
    first->change_attributes(walk(*first, path), {.accessed = past, .modified = past});
  first->change_attributes(walk(*first, "d/e"), {.mode = 0500});
  first->change_attributes(walk(*first, "d/one"), {.mode = 06755});
  publish("1");
  for (const char* session : {"2", "3"}) {  // the second time through another generation
    const Files files = open(session);
    for (const char* path : {"d/one", "d/e/link", "d/e", "d"})
      EXPECT_EQ(past, files->attributes(walk(*files, path)).modified) << path;
    EXPECT_EQ(0500u, files->attributes(walk(*files, "d/e")).mode & 07777);
    EXPECT_EQ(06755u, files->attributes(walk(*files, "d/one")).mode & 07777);
    EXPECT_EQ("../one", files->read_link(walk(*files, "d/e/link")));
    EXPECT_EQ(3u, files->attributes(walk(*files, "d/one")).links) << "of names in directories not looked into yet, too";
    EXPECT_EQ(walk(*files, "one"), walk(*files, "far/one"));
    put(*files, walk(*files, "one"), session);
    EXPECT_EQ(session, text_at(*files, "far/one").substr(0, 1));
    files->change_attributes(walk(*files, "one"), {.accessed = past, .modified = past});
    if (std::string(session) == "2") publish(session);
  }
}

TEST_F(CachesTest, AKillAtAnyStepLeavesTheOldOrTheNewStateAndTheNextTryEnds) {
  int number = 0;
  for (const CacheStep step :
       {CacheStep::completed, CacheStep::synced, CacheStep::moved, CacheStep::published, CacheStep::retired}) {
    const std::string before = std::to_string(++number), dying = std::to_string(++number);
    const Files old = open(before);
    if (has(*old, "d/one")) {
      old->unlink(walk(*old, "d"), "one");
    } else {
      make_directory(*old, "d");
    }
    make(*old, "d/one", before);
    if (!has(*old, "d/kept")) make(*old, "d/kept", "kept");
    publish(before);
    const Files files = open(dying);
    put(*files, walk(*files, "d/one"), dying);
    killed([&] {
      caches_.publish(session_path(dying), kEnough_bytes, [&](CacheStep reached) {
        if (reached == step) ::kill(::getpid(), SIGKILL);
      });
    });
    EXPECT_TRUE(caches_.check().empty());
    const std::string seen = text_at(*open("look"), "d/one");
    EXPECT_EQ(step < CacheStep::published ? before : dying, seen) << static_cast<int>(step);
    EXPECT_EQ("kept", text_at(*open("look"), "d/kept"));
    end("look");
    publish(dying);  // as recovery does
    if (step < CacheStep::moved) {
      EXPECT_EQ(dying, text_at(*open("look"), "d/one"));
    }
    EXPECT_EQ("kept", text_at(*open("look"), "d/kept"));
    end("look");
    caches_.collect(kEnough_bytes);
    EXPECT_EQ(1u, generations());
  }
}

TEST_F(CachesTest, WhoPublishesLastWinsAndEachStateIsWhole) {
  const Files base = open("base");
  for (int i = 0; i < 20; ++i) make(*base, "f" + std::to_string(i), "base");
  publish("base");
  std::vector<std::thread> threads;
  for (const char* session : {"1", "2", "3", "4"}) {
    threads.emplace_back([this, session] {
      const Files files = open(session);
      for (int i = 0; i < 20; ++i) put(*files, walk(*files, "f" + std::to_string(i)), std::string(4, *session));
      caches_.publish(session_path(session), kEnough_bytes);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Files files = open("look");
  const std::string winner = text_at(*files, "f0");
  EXPECT_NE("base", winner);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(winner, text_at(*files, "f" + std::to_string(i)));
}

TEST_F(CachesTest, WhatWasNotChangedIsNotPublishedAgain) {
  make(*open("1"), "one", "one");
  publish("1");
  const Files two = open("2"), three = open("3");
  EXPECT_EQ("one", text_at(*two, "one"));
  make(*three, "two", "two");
  publish("3");
  publish("2");
  EXPECT_TRUE(has(*open("4"), "two"));
}

TEST_F(CachesTest, AfterACrashOfTheMachineASessionsCopyBeginsAnew) {
  make(*open("1"), "one", "one");
  publish("1");
  const Files two = open("2");
  put(*two, walk(*two, "one"), "two");
  // The era of another boot.
  const std::string about = session_path("2") + "/caches/c/about";
  std::ofstream(about) << "1\n12345\n";
  EXPECT_THROW(caches_.publish(session_path("2"), kEnough_bytes), Error);
  EXPECT_EQ("one", text_at(*open("look"), "one"));
  EXPECT_EQ("one", text_at(*open("2"), "one"));
}

// What was not synced is gone when the file system shut down after an I/O error: the same boot, the same device.
TEST_F(CachesTest, AfterItsDiskWasMountedAgainASessionsCopyBeginsAnew) {
  std::unique_ptr<support::LoopDisk> disk;
  ESCROW_NEEDS_LOOP_DISK(disk, "ext4");
  const Caches caches(disk->path());
  const auto open_there = [&](const std::string& session) {
    fs::create_directories(disk->path() + "/sessions/" + session);
    return caches.open(disk->path() + "/sessions/" + session, "c", {::geteuid(), ::getegid(), 022}, {}, "tests");
  };
  make(*open_there("1"), "one", "one");
  caches.publish(disk->path() + "/sessions/1", kEnough_bytes);
  {
    const Files two = open_there("2");
    put(*two, walk(*two, "one"), "two");
  }
  EXPECT_EQ("two", text_at(*open_there("2"), "one")) << "it is still mounted";
  disk->unmount_and_mount();
  EXPECT_THROW(caches.publish(disk->path() + "/sessions/2", kEnough_bytes), Error);
  EXPECT_EQ("one", text_at(*open_there("2"), "one"));
}

TEST_F(CachesTest, LeastRecentlyUsedOnesGoAndNeverOneThatIsOpen) {
  const std::string bytes(1 << 20, 'x');
  for (const char* name : {"oldest", "open", "newer"}) {
    make(*open("of", name), "f", bytes);
    publish("of");
    const std::string used = state_.path() + "/caches/" + name + "/used";
    const timespec times[2] = {{1'000'000 + *name, 0}, {1'000'000 + (*name == 'o' && name[1] == 'l' ? 0 : *name), 0}};
    ASSERT_EQ(0, ::utimensat(AT_FDCWD, used.c_str(), times, 0));
  }
  const Files held = open("holder", "open");
  const auto names = [&] {
    std::string all;
    for (const CacheStatus& cache : caches_.list()) all += cache.name + " ";
    return all;
  };
  EXPECT_EQ("newer oldest open ", names());
  make(*open("of", "new"), "f", bytes);
  publish("of", (3 << 20) + (1 << 19));
  EXPECT_EQ("new newer open ", names());
  make(*open("of", "last"), "f", bytes);
  publish("of", (2 << 20) + (1 << 19));
  EXPECT_EQ("last open ", names());
  EXPECT_EQ(bytes.substr(0, 100), text_at(*held, "f"));
  make(*open("of", "huge"), "f", bytes);
  EXPECT_THROW(caches_.publish(session_path("of"), 1 << 19), Error) << "more than all may have";
  EXPECT_EQ("last open ", names());
}

TEST_F(CachesTest, ADroppedCacheIsGoneForOthersAndNotForWhoHasItOpen) {
  make(*open("1"), "one", "one");
  publish("1");
  const Files two = open("2");
  EXPECT_TRUE(caches_.drop("c"));
  EXPECT_FALSE(caches_.drop("c"));
  EXPECT_EQ("one", text_at(*two, "one"));
  EXPECT_FALSE(has(*open("3"), "one"));
  make(*two, "two", "two");
  publish("2");
  EXPECT_TRUE(has(*open("4"), "one")) << "the last publisher wins";
}

TEST_F(CachesTest, AWriteIntoAFileOfSeveralNamesIsAChange) {
  const Files first = open("1");
  make(*first, "one", "one");
  first->link(walk(*first, "one"), kRootNode, "link");
  publish("1");
  const Files two = open("2");
  const NodeId link = walk(*two, "link");
  two->open(link, {.read = false, .write = true});
  put(*two, link, "two");
  two->close(link, {.read = false, .write = true});
  publish("2");
  EXPECT_EQ("two", text_at(*open("3"), "one"));
}

TEST_F(CachesTest, WhatWasDroppedIsNotPublishedAndBeginsAnew) {
  for (const char* cache : {"c", "a.b", "untouched"}) make(*open("1", cache), "one", "kept");
  publish("1");
  for (const bool is_open : {true, false}) {
    Files two = open("2"), dotted = open("2", "a.b"), untouched = open("2", "untouched");
    EXPECT_EQ("kept", text_at(*untouched, "one"));
    for (const Files& files : {two, dotted}) {
      files->unlink(kRootNode, "one");
      make(*files, "wreck", "wreck");
    }
    if (!is_open) two = dotted = untouched = nullptr;
    EXPECT_EQ((std::vector<std::string>{"a.b", "c"}), drop_changes("2"));
    caches_.remove_dropped(session_path("2"));
    EXPECT_EQ(is_open ? ".0.a.b .0.c untouched " : "untouched ", copies("2"));
    EXPECT_FALSE(Caches::has(session_path("2"), "c"));
    EXPECT_TRUE(Caches::has(session_path("2"), "untouched"));
    EXPECT_EQ(std::vector<std::string>(), drop_changes("2")) << "there is nothing to drop any more";
    const Files again = open("2");
    EXPECT_EQ("kept", text_at(*again, "one"));
    EXPECT_FALSE(has(*again, "wreck"));
    EXPECT_EQ(1u, caches_.list()[1].sessions);
    if (is_open) {
      EXPECT_EQ("wreck", text_at(*two, "wreck")) << "who has it open goes on with it";
      make(*two, "late", "late");
    }
    publish("2");
    EXPECT_EQ("kept", text_at(*open("look"), "one"));
    EXPECT_FALSE(has(*open("look"), "wreck"));
    end("look");
  }
}

TEST_F(CachesTest, WhatIsMadeBehindADropIsPublishedAndNothingOfBefore) {
  make(*open("1"), "one", "kept");
  publish("1");
  for (const char* number : {"1", "2", "3"}) {
    const Files before = open("2");
    make(*before, "wreck", number);
    drop_changes("2");
    make(*before, std::string("late") + number, "late");
  }
  const Files after = open("2");
  make(*after, "two", "new");
  publish("2");
  const Files look = open("look");
  EXPECT_EQ("new", text_at(*look, "two"));
  EXPECT_EQ("kept", text_at(*look, "one"));
  for (const char* name : {"wreck", "late1", "late2", "late3"}) EXPECT_FALSE(has(*look, name)) << name;
}

TEST_F(CachesTest, ADroppedStateStaysWhileSomebodyHasItOpen) {
  const Files first = open("1");
  for (const char* name : {"d", "d/e"}) make_directory(*first, name);
  make(*first, "d/e/one", "one");
  publish("1");
  Files old = open("2");
  make(*old, "wreck", "wreck");
  drop_changes("2");
  Files middle = open("2");
  make(*middle, "wreck", "again");
  drop_changes("2");
  EXPECT_EQ(".0.c .1.c ", copies("2"));
  make(*open("3"), "two", "two");
  publish("3");
  caches_.remove_dropped(session_path("2"));
  caches_.collect(kEnough_bytes);
  EXPECT_EQ("one", text_at(*old, "d/e/one")) << "it had not looked there before its generation was replaced";
  put(*old, walk(*old, "d/e/one"), "own");
  EXPECT_EQ("own", text_at(*old, "d/e/one"));
  middle.reset();
  caches_.remove_dropped(session_path("2"));
  EXPECT_EQ(".0.c ", copies("2"));
  old.reset();
  caches_.remove_dropped(session_path("2"));
  EXPECT_EQ("", copies("2"));
  EXPECT_EQ("two", text_at(*open("2"), "two"));
  EXPECT_TRUE(caches_.check().empty());
}

TEST_F(CachesTest, AKillWhileDroppingLeavesTheOldOrThePublishedState) {
  make(*open("1"), "one", "kept");
  make(*open("1", "other"), "one", "kept");
  publish("1");
  for (const char* cache : {"c", "other"}) make(*open("2", cache), "wreck", "wreck");
  // As if it had been killed before the second cache, and before the first one's files went.
  const std::string there = session_path("2") + "/caches/";
  fs::rename(there + "c", there + ".0.c");
  EXPECT_TRUE(caches_.check().empty());
  caches_.collect(kEnough_bytes);
  EXPECT_EQ("kept", text_at(*open("2"), "one"));
  EXPECT_TRUE(has(*open("2", "other"), "wreck"));
  EXPECT_EQ(std::vector<std::string>{"other"}, drop_changes("2")) << "the restore is asked for again";
  caches_.remove_dropped(session_path("2"));
  EXPECT_EQ("c ", copies("2"));
  publish("2");
  for (const char* cache : {"c", "other"}) EXPECT_FALSE(has(*open("look", cache), "wreck"));
}

TEST_F(CachesTest, AKillWhileADirectoryIsFilledLosesNothing) {
  const Files first = open("1");
  make_directory(*first, "d");
  for (int i = 0; i < 10; ++i) make(*first, "d/" + std::to_string(i), "x");
  first->link(walk(*first, "d/0"), kRootNode, "link");
  publish("1");
  const Files two = open("2");
  EXPECT_TRUE(has(*two, "d/3"));
  // As if it had been killed before the mark went: some names are there, and one that several have.
  const std::string copy = session_path("2") + "/caches/c", d = copy + "/tree/d";
  struct stat about {};
  ASSERT_EQ(0, ::stat(d.c_str(), &about));
  ASSERT_EQ(0, ::symlink("d", (copy + "/marks/" + std::to_string(about.st_ino)).c_str()));
  for (const char* name : {"5", "6"}) ASSERT_EQ(0, ::unlink((d + "/" + name).c_str()));
  const Files again = open("2");
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(has(*again, "d/" + std::to_string(i))) << i;
  EXPECT_EQ(2u, again->attributes(walk(*again, "link")).links);
}

TEST_F(CachesTest, NamesThatCannotBeAreRefused) {
  for (const std::string& name : {std::string(), std::string(81, 'x'), std::string("a\nb")})
    EXPECT_THROW(Caches::check_name(name, "--cache"), Error) << name;
  for (const char* name : {"..", "a/b", ".", "%2e", "lock", "\xff"}) {
    make(*open("odd", name), "f", name);
    publish("odd");
  }
  EXPECT_EQ("..", text_at(*open("look", ".."), "f"));
  EXPECT_EQ("a/b", text_at(*open("look", "a/b"), "f"));
  EXPECT_EQ(6u, caches_.list().size());
}

TEST_F(CachesTest, OnAFullDiskTheOldStateStaysAndNothingIsHalf) {
  ASSERT_EQ(0, ::mkdir((state_.path() + "/small").c_str(), 0700));
  const std::string small = state_.path() + "/small";
  if (::mount("tmpfs", small.c_str(), "tmpfs", 0, "size=2m,nr_inodes=2000") != 0) {
    const char* const required = std::getenv("REQUIRE_FUSE");
    if (required != nullptr && std::string(required) == "1") FAIL() << "cannot mount a tmpfs";
    GTEST_SKIP() << "cannot mount a tmpfs";
  }
  struct Unmounted {
    ~Unmounted() { ::umount2(path.c_str(), MNT_DETACH); }
    std::string path;
  } const unmounted{small};
  const Caches caches(small);
  const auto open_there = [&](const std::string& session) {
    fs::create_directories(small + "/sessions/" + session);
    return caches.open(small + "/sessions/" + session, "c", {::geteuid(), ::getegid(), 022}, {}, "tests");
  };
  const Files first = open_there("1");
  for (int i = 0; i < 60; ++i) {
    make_directory(*first, "d" + std::to_string(i));
    make_directory(*first, "d" + std::to_string(i) + "/e");
    make(*first, "d" + std::to_string(i) + "/e/f", "old");
  }
  caches.publish(small + "/sessions/1", kEnough_bytes);
  fs::remove_all(small + "/sessions/1");
  const Files two = open_there("2");
  put(*two, walk(*two, "d0/e/f"), "new");
  ASSERT_EQ(0, ::mkdir((small + "/ballast").c_str(), 0700));
  for (int i = 0; ::mkdir((small + "/ballast/" + std::to_string(i)).c_str(), 0700) == 0; ++i) ASSERT_LT(i, 10'000);
  try {
    caches.publish(small + "/sessions/2", kEnough_bytes);
    ADD_FAILURE() << "there is no room for another generation's directories";
  } catch (const Error& error) {
    EXPECT_EQ(Errc::no_space, error.code()) << error.what();
    EXPECT_NE(std::string(error.what()).find("the cache 'c' was not published, and is as it was"), std::string::npos);
  }
  EXPECT_THROW(put(*two, walk(*two, "d0/e/f"), std::string(3 << 20, 'y')), Error);
  fs::remove_all(small + "/sessions/2");
  fs::remove_all(small + "/ballast");
  const Files three = open_there("3");
  for (int i = 0; i < 60; ++i) EXPECT_EQ("old", text_at(*three, "d" + std::to_string(i) + "/e/f"));
  EXPECT_TRUE(caches.check().empty());
}

// As a session's host holds it.
TEST_F(CachesTest, SessionsThatCouldMeetCannotShareACache) {
  constexpr Caches::Place kByHand{.is_seen = true, .sees_others = true}, kNamed{.is_seen = true}, kHidden{};
  const auto host_of = [&](const std::string& session) {
    fs::create_directories(session_path(session));
    return lock_file(session_path(session) + "/lock", LockKind::exclusive);
  };
  UniqueFd first = host_of("first");
  const UniqueFd second = host_of("second");
  const auto meet = [&](Caches::Place one, Caches::Place other) {
    open("second", "c", kHidden);
    open("first", "c", one);
    try {
      open("second", "c", other);
      return false;
    } catch (const Error&) {
      return true;
    }
  };
  EXPECT_TRUE(meet(kByHand, kByHand));
  EXPECT_TRUE(meet(kByHand, kNamed));
  EXPECT_TRUE(meet(kNamed, kByHand));
  EXPECT_FALSE(meet(kNamed, kNamed));
  EXPECT_FALSE(meet(kByHand, kHidden));
  EXPECT_FALSE(meet(kHidden, kByHand));
  open("second", "c", kHidden);
  make(*open("first", "c", kByHand), "file", "changed");
  EXPECT_NO_THROW(open("first", "c", kByHand)) << "its own, again";
  EXPECT_EQ(drop_changes("first"), std::vector<std::string>{"c"});
  EXPECT_THROW(open("second", "c", kByHand), Error) << "the first opens it again in a moment";
  open("first", "c", kByHand);
  EXPECT_NO_THROW(open("second", "other", kByHand));
  caches_.leave_all_but(session_path("first"), {"c"});
  EXPECT_THROW(open("second", "c", kByHand), Error);
  caches_.leave_all_but(session_path("first"), {"other"});
  EXPECT_NO_THROW(open("second", "c", kByHand)) << "it is in the mount of the first no more";
  open("second", "c", kHidden);
  open("first", "c", kByHand);
  first.reset();
  EXPECT_NO_THROW(open("second", "c", kByHand)) << "the first has no host any more";
}

}  // namespace
}  // namespace escrow::storage
