// A mount's own life: where it may go, how it ends, what it flushes and forgets.
#include "fuse/mount.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fuse/io_uring_support.h"
#include "fuse/place.h"
#include "session/base/error.h"
#include "session/overlay/overlay.h"
#include "tests/support/fake_journal.h"
#include "tests/support/fake_object_store.h"
#include "tests/support/fake_staging.h"
#include "tests/support/mounted_tree.h"
#include "tests/support/temporary_directory.h"

namespace {

using MountCall = std::function<int(const char*, const char*, const char*, unsigned long, const void*)>;
MountCall instead_of_mount;  // of the next mount(2) of this program

int mount_for_real(const char* source, const char* target, const char* type, unsigned long flags, const void* data) {
  return static_cast<int>(::syscall(SYS_mount, source, target, type, flags, data));
}

}  // namespace

// Comes before the C library's (ld.so(8)).
extern "C" int mount(const char* source, const char* target, const char* type, unsigned long flags,
                     const void* data) noexcept {
  const MountCall instead = std::exchange(instead_of_mount, nullptr);
  return (instead ? instead : mount_for_real)(source, target, type, flags, data);
}

namespace escrow::support {
namespace {

using session::Errc;
using session::Error;

class Mount : public testing::Test {
 protected:
  void SetUp() override { ESCROW_NEEDS_FUSE(); }

  fuse::MountOptions options(const std::string& mountpoint) {
    fuse::MountOptions result;
    result.mountpoint = mountpoint;
    // A source is of one session, and tests run beside this one.
    result.source = "escrow:" + directory_.path() + "/" + std::to_string(++sessions_);
    result.io_uring = io_uring_wanted();
    return result;
  }
  std::unique_ptr<fuse::Mount> mounted(const std::string& mountpoint, std::function<void()> on_unmounted = {}) {
    return std::make_unique<fuse::Mount>(overlay_, options(mountpoint), log_, std::move(on_unmounted));
  }
  // The code and text of the refusal.
  std::string refusal(const fuse::MountOptions& wanted) {
    try {
      const fuse::Mount mount(overlay_, wanted, log_);
      return "mounted";
    } catch (const Error& error) {
      return error.code() == Errc::bad_request ? error.what() : std::string("other: ") + error.what();
    }
  }

