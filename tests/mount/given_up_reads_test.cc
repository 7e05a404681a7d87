// Reads and writes that take long, as of a large file that is brought to the disk or copied first, end when nobody
// waits for them.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <span>
#include <string>

#include "fuse/mount.h"
#include "session/base/error.h"
#include "session/base/still_wanted.h"
#include "session/interfaces/forwarding_file_system.h"
#include "session/overlay/overlay.h"
#include "tests/session/eventually.h"
#include "tests/support/fake_journal.h"
#include "tests/support/fake_object_store.h"
#include "tests/support/fake_staging.h"
#include "tests/support/mounted_tree.h"
#include "tests/support/temporary_directory.h"

namespace escrow::support {
namespace {

// Each read and write goes on until nobody waits for it.
class LongCalls final : public session::ForwardingFileSystem {
 public:
  using ForwardingFileSystem::ForwardingFileSystem;
  std::size_t read(session::NodeId, std::uint64_t, std::span<std::byte>) override { wait(); }
  void write(session::NodeId, std::uint64_t, std::span<const std::byte>, session::WriteOrigin) override { wait(); }
  std::atomic<int> begun = 0, given_up = 0, ended = 0;

 private:
  [[noreturn]] void wait() {
    ++begun;
    if (eventually([] { return !session::WantedWhile::is_still_wanted(); })) ++given_up;
    ++ended;
    throw session::Error(session::Errc::unavailable, "nobody waits for it");
  }
};

class GivenUpReads : public testing::Test {
 protected:
  void SetUp() override {
    ESCROW_NEEDS_FUSE();
    fuse::MountOptions options;
    options.mountpoint = directory_.path();
    options.source = "escrow:" + directory_.path();
    options.io_uring = io_uring_wanted();
    mount_ = std::make_unique<fuse::Mount>(files_, options, log_);
    std::ofstream(file_).close();
    ASSERT_EQ(0, ::truncate(file_.c_str(), 1 << 20));  // the kernel has no page of it
  }

  // Returns when it waits for its call. `how`: an operand of dd(1).
  pid_t start(const std::string& from, const std::string& to, const char* how) {
    const std::string source = "if=" + from, target = "of=" + to;
    const pid_t child = ::fork();
    if (child == 0) {
      ::execl("/bin/dd", "dd", source.c_str(), target.c_str(), "bs=4096", "count=1", "status=none", how, nullptr);
      ::_exit(127);
    }
    EXPECT_TRUE(eventually([&] { return files_.begun > 0; }));
    return child;
  }
  pid_t start_reader(const char* how) { return start(file_, "/dev/null", how); }
  void expect_given_up(pid_t child) {
    EXPECT_EQ(0, files_.ended) << "it lives";
    ::kill(child, SIGKILL);
    int status = -1;
    EXPECT_EQ(child, ::waitpid(child, &status, 0));
    EXPECT_TRUE(WIFSIGNALED(status)) << status;
    EXPECT_TRUE(eventually([&] { return files_.ended == files_.begun; }));
    EXPECT_EQ(files_.begun, files_.given_up);
    EXPECT_TRUE(eventually([&] { return mount_->try_unmount(); }));
  }

  TemporaryDirectory directory_;
  const std::string file_ = directory_.path() + "/f";
  session::NullLog log_;
  session::SystemClock clock_;
  FakeObjectStore objects_;
  FakeStaging staging_;
  FakeJournal journal_;
  session::Overlay overlay_{{}, objects_, staging_, journal_, clock_, log_};
  LongCalls files_{overlay_};
  std::unique_ptr<fuse::Mount> mount_;
};

class KilledReader : public GivenUpReads, public testing::WithParamInterface<const char*> {};

TEST_P(KilledReader, IsNotReadFor) {
  expect_given_up(start_reader(GetParam()));
}

// Pages that the kernel reads ahead, and an answer that the reader waits for itself.
INSTANTIATE_TEST_SUITE_P(Through, KilledReader, testing::Values("conv=sync", "iflag=direct"),
                         [](const auto& of) { return of.index == 0 ? "ThePageCache" : "ADirectRead"; });

TEST_F(GivenUpReads, NothingIsDoneForAWriterThatIsKilled) {
  expect_given_up(start("/dev/zero", file_, "conv=notrunc"));
}

TEST_F(GivenUpReads, AMountThatIsDestroyedWaitsForNone) {
  const pid_t child = start_reader("iflag=direct");
  mount_.reset();
  EXPECT_EQ(files_.begun, files_.given_up);
  int status = -1;
  EXPECT_EQ(child, ::waitpid(child, &status, 0));
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
}

}  // namespace
}  // namespace escrow::support
