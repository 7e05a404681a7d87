// Every system call of publishing fails once; then it is tried again, in the same process and in a new one, or rolled
// back. The commit is whole, or nothing of it is there but garbage for gc. In the gate each call
// fails in one of these four ways.
#include <sys/mount.h>

#include <filesystem>
#include <map>

#include "tests/storage/git_test_repository.h"
#include "tests/support/failing_calls.h"
#include "tests/support/seed.h"

namespace escrow::storage {
namespace {

using session::GitMode;
using session::ObjectId;
using support::FailingCalls;

constexpr std::uint64_t kLarge = kLargeBlobBytes + 1;

// One session: two small files and a large one, which has a pack of its own; one of the small ones the repository has
// already, but nothing needs it.
class Scene {
 public:
  Scene() {
    run("printf borrowed | git -C " + repository.path + " hash-object -w --stdin");
    begin();
  }

  // As a process does that opens the session: whatever lay there is made anew.
  void begin() {
    quarantine.reset();
    quarantine = std::make_unique<GitQuarantine>(*repository.pool, *repository.store, repository.quarantine_path(),
                                                 repository.path + "/escrow/gc.lock", kLarge / 2);
    session::Tree tree = {{"borrowed", GitMode::regular, quarantine->put_blob(MemoryBytes("borrowed"))},
                          {"large", GitMode::regular, quarantine->put_blob(MemoryBytes(large()))},
                          {"small", GitMode::regular, quarantine->put_blob(MemoryBytes("small"))}};
    commit = quarantine->put_commit(GitTestRepository::commit_of(quarantine->put_tree(tree)));
  }

  void publish_and_move() {
    const auto published = quarantine->publish(commit);
    // Whole before any reference holds it: this is what is promised to be durable now.
    EXPECT_EQ(repository.git("fsck --strict --full --no-dangling " + commit.hex()), "");
    ASSERT_TRUE(repository.references->compare_and_swap("main", std::nullopt, commit, "test"));
  }

  void expect_whole() {
    EXPECT_EQ(repository.git("show main:borrowed"), "borrowed");
    EXPECT_EQ(repository.git("show main:small"), "small");
    EXPECT_EQ(content_of(*repository.store->open_blob(repository.store->read_tree(
                  repository.store->read_commit(commit).tree)[1].id)), large());
    quarantine->discard();
    EXPECT_EQ(run("find " + repository.path + "/objects -name '*.keep' -o -name 'tmp*'"), "");
    EXPECT_EQ(run("find " + repository.quarantine_path() + " -type f"), "");
    Silent silent;
    for (const Problem& problem : Repository::open(repository.path, silent)->verify(nullptr))
      ADD_FAILURE() << problem.where << ": " << problem.what;
  }

  // Packs that came whole may be there, and nothing protects them.
  void expect_garbage() {
    EXPECT_EQ(run("cd " + repository.path + "/objects && find . -name '*.keep' -o -name 'tmp*'; "
                  "for pack in pack/*.pack; do test -e ${pack%.pack}.idx || test ! -e $pack || echo $pack; done"), "");
    repository.git("prune-packed");
    repository.git("repack -q -a -d");
    EXPECT_EQ(packs(), 0u) << "what nothing reaches is dropped";
    EXPECT_EQ(repository.git("fsck --strict --full --no-dangling 2>&1 | grep -v ^notice || true"), "");
  }

  std::size_t packs() const {
    return std::stoul(run("find " + repository.path + "/objects/pack -name '*.pack' | wc -l"));
  }
  static const std::string& large() {
    static const std::string bytes = noise(kLarge, 11);
    return bytes;
  }