  TemporaryDirectory directory_;
  int sessions_ = 0;
  session::NullLog log_;
  session::SystemClock clock_;
  FakeObjectStore objects_;
  FakeStaging staging_;
  FakeJournal journal_;
  session::Overlay overlay_{{}, objects_, staging_, journal_, clock_, log_};
};

std::string mount_table() {
  std::ifstream file("/proc/self/mountinfo");
  return {std::istreambuf_iterator<char>(file), {}};
}

bool within_a_minute(const std::function<bool()>& condition) {
  for (int i = 0; i < 6000; ++i) {  // a minute: tests beside this one may hold a copy of the mount for a while
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST_F(Mount, IsShownWithItsSourceAndType) {
  fuse::MountOptions wanted = options(directory_.path());
  wanted.source = "escrow:te,st\\1";
  const fuse::Mount mount(overlay_, wanted, log_);
  EXPECT_TRUE(mount.is_mounted());
  const std::string table = mount_table();
  EXPECT_NE(std::string::npos, table.find(directory_.path() + " "));
  EXPECT_NE(std::string::npos, table.find("fuse.escrow escrow:te,st\\1341 ")) << table;
}

TEST_F(Mount, RefusesAMissingMountpoint) {
  EXPECT_NE(std::string::npos, refusal(options(directory_.path() + "/missing")).find("No such file or directory"));
}

TEST_F(Mount, RefusesAFileAndARelativePath) {
  const std::string file = directory_.path() + "/file";
  std::ofstream(file) << "x";
  EXPECT_NE(std::string::npos, refusal(options(file)).find("is not a directory"));
  EXPECT_NE(std::string::npos, refusal(options("relative")).find("absolute path"));
}

TEST_F(Mount, RefusesADirectoryThatIsNotEmpty) {
  std::ofstream(directory_.path() + "/file") << "x";
  EXPECT_NE(std::string::npos, refusal(options(directory_.path())).find("is not empty"));
}

TEST_F(Mount, RefusesToLieInsideAnotherSessionsMount) {
  const auto mount = mounted(directory_.path());
  ASSERT_EQ(0, mkdir((directory_.path() + "/inner").c_str(), 0755));
  EXPECT_NE(std::string::npos, refusal(options(directory_.path() + "/inner")).find("mount of another session"));
  EXPECT_NE(std::string::npos, refusal(options(directory_.path())).find("mount of another session"));
}

// Asked again with the same idempotency key, such a request must be judged anew.
TEST_F(Mount, AFailingDiskAtTheMountpointIsNotARequestThatIsWrong) {
  const session::ObjectId tree = objects_.put_files({{"dir/file", "x"}});
  objects_.damage(objects_.read_tree(tree).front().id);
  session::Overlay damaged({.base_time = {}, .base_tree = tree}, objects_, staging_, journal_, clock_, log_);
  const fuse::Mount mount(damaged, options(directory_.path()), log_);
  EXPECT_EQ("other: cannot mount at " + directory_.path() + "/dir: Input/output error; try again",
            refusal(options(directory_.path() + "/dir")));
}

TEST_F(Mount, RefusesOptionsTheKernelDoesNotKnow) {
  fuse::MountOptions wanted = options(directory_.path());
  wanted.extra_options = {"no_such_option"};
  EXPECT_NE(std::string::npos, refusal(wanted).find("options"));
  EXPECT_EQ(std::string::npos, mount_table().find(directory_.path()));
}

TEST_F(Mount, GoesWhereItWasWantedHoweverManyFilesAreOpen) {
  const std::string wanted = directory_.path() + "/wanted", other = directory_.path() + "/other";
  ASSERT_EQ(0, mkdir(wanted.c_str(), 0755));
  ASSERT_EQ(0, mkdir(other.c_str(), 0755));
  rlimit most{};
  ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &most));
  most.rlim_cur = most.rlim_max;
  ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &most));
  std::vector<int> open_files;
  for (const std::size_t count : {60, 95, 99, 100, 110, 120, 1000, 4096}) {
    while (open_files.size() < count) open_files.push_back(open(other.c_str(), O_PATH | O_CLOEXEC));
    ASSERT_NE(-1, open_files.back()) << std::strerror(errno);
    EXPECT_EQ(wanted, fuse::look_at_fresh(wanted).path) << count;
    fuse::MountOptions fresh = options(wanted);
    fresh.is_fresh_mountpoint = true;
    const fuse::Mount mount(overlay_, fresh, log_);
    EXPECT_EQ(mount.device(), fuse::device_of(wanted)) << count;
    EXPECT_NE(mount.device(), fuse::device_of(other)) << count;
  }
  for (const int file : open_files) close(file);
}

TEST_F(Mount, OneThatDidNotComeAboutIsRefused) {
  instead_of_mount = [](auto...) { return 0; };
  EXPECT_NE(std::string::npos, refusal(options(directory_.path())).find("does not lead to the new mount"));
  instead_of_mount = nullptr;
}

TEST_F(Mount, OneThatCameAboutElsewhereIsRefusedAndTakenAway) {
  const std::string wanted = directory_.path() + "/wanted", other = directory_.path() + "/other";
  ASSERT_EQ(0, mkdir(wanted.c_str(), 0755));
  ASSERT_EQ(0, mkdir(other.c_str(), 0755));
  instead_of_mount = [&](const char* source, const char*, auto... rest) {
    return mount_for_real(source, other.c_str(), rest...);
  };
  EXPECT_NE(std::string::npos, refusal(options(wanted)).find("does not lead to the new mount"));
  EXPECT_EQ(fuse::device_of(wanted), fuse::device_of(other));
  EXPECT_EQ(std::string::npos, mount_table().find(other));
}

