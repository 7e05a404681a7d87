// What of a repository is synced before something is said or removed that rests on it, and that a sync that fails is
// told.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>
#include <vector>

#include "session/base/clock.h"
#include "session/base/log.h"
#include "storage/git/object_format.h"
#include "storage/objects/blob_cache.h"
#include "tests/storage/git_test_repository.h"
#include "tests/support/system_calls.h"

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using session::Errc;
using session::Error;
using session::ObjectId;
using session::SessionId;
using support::SystemCall;
using support::WatchedSystemCalls;

// What is synced: a file or directory, or a whole file system. Empty: nothing is.
std::string synced_by(const SystemCall& call) {
  if (call.name == "syncfs") return "all with " + call.path;
  return call.name == "fsync" ? call.path : "";
}

bool contains(const std::vector<std::string>& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

std::vector<std::string> syncs_of(const std::function<void()>& work) {
  std::vector<std::string> syncs;
  const WatchedSystemCalls calls([&](const SystemCall& call) {
    if (const std::string synced = synced_by(call); !synced.empty()) syncs.push_back(synced);
    return 0;
  });
  work();
  return syncs;
}

// The first sync of `what` fails. Whether `work` says so.
bool is_told(const std::string& what, const std::function<void()>& work) {
  bool has_failed = false;
  const WatchedSystemCalls calls([&](const SystemCall& call) {
    return synced_by(call) == what && !std::exchange(has_failed, true) ? EIO : 0;
  });
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::input_output) << error.what();
    EXPECT_TRUE(has_failed) << what << " was not synced, and yet: " << error.what();
    return has_failed;
  }
  EXPECT_TRUE(has_failed) << what << " was not synced";
  return false;
}

std::size_t count_packs(const std::string& repository) {
  const fs::directory_iterator all(repository + "/objects/pack");
  return static_cast<std::size_t>(
      std::count_if(begin(all), end(all), [](const auto& entry) { return entry.path().extension() == ".pack"; }));
}

ObjectId publish(GitQuarantine& quarantine) {
  const ObjectId commit = GitTestRepository::put_file(quarantine, "f", "content");
  quarantine.publish(commit);
  return commit;
}

TEST(RepositorySync, InitHasTheNameOfEachNewDirectoryOnDiskAlsoAfterAnAttemptThatFailed) {
  const support::TemporaryDirectory directory;
  int number = 0;
  for (const char* const above : {"", "/deep", "/deep/er"}) {
    const std::string top = fs::canonical(directory.path()).string() + "/" + std::to_string(++number);
    fs::create_directory(top);
    const auto init = [&] { Repository::init(top + "/deep/er/r.git", "main"); };
    EXPECT_TRUE(is_told(top + above, init)) << above;
    EXPECT_TRUE(is_told(top + above, init)) << above << ", again";
    EXPECT_TRUE(contains(syncs_of(init), top + above)) << above;
  }
}

TEST(RepositorySync, ARepositoryOfManyFilesIsSyncedAsAWholeBeforeItIsEscrows) {
  const support::TemporaryDirectory directory;
  const std::string path = fs::canonical(directory.path()).string() + "/r.git";
  run("git init -q --bare " + path);
  for (int n = 0; n < 1100; ++n) fs::create_directory(path + "/refs/heads/" + std::to_string(n));
  const auto init = [&] { Repository::init(path, "main"); };
  EXPECT_TRUE(is_told("all with " + path, init));
  EXPECT_FALSE(fs::exists(path + "/escrow/version"));
  EXPECT_TRUE(contains(syncs_of(init), "all with " + path));
}

TEST(RepositorySync, TheFirstBranchInNewDirectoriesIsThereOnceTheirNamesAreOnDisk) {
  const GitTestRepository repository;
  const auto quarantine = repository.quarantine();
  const ObjectId commit = publish(*quarantine);
  const std::string heads = repository.path + "/refs/heads";
  const std::pair<std::string, std::string> cases[] = {{"a/b/c", heads + "/a"}, {"x/y/z", heads}};
  for (const auto& [branch, above] : cases) {
    const auto make = [&, &branch = branch] {
      repository.references->compare_and_swap(branch, std::nullopt, commit, "made");
    };
    EXPECT_TRUE(is_told(above, make)) << branch;
  }
}