  using Silent = session::NullLog;
  GitTestRepository repository;
  std::unique_ptr<GitQuarantine> quarantine;
  ObjectId commit;
};

// Calls `check(scene)` after each call of a publication has failed once; `way` is one of four.
template <typename Check>
void after_each_failure(std::uint64_t way, Check check) {
  const std::uint64_t parts = support::gate_or_campaign(4, 1);
  std::map<std::string, int> failed;
  for (auto turn = static_cast<long>(1 + (support::seed_of_this_run() + way) % parts);;
       turn += static_cast<long>(parts)) {
    Scene scene;
    FailingCalls::arm(turn);
    bool threw = false;
    try {
      scene.quarantine->publish(scene.commit);
    } catch (const session::Error& error) {
      threw = true;
      // A full disk, told by mkdir(2), say, is not told as what is missing then.
      EXPECT_EQ(std::string(error.what()).find("No such file"), std::string::npos) << error.what();
    }
    const char* call = FailingCalls::disarm();
    if (call == nullptr) break;
    SCOPED_TRACE(std::string(call) + " failed, call " + std::to_string(turn) + (threw ? "" : ", and nobody noticed"));
    ++failed[call];
    check(scene);
    if (testing::Test::HasFailure()) return;
  }
  for (const auto& [call, times] : failed) std::printf("%s failed %d times\n", call.c_str(), times);
  EXPECT_GE(failed.size(), 5u);
  if (parts > 1) return;
  for (const char* call : {"fsync", "link", "rename", "pwrite64", "openat64"}) EXPECT_GT(failed[call], 0) << call;
}

TEST(PublishFaults, WhatFailedIsDoneWholeByTheSameProcess) {
  after_each_failure(0, [](Scene& scene) {
    scene.publish_and_move();
    scene.expect_whole();
  });
}

TEST(PublishFaults, WhatFailedIsDoneWholeByAnotherProcess) {
  after_each_failure(1, [](Scene& scene) {
    scene.begin();
    scene.publish_and_move();
    scene.expect_whole();
  });
}

TEST(PublishFaults, WhatFailedIsGarbageWhenItIsRolledBack) {
  after_each_failure(2, [](Scene& scene) {
    scene.quarantine->discard();
    scene.expect_garbage();
  });
}

TEST(PublishFaults, WhatFailedIsGarbageWhenAnotherProcessRollsItBack) {
  after_each_failure(3, [](Scene& scene) {
    scene.quarantine.reset();
    scene.quarantine = scene.repository.quarantine();
    scene.quarantine->discard();
    scene.expect_garbage();
  });
}

// The temporary directories of a test lie on a disk of its own.
class OwnDisk {
 public:
  explicit OwnDisk(const char* options) : mounted_(::mount("tmpfs", root_.path().c_str(), "tmpfs", 0, options) == 0) {
    if (mounted_) ::setenv("TMPDIR", root_.path().c_str(), 1);
  }
  ~OwnDisk() {
    if (before_.empty()) ::unsetenv("TMPDIR");
    else ::setenv("TMPDIR", before_.c_str(), 1);
    if (mounted_) ::umount2(root_.path().c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  void fill(std::size_t but_bytes) const {
    std::ofstream filler(filler_path(), std::ios::binary | std::ios::app);
    const std::string block(4096, 'f');
    while (filler.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
    }
    filler.close();
    const auto size = std::filesystem::file_size(filler_path());
    std::filesystem::resize_file(filler_path(), size > but_bytes ? size - but_bytes : 0);
  }
  void make_room() const { std::filesystem::remove(filler_path()); }

 private:
  std::string filler_path() const { return root_.path() + "/filler"; }
  const std::string before_ = std::getenv("TMPDIR") == nullptr ? "" : std::getenv("TMPDIR");
  const support::TemporaryDirectory root_;
  const bool mounted_;
};

// The pack of the large blob, which is on the disk already, can be finished; the one of the small objects cannot.
TEST(PublishFaults, ADiskThatFillsUpBetweenTwoPacksLosesNothingAndKeepsNothing) {
  for (const bool retry : {true, false}) {
    const OwnDisk disk("size=40m");
    if (!disk.mounted()) {
      const char* required = std::getenv("REQUIRE_FUSE");
      if (required != nullptr && std::string(required) == "1") FAIL() << "cannot mount a tmpfs";
      GTEST_SKIP() << "cannot mount a tmpfs";
    }
    bool failed_between = false;
    for (std::size_t room = 0; room < 64 << 10; room += 4 << 10) {
      Scene scene;
      disk.fill(room);
      bool threw = false;
      try {
        scene.quarantine->publish(scene.commit);
      } catch (const session::Error& error) {
        threw = true;
        EXPECT_EQ(error.code(), session::Errc::no_space) << error.what();
      }
      failed_between = failed_between || (threw && scene.packs() == 1);
      disk.make_room();
      if (!threw) break;
      if (retry) {
        scene.publish_and_move();
        scene.expect_whole();
      } else {
        scene.quarantine->discard();
        scene.expect_garbage();
      }
      if (testing::Test::HasFailure()) return;
    }
    EXPECT_TRUE(failed_between);
  }
}

}  // namespace
}  // namespace escrow::storage