TEST_F(Mount, OneThatAnotherCameOnTopOfIsRefusedAndTheOtherStays) {
  instead_of_mount = [](const char* source, const char* target, auto... rest) {
    const int result = mount_for_real(source, target, rest...);
    return result != 0 ? result : mount_for_real("on top", target, "tmpfs", 0, "size=4k");
  };
  EXPECT_NE(std::string::npos, refusal(options(directory_.path())).find("does not lead to the new mount"));
  const std::string path = directory_.path();
  EXPECT_NE(std::string::npos, mount_table().find(path + " rw,relatime"));
  EXPECT_EQ(0, umount2(path.c_str(), MNT_DETACH)) << "the other";
  EXPECT_EQ(0, umount2(path.c_str(), MNT_DETACH)) << "what is left of the one below, which has no server";
  EXPECT_NE(0, umount2(path.c_str(), MNT_DETACH)) << "there is no third";
}

TEST_F(Mount, OneThatCameOnTopOfAnotherSessionIsRefusedAndTakenAway) {
  std::unique_ptr<fuse::Mount> first;
  instead_of_mount = [&](auto... arguments) {
    first = mounted(directory_.path());
    return mount_for_real(arguments...);
  };
  EXPECT_EQ("other: cannot mount at " + directory_.path() + ": another session has just been mounted there",
            refusal(options(directory_.path())));
  ASSERT_TRUE(first);
  EXPECT_EQ(first->device(), fuse::device_of(directory_.path()));
}

TEST_F(Mount, TakesTheOptionsOfFstab) {
  fuse::MountOptions wanted = options(directory_.path());
  wanted.extra_options = {"rw", "noexec", "noatime", "nofail", "x-systemd.automount", "_netdev"};
  const fuse::Mount mount(overlay_, wanted, log_);
  const std::string table = mount_table();
  const std::string line = table.substr(table.find(directory_.path()));
  EXPECT_EQ(0u, line.find(directory_.path() + " rw,nosuid,nodev,noexec,noatime"));
}

