// Stores through a mapping that could not be written when the kernel wrote them back: the program is told nothing, but
// no commit lacks them without a word.
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>

#include "tests/mount/cli_fixture.h"

namespace escrow::test {
namespace {

// Stores into every page of a new file of so many bytes, and ends with 0.
std::string storing(const std::string& path, std::size_t bytes) {
  const std::string size = std::to_string(bytes);
  return "python3 -c 'import mmap, os\nf = os.open(\"" + path + "\", os.O_RDWR | os.O_CREAT, 0o644)\n" +
         "os.ftruncate(f, " + size + ")\nm = mmap.mmap(f, " + size + ")\n" +
         "for i in range(0, " + size + ", 4096): m[i] = 1\n'";
}

constexpr std::size_t kMore_bytes = std::size_t{48} << 20;  // than the disk holds

class LostPages : public EscrowCommands {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root mounts a small disk";
    std::filesystem::create_directory(file("disk"));
    ASSERT_EQ(0, ::mount("tmpfs", file("disk").c_str(), "tmpfs", 0, "size=32m"));
    repository_ = file("disk/data.git");
    EscrowCommands::SetUp();
    // Taken away when the stores have failed, so that there is room for everything else.
    shell("head -c 8000000 /dev/zero > '" + filler() + "'");
  }
  std::string filler() const { return file("disk/filler"); }
  void make_room() const { std::filesystem::remove(filler()); }
  void TearDown() override {
    EscrowCommands::TearDown();
    ::umount2(file("disk").c_str(), MNT_DETACH);
  }
  std::string newest_session() const {
    const std::string all = done({"sessions", "--json"});
    return all.substr(all.rfind("\"session\":\"") + 11, 16);
  }
};

TEST_F(LostPages, ARunWhoseCommandStoredMoreThanTheDiskHoldsIsNotCommittedAndNamesTheFile) {
  const std::string before = head();
  const ProcessResult result =
      escrow({"run", "--", "sh", "-c", storing("big", kMore_bytes) + "; rm '" + filler() + "'"});
  EXPECT_EQ(result.status, 125) << result.err;
  EXPECT_NE(result.err.find("stored in big could not be written back"), std::string::npos) << result.err;
  EXPECT_EQ(head(), before);
  // The rest of the work can still be had.
  const std::string session = newest_session();
  EXPECT_EQ(status_of(session, "state"), "open");
  refused(125, "stored in big", {"commit", session});
  done({"discard", session, "big"});
  EXPECT_NE(done({"commit", session}).find("no changes"), std::string::npos);
}

// write(2) had room in the page cache.
TEST_F(LostPages, WhatWasWrittenBackIntoAFullDiskIsToldByCloseAndMissingInNoCommit) {
  const std::string before = head();
  const std::string more = std::to_string(kMore_bytes >> 20);
  const ProcessResult result =
      escrow({"run", "--io", "writeback", "--", "sh", "-c",
              "said=$(dd if=/dev/zero of=big bs=1M count=" + more + " 2>&1); rm '" + filler() +
                  "'; echo \"$said\" > said"});
  EXPECT_EQ(result.status, 125) << result.err;
  EXPECT_NE(result.err.find("stored in big could not be written back"), std::string::npos) << result.err;
  EXPECT_EQ(head(), before);
  const std::string session = newest_session();
  refused(125, "stored in big", {"commit", session});
  done({"discard", session, "big"});
  done({"commit", session});
  EXPECT_NE(content("said").find("No space left on device"), std::string::npos) << content("said");
}

TEST_F(LostPages, ALiveCommitIsRefusedAlsoAfterTheHostWasKilled) {
  const std::string session = mount();
  write(in_mount("small"), "kept");
  const ProcessResult stored = run_process({"/bin/sh", "-c", storing(in_mount("big"), kMore_bytes)});
  EXPECT_EQ(stored.status, 0) << stored.err;
  make_room();
  refused(125, "stored in big", {"commit", session});
  refused(125, "stored in big", {"commit", session});
  // An fsync of anything records it, too.
  shell("sync '" + in_mount("small") + "'");
  shell("pid=$(fuser '" + repository_ + "/escrow/sessions/" + session + "/lock' 2>/dev/null); kill -9 $pid; " +
        "while kill -0 $pid 2>/dev/null; do sleep 0.05; done; umount -l '" + mountpoint_ + "' 2>/dev/null || true");
  refused(125, "stored in big", {"commit", session});
  done({"mount", mountpoint_, "--session", session});
  shell("head -c 1000000 /dev/urandom > '" + file("bytes") + "' && cat '" + file("bytes") + "' > '" + in_mount("big") +
        "'");
  done({"commit", session});
  EXPECT_EQ(content("small"), "kept");
  EXPECT_EQ(shell("git -c safe.directory='*' --git-dir '" + repository_ + "' show main:big | cmp - '" + file("bytes") +
                  "' && echo same"),
            "same");
}

}  // namespace
}  // namespace escrow::test
