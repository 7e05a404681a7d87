// What holds objects: every reference, whatever git packs, deletes or renames while they are read.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdarg>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "storage/git/reference_files.h"
#include "storage/objects/reachable.h"
#include "storage/repository/history.h"
#include "tests/storage/git_test_repository.h"

// Is called before each open(2) and readdir(3) of the thread that set it; an errno to fail with, or 0.
static thread_local std::function<int(int number)>* watching_looks = nullptr;
static thread_local int looks = 0;

// False, with errno set: the call is to fail.
static bool may_look() {
  auto* const watcher = std::exchange(watching_looks, nullptr);
  const int error = watcher == nullptr ? 0 : (*watcher)(++looks);
  watching_looks = watcher;
  if (error != 0) errno = error;
  return error == 0;
}

// In front of the C library's: ours end in 64 where file offsets have 64 bits, libgit2's may be the others.
#define LISTS(function)                                                                            \
  extern "C" dirent* watched_##function(DIR* directory) __asm__(#function);                        \
  extern "C" dirent* watched_##function(DIR* directory) {                                          \
    static const auto next = reinterpret_cast<dirent* (*)(DIR*)>(::dlsym(RTLD_NEXT, #function));   \
    return may_look() ? next(directory) : nullptr;                                                 \
  }
LISTS(readdir)
LISTS(readdir64)

#define OPENS(function)                                                                                       \
  extern "C" int watched_##function(const char* path, int flags, ...) __asm__(#function);                     \
  extern "C" int watched_##function(const char* path, int flags, ...) {                                       \
    va_list rest;                                                                                             \
    va_start(rest, flags);                                                                                    \
    const unsigned mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, unsigned) : 0;                  \
    va_end(rest);                                                                                             \
    static const auto next =                                                                                  \
        reinterpret_cast<int (*)(const char*, int, ...)>(::dlsym(RTLD_NEXT, #function));                      \
    return may_look() ? next(path, flags, mode) : -1;                                                         \
  }
OPENS(open)
OPENS(open64)

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using session::Errc;
using session::Error;
using session::ObjectId;
using Values = std::map<std::string, ObjectId>;

// Returns how often `work` looked.
int watch_looks(std::function<int(int number)> watcher, const std::function<void()>& work) {
  looks = 0;
  watching_looks = &watcher;
  try {
    work();
  } catch (...) {
    watching_looks = nullptr;
    throw;
  }
  watching_looks = nullptr;
  return looks;
}

// More than any reading takes.
constexpr int kMostLooks = 1000;

class Reachable : public testing::Test {
 protected:
  Reachable() {
    for (const char* name : {"refs/heads/main", "refs/heads/topic/one", "refs/heads/topic/two", "refs/notes/commits",
                             "refs/tags/a/b/c", "refs/tags/v1", "refs/tags/v2"}) {
      const ObjectId id = GitTestRepository::put_file(*quarantine_, "f", name);
      keep_.push_back(quarantine_->publish(id));
      all_[name] = id;
    }
    loosen();
  }

  std::string path(const std::string& name) const { return repository_.path + "/" + name; }
  void write(const std::string& name, const std::string& content) const {
    fs::create_directories(fs::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::trunc) << content;
  }
  // Every reference in a file of its own.
  void loosen() const {
    for (const auto& [name, id] : all_) write(name, id.hex() + "\n");
    fs::remove(path("packed-refs"));
  }
  void pack() const { repository_.git("pack-refs --all --prune"); }
  // Git packs every reference before each look, one after the other; `read` finds them all each time.
  void expect_all(const std::function<Values()>& read, const std::string& directory) const {
    Values expected;
    for (const auto& [name, id] : all_)
      if (name.starts_with(directory)) expected.emplace(name, id);
    for (int step = 1;; ++step) {
      ASSERT_LT(step, kMostLooks);
      loosen();
      Values found;
      const int count = watch_looks(
          [&](int number) {
            if (number == step) pack();
            return 0;
          },
          [&] { found = read(); });
      EXPECT_EQ(found, expected) << "packed before look " << step;
      if (count < step) break;
    }
  }
  Values read(const std::string& directory) const {
    Values found;
    for (const Reference& reference : read_references(repository_.path, directory))
      if (reference.id) found.emplace(reference.name, *reference.id);
    return found;
  }
  std::set<std::string> damaged() const {
    std::set<std::string> names;
    read_references(repository_.path, "refs/", [&](const std::string& name, const Error& error) {
      EXPECT_EQ(error.code(), Errc::damaged_repository);
      EXPECT_NE(std::string(error.what()).find(path(name)), std::string::npos) << error.what();
      names.insert(name);
    });
    return names;
  }

  GitTestRepository repository_;
  const std::unique_ptr<GitQuarantine> quarantine_ = repository_.quarantine();
  std::vector<std::unique_ptr<session::Quarantine::Published>> keep_;
  Values all_;
};

TEST_F(Reachable, ReferencesThatGitPacksMeanwhileAreRead) {
  expect_all([this] { return read("refs/"); }, "refs/");
}

TEST_F(Reachable, RootsThatGitPacksMeanwhileAreFound) {
  expect_all(
      [this] {
        Values found;
        for (const Root& root : all_roots(repository_.pool->borrow().get()))
          if (root.required && root.origin != "HEAD") found.emplace(root.origin, root.id);
        return found;
      },
      "refs/");
}

TEST_F(Reachable, BranchesThatGitPacksMeanwhileAreListed) {
  expect_all(
      [this] {
        Values found;
        for (const auto& [branch, head] : list_branches(repository_.pool->borrow().get()))
          found.emplace("refs/heads/" + branch, head);
        return found;
      },
      "refs/heads/");
}

TEST_F(Reachable, ACommitWhoseTagGitPacksMeanwhileIsReferenced) {
  const std::string tag = "refs/tags/a/b/c";
  expect_all(
      [&] {
        Values found;
        const auto handle = repository_.pool->borrow();
        if (is_referenced(handle.get(), all_.at(tag))) found.emplace(tag, all_.at(tag));
        return found;
      },
      tag);
}

// In one transaction of git's, to a name that comes first and one that comes last.
TEST_F(Reachable, AReferenceThatGetsAnotherNameMeanwhileIsRead) {
  const std::string id = all_.at("refs/heads/main").hex();
  write("rename", "create refs/heads/a " + id + "\ncreate refs/heads/z " + id + "\ndelete refs/heads/main\n");
  for (int step = 1;; ++step) {
    ASSERT_LT(step, kMostLooks);
    loosen();
    for (const char* name : {"refs/heads/a", "refs/heads/z"}) fs::remove(path(name));
    std::set<std::string> found;
    const int count = watch_looks(
        [&](int number) {
          if (number == step) run("git -C " + repository_.path + " update-ref --stdin <" + path("rename"));
          return 0;
        },
        [&] {
          for (const auto& [name, value] : read("refs/heads/")) found.insert(value.hex());
        });
    EXPECT_TRUE(found.contains(id)) << "renamed before look " << step;
    if (count < step) break;
  }
}

TEST_F(Reachable, FilesThatVanishInEveryPassEndInBusy) {
  const std::string id = all_.at("refs/heads/main").hex() + "\n";
  const auto name = [](int number) { return "refs/heads/" + std::to_string(number); };
  const auto read_while_they_vanish = [&] {
    watch_looks(
        [&](int number) {
          fs::remove(path(name(number - 1)));
          write(name(number), id);
          return 0;
        },
        [this] { read("refs/heads/"); });
  };
  EXPECT_EQ(error_of(read_while_they_vanish).code(), Errc::busy);
}

TEST_F(Reachable, ALooseValueCountsBeforeAPackedOne) {
  pack();
  const ObjectId moved = all_.at("refs/tags/v1");
  write("refs/heads/main", moved.hex() + "\n");
  EXPECT_EQ(read("refs/heads/").at("refs/heads/main"), moved);
}

TEST_F(Reachable, LockFilesAndHiddenFilesAreNoReferences) {
  for (const char* name : {"refs/heads/main.lock", "refs/heads/.hidden", "refs/heads/.d/x", "refs/heads/d.lock/x"})
    write(name, "not an id\n");
  EXPECT_EQ(read("refs/"), all_);
}

TEST_F(Reachable, SymbolicReferencesAreReadAsSuchAndListedWithTheirTargets) {
  repository_.git("symbolic-ref refs/heads/alias refs/heads/main");
  repository_.git("symbolic-ref refs/heads/unborn refs/heads/none");
  write("refs/heads/tabbed", "ref:\trefs/tags/v1 \n");
  fs::create_symlink("refs/heads/topic/one", path("refs/heads/link"));
  std::map<std::string, std::string> symbolic;
  for (const Reference& reference : read_references(repository_.path, "refs/heads/"))
    if (!reference.id) symbolic.emplace(reference.name, reference.points_to);
  const std::map<std::string, std::string> expected{{"refs/heads/alias", "refs/heads/main"},
                                                    {"refs/heads/link", "refs/heads/topic/one"},
                                                    {"refs/heads/tabbed", "refs/tags/v1"},
                                                    {"refs/heads/unborn", "refs/heads/none"}};
  EXPECT_EQ(symbolic, expected);
  std::map<std::string, ObjectId> branches;
  for (const auto& [branch, head] : list_branches(repository_.pool->borrow().get())) branches.emplace(branch, head);
  EXPECT_EQ(branches.at("alias"), all_.at("refs/heads/main"));
  EXPECT_EQ(branches.at("link"), all_.at("refs/heads/topic/one"));
  EXPECT_EQ(branches.at("tabbed"), all_.at("refs/tags/v1"));
  EXPECT_FALSE(branches.contains("unborn"));
}

TEST_F(Reachable, EachKindOfDamageIsNamedAndTheOthersAreRead) {
  const std::string id = all_.at("refs/heads/main").hex();
  write("refs/heads/empty", "");
  write("refs/heads/garbage", "not an id\n");
  write("refs/heads/longer", id + "0\n");
  write("refs/heads/null", std::string(40, '0') + "\n");
  write("refs/heads/points", "ref: nowhere at all\n");
  write("refs/heads/two..dots", id + "\n");
  fs::create_symlink("/nowhere", path("refs/heads/link"));
  const std::set<std::string> expected{"refs/heads/empty",  "refs/heads/garbage", "refs/heads/link",
                                       "refs/heads/longer", "refs/heads/null",    "refs/heads/points",
                                       "refs/heads/two..dots"};
  EXPECT_EQ(damaged(), expected);
  Values found;
  for (const Reference& one : read_references(repository_.path, "refs/", [](const std::string&, const Error&) {}))
    found.emplace(one.name, *one.id);
  EXPECT_EQ(found, all_);
  EXPECT_EQ(error_of([this] { read("refs/"); }).code(), Errc::damaged_repository);
}

TEST_F(Reachable, ADamagedPackedRefsIsNamed) {
  pack();
  std::ofstream(path("packed-refs"), std::ios::app) << "half a li";
  write("refs/heads/loose", all_.at("refs/heads/main").hex() + "\n");
  EXPECT_EQ(damaged(), std::set<std::string>{"packed-refs"});
  EXPECT_EQ(error_of([this] { read("refs/"); }).code(), Errc::damaged_repository);
}

TEST_F(Reachable, ALookThatFailsIsAnError) {
  int count = 0;
  for (int step = 1; step == 1 || step <= count; ++step) {
    const auto fail = [&] {
      watch_looks([&](int number) { return number == step ? EIO : 0; }, [this] { read("refs/"); });
    };
    EXPECT_EQ(error_of(fail).code(), Errc::input_output) << "look " << step;
    count = watch_looks([](int) { return 0; }, [this] { read("refs/"); });
  }
  fs::create_symlink("loop", path("refs/heads/loop"));  // ELOOP, as EMFILE or EACCES elsewhere
  EXPECT_EQ(error_of([this] { read("refs/"); }).code(), Errc::input_output);
  EXPECT_EQ(error_of([this] { all_roots(repository_.pool->borrow().get()); }).code(), Errc::input_output);
}

TEST_F(Reachable, WhatALinkedWorkTreeHasOfItsOwnIsARoot) {
  const std::string tree = repository_.scratch("tree");
  run("git -C " + repository_.path + " worktree add -q --detach " + tree + " main");
  const std::map<std::string, std::string> own{{"refs/bisect/bad", "worktrees/tree/refs/bisect/bad"},
                                               {"refs/rewritten/onto", "worktrees/tree/refs/rewritten/onto"},
                                               {"refs/worktree/mine", "worktrees/tree/refs/worktree/mine"}};
  for (const auto& [name, origin] : own) run("git -C " + tree + " update-ref " + name + " refs/tags/v1");
  run("git -C " + tree + " update-ref MERGE_HEAD refs/tags/v2");
  std::set<std::string> origins;
  bool has_merge_head = false;
  for (const Root& root : all_roots(repository_.pool->borrow().get())) {
    if (root.required && root.id == all_.at("refs/tags/v1")) origins.insert(root.origin);
    has_merge_head = has_merge_head || (root.origin == "MERGE_HEAD" && root.id == all_.at("refs/tags/v2"));
  }
  for (const auto& [name, origin] : own) EXPECT_TRUE(origins.contains(origin)) << name;
  EXPECT_TRUE(has_merge_head);
  write("worktrees/tree/refs/bisect/good", "");
  const Error error = error_of([this] { all_roots(repository_.pool->borrow().get()); });
  EXPECT_NE(std::string(error.what()).find("worktrees/tree/refs/bisect/good"), std::string::npos) << error.what();
}

TEST_F(Reachable, GcRefusesADamagedReferenceAndVerifyNamesItAndGoesOn) {
  write("refs/tags/a/b/damaged", "");
  const std::string blob = run("echo lost | git -C " + repository_.path + " hash-object -w --stdin");
  write("refs/tags/v2", blob + "\n");
  fs::remove(path("objects/" + blob.substr(0, 2) + "/" + blob.substr(2)));
  const auto repository = Repository::open(repository_.path, silent);
  const std::string before = run("find " + path("objects") + " -type f | sort");
  const Error error = error_of([&] { repository->gc(git_program(repository_.path)); });
  EXPECT_EQ(error.code(), Errc::damaged_repository);
  EXPECT_NE(std::string(error.what()).find("refs/tags/a/b/damaged"), std::string::npos) << error.what();
  EXPECT_EQ(run("find " + path("objects") + " -type f | sort"), before);
  std::set<std::string> named;
  for (const Problem& problem : repository->verify(nullptr)) named.insert(problem.where);
  EXPECT_EQ(named, (std::set<std::string>{"reference refs/tags/a/b/damaged", "object " + blob}));
}

TEST_F(Reachable, ADamagedReferenceHidesNoOtherAndHoldsNothing) {
  write("refs/heads/damaged", "not an id\n");
  const auto handle = repository_.pool->borrow();
  EXPECT_TRUE(is_referenced(handle.get(), all_.at("refs/tags/v1")));
  fs::remove(path("refs/tags/v1"));
  EXPECT_FALSE(is_referenced(handle.get(), all_.at("refs/tags/v1")));
}

}  // namespace
}  // namespace escrow::storage