TEST(RepositorySync, GcCallsGitOnceTheDiskHasNoneOfTheReferencesThatItDropped) {
  const GitTestRepository repository;
  const auto quarantine = repository.quarantine();
  const auto opened = Repository::open(repository.path, silent);
  for (const char* const directory : {"/refs/sessions", ""}) {
    repository.references->keep_result(SessionId::generate(), publish(*quarantine));
    bool has_git_run = false;
    EXPECT_TRUE(is_told(repository.path + directory, [&] {
      const auto git = [&](const std::vector<std::string>&) {
        has_git_run = true;
        return GitOutput{};
      };
      opened->gc(git, session::SystemClock().now());
    })) << directory;
    EXPECT_FALSE(has_git_run) << directory;
    EXPECT_EQ(repository.references->results().size(), 0u);
  }
}

TEST(RepositorySync, SmallPacksGoOnceTheOneInTheirPlaceIsOnDisk) {
  const GitTestRepository repository;
  run("cd " + repository.path + " && for n in $(seq 51); do "
      "echo $n | git hash-object -w --stdin | git -c core.fsync=none pack-objects -q objects/pack/pack; done && "
      "git prune-packed");
  const auto opened = Repository::open(repository.path, silent);
  const std::string directory = repository.path + "/objects/pack";
  ASSERT_EQ(count_packs(repository.path), 51u);
  EXPECT_TRUE(is_told(directory, [&] { opened->fold_packs(); }));
  EXPECT_EQ(count_packs(repository.path), 52u);
  EXPECT_EQ(opened->fold_packs(), 51u);
  EXPECT_EQ(count_packs(repository.path), 2u) << "the other is that of the attempt that failed, which gc takes";
}

// git freshens the pack of an object that it needs.
TEST(RepositorySync, AFoldedPackIsAsYoungAsOneThatWasFreshenedUntilItWent) {
  const GitTestRepository repository;
  const std::string packs = repository.path + "/objects/pack/";
  run("cd " + repository.path + " && for n in $(seq 51); do "
      "echo $n | git hash-object -w --stdin | git -c core.fsync=none pack-objects -q objects/pack/pack; done && "
      "git prune-packed && touch -d '1 day ago' objects/pack/*");
  const auto opened = Repository::open(repository.path, silent);
  timespec freshened{};
  {
    const support::WatchedSystemCalls calls([&](const support::SystemCall& call) {
      const bool is_first = freshened.tv_sec == 0 && call.name == "unlink" && call.path.ends_with(".idx");
      if (!is_first || !call.path.starts_with(packs)) return 0;
      const std::string pack = call.path.substr(0, call.path.size() - 3) + "pack";
      struct stat status {};
      EXPECT_EQ(::utimensat(AT_FDCWD, pack.c_str(), nullptr, 0), 0);
      EXPECT_EQ(::stat(pack.c_str(), &status), 0);
      freshened = status.st_mtim;
      return 0;
    });
    EXPECT_EQ(opened->fold_packs(), 51u);
  }
  ASSERT_NE(freshened.tv_sec, 0);
  EXPECT_EQ(run("cd " + packs + "; stat -c %Y *.pack"), std::to_string(freshened.tv_sec));
}

TEST(RepositorySync, AResultIsHiddenOnDiskBeforeItIsKept) {
  const GitTestRepository repository;
  const session::SessionId session = session::SessionId::generate();
  EXPECT_TRUE(is_told(repository.path, [&] { repository.references->hide_result(session); }));
  // Also where it says so already: that may not be on disk yet.
  EXPECT_TRUE(is_told(repository.path, [&] { repository.references->hide_result(session); }));
}

TEST(BlobCacheSync, ABlobIsOnDiskBeforeItHasItsName) {
  const support::TemporaryDirectory directory;
  const std::string path = fs::canonical(directory.path()).string() + "/cache", content = "content";
  BlobCache cache(path);
  const auto open = [&] {
    cache.open(hash_object(ObjectType::blob, content), content.size(), pulling(content));
  };
  std::vector<std::string> seen;
  bool fails = true;
  const WatchedSystemCalls calls([&](const SystemCall& call) {
    if (!call.path.starts_with(path + "/")) return 0;
    seen.push_back(call.name);
    return call.name == "fsync" && std::exchange(fails, false) ? EIO : 0;
  });
  EXPECT_EQ(error_of(open).code(), Errc::input_output);
  EXPECT_TRUE(fs::is_empty(path));
  seen.clear();
  open();
  EXPECT_EQ(seen, (std::vector<std::string>{"ftruncate", "fsync", "rename"}));
}

}  // namespace
}  // namespace escrow::storage
