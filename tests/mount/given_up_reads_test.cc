// Reads that take long, as that of a large file which is brought to the disk first, end when nobody waits for them.
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

// Each read goes on until nobody waits for it.
class LongReads final : public session::ForwardingFileSystem {
 public:
  using ForwardingFileSystem::ForwardingFileSystem;
  std::size_t read(session::NodeId, std::uint64_t, std::span<std::byte>) override {
    ++begun;
    if (eventually([] { return !session::WantedWhile::is_still_wanted(); })) ++given_up;
    ++ended;
    throw session::Error(session::Errc::unavailable, "nobody waits for it");
  }
  std::atomic<int> begun = 0, given_up = 0, ended = 0;
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

  // Returns when it waits for its read. `how`: an operand of dd(1).
  pid_t start_reader(const std::string& how) {
    const std::string from = "if=" + file_;
    const pid_t child = ::fork();
    if (child == 0) {
      ::execl("/bin/dd", "dd", from.c_str(), "of=/dev/null", "bs=4096", "count=1", "status=none", how.c_str(), nullptr);
      ::_exit(127);
    }
    EXPECT_TRUE(eventually([&] { return files_.begun > 0; }));
    return child;
  }

  TemporaryDirectory directory_;
  const std::string file_ = directory_.path() + "/f";
  session::NullLog log_;
  session::SystemClock clock_;
  FakeObjectStore objects_;
  FakeStaging staging_;
  FakeJournal journal_;
  session::Overlay overlay_{{}, objects_, staging_, journal_, clock_, log_};
  LongReads files_{overlay_};
  std::unique_ptr<fuse::Mount> mount_;
};

class KilledReader : public GivenUpReads, public testing::WithParamInterface<const char*> {};

TEST_P(KilledReader, IsNotReadFor) {
  const pid_t child = start_reader(GetParam());
  EXPECT_EQ(0, files_.ended) << "it lives";
  ::kill(child, SIGKILL);
  int status = -1;
  EXPECT_EQ(child, ::waitpid(child, &status, 0));
  EXPECT_TRUE(WIFSIGNALED(status)) << status;
  EXPECT_TRUE(eventually([&] { return files_.ended == files_.begun; }));
  EXPECT_EQ(files_.begun, files_.given_up);
  EXPECT_TRUE(eventually([&] { return mount_->try_unmount(); }));
}

// Pages that the kernel reads ahead, and an answer that the reader waits for itself.
INSTANTIATE_TEST_SUITE_P(Through, KilledReader, testing::Values("conv=sync", "iflag=direct"),
                         [](const auto& of) { return of.index == 0 ? "ThePageCache" : "ADirectRead"; });

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