TEST_F(Mount, UnmountsUnlessItIsInUse) {
  std::atomic<int> told = 0;
  const auto mount = mounted(directory_.path(), [&] { ++told; });
  const int held = open(directory_.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  EXPECT_FALSE(mount->try_unmount());
  EXPECT_TRUE(mount->is_mounted());
  EXPECT_FALSE(mount->is_unmounted());
  close(held);
  EXPECT_TRUE(mount->try_unmount());
  EXPECT_TRUE(mount->is_unmounted());
  EXPECT_TRUE(within_a_minute([&] { return told == 1; }));
  EXPECT_FALSE(mount->is_mounted());
  EXPECT_TRUE(mount->try_unmount());
  EXPECT_EQ(1, told);
}

TEST_F(Mount, NoticesThatSomebodyElseUnmountedIt) {
  std::atomic<int> told = 0;
  const auto mount = mounted(directory_.path(), [&] { ++told; });
  ASSERT_EQ(0, umount2(directory_.path().c_str(), 0));
  EXPECT_TRUE(within_a_minute([&] { return told == 1; }));
  EXPECT_FALSE(mount->is_mounted());
}

TEST_F(Mount, UnmountsWhenItsWorkingDirectoryIsGone) {
  const TemporaryDirectory elsewhere;
  const auto mount = mounted(directory_.path());
  const std::string here = std::filesystem::current_path();
  const std::string gone = elsewhere.path() + "/gone";
  ASSERT_EQ(0, mkdir(gone.c_str(), 0755));
  ASSERT_EQ(0, chdir(gone.c_str()));
  ASSERT_EQ(0, rmdir(gone.c_str()));
  EXPECT_TRUE(mount->try_unmount());
  ASSERT_EQ(0, chdir(here.c_str()));
}

TEST_F(Mount, DetachedItServesWhatHoldsIt) {
  auto mount = mounted(directory_.path());
  const int file = open((directory_.path() + "/f").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  ASSERT_GE(file, 0);
  mount->detach();
  EXPECT_EQ(std::string::npos, mount_table().find(directory_.path()));
  EXPECT_EQ(2, write(file, "ok", 2));
  EXPECT_TRUE(mount->is_mounted());
  close(file);
  EXPECT_TRUE(within_a_minute([&] { return !mount->is_mounted(); }));
}

TEST_F(Mount, DestroyedItEndsWhatHoldsIt) {
  auto mount = mounted(directory_.path());
  const int file = open((directory_.path() + "/f").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  ASSERT_GE(file, 0);
  mount.reset();
  EXPECT_EQ(-1, write(file, "no", 2));
  // The kernel takes the rings down after we have let go of them: until then a call is taken and then aborted.
  EXPECT_TRUE(errno == ENOTCONN || errno == ECONNABORTED) << errno;
  EXPECT_EQ(-1, write(file, "no", 2));
  EXPECT_EQ(ENOTCONN, errno);
  close(file);
  EXPECT_EQ(std::string::npos, mount_table().find(directory_.path()));
}

TEST_F(Mount, UnmountsOnlyItselfWhenAnotherLiesOnTop) {
  auto mount = mounted(directory_.path());
  ASSERT_EQ(0, ::mount("none", directory_.path().c_str(), "tmpfs", 0, ""));
  EXPECT_FALSE(mount->try_unmount());
  mount.reset();
  EXPECT_NE(std::string::npos, mount_table().find(directory_.path() + " rw")) << "the tmpfs must still be there";
  ASSERT_EQ(0, umount2(directory_.path().c_str(), 0));
  umount2(directory_.path().c_str(), MNT_DETACH);
}

// In a child: a page fault holds its process's memory lock while it waits for the mount, whose threads need theirs.
TEST_F(Mount, UnmountWritesBackWhatAMappingDirtied) {
  auto mount = mounted(directory_.path());
  const std::string path = directory_.path() + "/f";
  const pid_t child = fork();
  if (child == 0) {
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (ftruncate(file, 1 << 20) != 0) _exit(1);
    void* memory = mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) _exit(2);
    std::memset(memory, 'm', 1 << 20);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_EQ(0, status);
  ASSERT_TRUE(mount->try_unmount());
  std::string bytes(1 << 20, '\0');
  overlay_.read(overlay_.lookup(session::kRootNode, "f")->node, 0, std::as_writable_bytes(std::span(bytes)));
  EXPECT_EQ(std::string(1 << 20, 'm'), bytes);
}

// A child keeps writing through a shared mapping, without msync, for as long as the test runs.
class MappedWriter {
 public:
  explicit MappedWriter(const std::string& file) {
    int ready[2];
    if (pipe(ready) != 0) return;
    child_ = fork();
    if (child_ == 0) {
      const int opened = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
      if (ftruncate(opened, 64 * 4096) != 0) _exit(1);
      auto* memory =
          static_cast<volatile std::uint64_t*>(mmap(nullptr, 64 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0));
      for (std::uint64_t count = 1;; ++count) {
        for (int page = 0; page < 64; ++page) memory[page * 512] = count;
        if (count == 1 && ::write(ready[1], "r", 1) != 1) _exit(1);
        usleep(100);
      }
    }
    close(ready[1]);
    char byte;
    is_ready_ = ::read(ready[0], &byte, 1) == 1;
    close(ready[0]);
  }
  ~MappedWriter() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  bool is_ready() const { return is_ready_; }

 private:
  pid_t child_ = -1;
  bool is_ready_ = false;
};

std::uint64_t first_word(const std::string& bytes, std::size_t page) {
  std::uint64_t value = 0;
  if (bytes.size() >= page * 4096 + sizeof value) std::memcpy(&value, bytes.data() + page * 4096, sizeof value);
  return value;
}

TEST_F(Mount, FlushBringsInWhatAWriterMappedWhileItWrites) {
  const auto tree = mount_tree();
  const MappedWriter writer(tree->path() + "/f");
  ASSERT_TRUE(writer.is_ready());
  for (int round = 0; round < 20; ++round) {
    // What is in the mapping now must be in the file system after the flush.
    std::uint64_t before = 0;
    const int file = open((tree->path() + "/f").c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_EQ(static_cast<ssize_t>(sizeof before), pread(file, &before, sizeof before, 63 * 4096));
    close(file);
    tree->mount().flush(tree->files());
    const std::string bytes = tree->stored_bytes("f");
    ASSERT_GT(before, 0u);
    for (std::size_t page = 0; page < 64; ++page) EXPECT_GE(first_word(bytes, page), before) << page;
    usleep(2000);
  }
}

TEST_F(Mount, InvalidatedNodesAreWrittenBackAndReadAnew) {
  const auto tree = mount_tree();
  const MappedWriter writer(tree->path() + "/f");
  ASSERT_TRUE(writer.is_ready());
  for (int round = 0; round < 20; ++round) {
    std::uint64_t before = 0;
    const int file = open((tree->path() + "/f").c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_EQ(static_cast<ssize_t>(sizeof before), pread(file, &before, sizeof before, 0));
    close(file);
    for (const session::NodeId node : tree->files()) tree->mount().invalidate_file(node);
    EXPECT_GE(first_word(tree->stored_bytes("f"), 0), before);
    usleep(2000);
  }
}

TEST_F(Mount, ServesManyThreadsWhileItsHostFlushesAndInvalidates) {
  const auto tree = mount_tree({.base = {{"d/f0", "base"}, {"d/f1", std::string(100'000, 'b')}}});
  std::atomic<int> running{4};
  std::vector<std::thread> clients;
  for (int client = 0; client < 4; ++client)
    clients.emplace_back([&, own = tree->path() + "/own" + std::to_string(client)] {
      std::error_code refused;  // the others rename and remove the same names
      for (int i = 0; i < 150; ++i) {
        const std::string name = tree->path() + "/d/f", one = name + std::to_string(i % 3), two = name + "1";
        std::ofstream(one) << own << i;
        std::filesystem::rename(one, two, refused);
        std::filesystem::remove(two, refused);
        for (const auto& entry : std::filesystem::directory_iterator(tree->path() + "/d")) entry.exists(refused);
        std::ofstream(own) << std::string(5000 + i, 'x');
      }
      --running;
    });
  while (running > 0) {
    for (const session::NodeId node : tree->files()) tree->mount().invalidate_file(node);
    tree->mount().flush(tree->files());
  }
  EXPECT_FALSE(tree->mount().counts().empty());
  for (std::thread& client : clients) client.join();
  for (const char* own : {"own0", "own1", "own2", "own3"})
    EXPECT_EQ(tree->stored_bytes(own), std::string(5149, 'x')) << own;
}

TEST_F(Mount, WarmOpensAndStatsSendNoMessage) {
  const auto mount = mounted(directory_.path());
  const std::string name = directory_.path() + "/f";
  // Not by open(2): what it creates is released some time after close(2), by a message.
  ASSERT_EQ(0, mknod(name.c_str(), S_IFREG | 0644, 0));
  std::ofstream(name) << "content";
  const auto use = [&] {
    struct stat values {};
    char bytes[16];
    const int file = open(name.c_str(), O_RDONLY | O_CLOEXEC);
    EXPECT_EQ(7, read(file, bytes, sizeof bytes));
    close(file);
    EXPECT_EQ(0, stat(name.c_str(), &values));
    EXPECT_NE(0, access((directory_.path() + "/absent").c_str(), F_OK));
  };
  const auto total = [&] {
    std::uint64_t sum = 0;
    for (const auto& operation : mount->counts()) {
      if (operation.name != "forget") sum += operation.count;
    }
    return sum;
  };
  use();
  use();
  const std::uint64_t before = total();
  for (int i = 0; i < 100; ++i) use();
  EXPECT_EQ(before, total());
}

TEST_F(Mount, NodesAreReleasedWhenTheKernelForgetsThem) {
  const auto mount = mounted(directory_.path());
  for (int i = 0; i < 50; ++i) {
    const std::string name = directory_.path() + "/f" + std::to_string(i);
    std::ofstream(name) << "x";
    ASSERT_EQ(0, unlink(name.c_str()));
  }
  EXPECT_TRUE(within_a_minute([&] { return overlay_.usage().nodes <= 2; })) << overlay_.usage().nodes;
}

TEST_F(Mount, ReadOnlyAnswersEROFS) {
  fuse::MountOptions wanted = options(directory_.path());
  wanted.read_only = true;
  const fuse::Mount mount(overlay_, wanted, log_);
  EXPECT_EQ(-1, mkdir((directory_.path() + "/d").c_str(), 0755));
  EXPECT_EQ(EROFS, errno);
}

TEST_F(Mount, WithoutAllowOtherItIsForItsOwnUserAlone) {
  const auto mount = mounted(directory_.path());
  ASSERT_EQ(0, chmod(directory_.path().c_str(), 0777));
  const std::string path = directory_.path() + "/x";
  const pid_t child = fork();
  if (child == 0) {
    if (setuid(65534) != 0) _exit(1);
    _exit(access(path.c_str(), F_OK) != 0 ? errno : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(EACCES, WEXITSTATUS(status));
}

TEST_F(Mount, WithoutXattrsTheyAreNotSupported) {
  const auto mount = mounted(directory_.path());
  const std::string name = directory_.path() + "/f";
  std::ofstream(name) << "x";
  char value[8];
  EXPECT_EQ(-1, setxattr(name.c_str(), "user.a", "1", 1, 0));
  EXPECT_EQ(EOPNOTSUPP, errno);
  EXPECT_EQ(-1, getxattr(name.c_str(), "user.a", value, sizeof value));
  EXPECT_EQ(EOPNOTSUPP, errno);
  EXPECT_LE(listxattr(name.c_str(), nullptr, 0), 0);
}

TEST_F(Mount, UsesIoUringExactlyWhereItCanBeHad) {
  const auto mount = mounted(directory_.path());
  EXPECT_NE(0, access((directory_.path() + "/absent").c_str(), F_OK));
  const bool can_be_had = fuse::io_uring_obstacle() == fuse::IoUringObstacle::none;
  EXPECT_EQ(can_be_had && io_uring_wanted(), mount->uses_io_uring());
}

TEST_F(Mount, WithoutIoUringItReadsTheDevice) {
  fuse::MountOptions wanted = options(directory_.path());
  wanted.io_uring = false;
  const fuse::Mount mount(overlay_, wanted, log_);
  std::ofstream(directory_.path() + "/f") << "content";
  EXPECT_EQ("f", std::filesystem::directory_iterator(directory_.path())->path().filename());
  EXPECT_FALSE(mount.uses_io_uring());
}

std::size_t threads_of_this_process() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

TEST_F(Mount, ManyMountsInOneProcessEndWithAllTheirThreads) {
  const std::size_t before = threads_of_this_process();
  std::vector<TemporaryDirectory> directories(20);
  std::vector<std::unique_ptr<fuse::Mount>> mounts;
  for (std::size_t i = 0; i < directories.size(); ++i) {
    mounts.push_back(mounted(directories[i].path()));
    std::ofstream(directories[i].path() + "/f" + std::to_string(i)) << "content";
  }
  EXPECT_GT(threads_of_this_process(), before);
  for (std::size_t i = 0; i < mounts.size(); i += 2) EXPECT_TRUE(mounts[i]->try_unmount());
  mounts.clear();
  // The kernel lists a thread that was joined, and a worker of a ring that was closed, until it has put it away.
  EXPECT_TRUE(within_a_minute([&] { return threads_of_this_process() <= before; })) << threads_of_this_process();
  for (std::size_t i = 0; i < directories.size(); ++i) {
    EXPECT_TRUE(overlay_.lookup(session::kRootNode, "f" + std::to_string(i)));
  }
}

// Another program, so that it holds no copy of the mount's descriptors.
pid_t start_maker_of_files(const std::string& directory) {
  const pid_t child = fork();
  if (child != 0) return child;
  const char* const script = "cd \"$1\" && while echo x > f$((count += 1)); do :; done 2> /dev/null";
  execl("/bin/sh", "sh", "-c", script, "sh", directory.c_str(), nullptr);
  _exit(127);
}

TEST_F(Mount, EndsWhileRequestsAreUnderWay) {
  for (int round = 0; round < 10; ++round) {
    auto mount = mounted(directory_.path());
    const pid_t child = start_maker_of_files(directory_.path());
    EXPECT_TRUE(within_a_minute([&] { return overlay_.lookup(session::kRootNode, "f20").has_value(); }));
    mount.reset();
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status)) << status;
    for (int i = 1; overlay_.lookup(session::kRootNode, "f" + std::to_string(i)); ++i) {
      overlay_.unlink(session::kRootNode, "f" + std::to_string(i));
    }
  }
}

}  // namespace
}  // namespace escrow::support
