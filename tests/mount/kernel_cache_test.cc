// What the kernel keeps of a mount, and what it is told to write back and to look at again.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <signal.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
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
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "fuse/mount.h"
#include "session/overlay/overlay.h"
#include "tests/support/fake_journal.h"
#include "tests/support/fake_object_store.h"
#include "tests/support/fake_staging.h"
#include "tests/support/mounted_tree.h"
#include "tests/support/temporary_directory.h"

namespace escrow::support {
namespace {

class KernelCache : public testing::Test {
 protected:
  void SetUp() override { ESCROW_NEEDS_FUSE(); }

  static fuse::MountOptions options(const std::string& mountpoint) {
    fuse::MountOptions result;
    result.mountpoint = mountpoint;
    result.source = "escrow:test";
    result.io_uring = io_uring_wanted();
    return result;
  }
  std::unique_ptr<fuse::Mount> mounted() {
    return std::make_unique<fuse::Mount>(overlay_, options(directory_.path()), log_);
  }
  void store(session::NodeId node, const std::string& bytes) {
    overlay_.write(node, 0, std::as_bytes(std::span(bytes)), session::WriteOrigin::call);
  }

  TemporaryDirectory directory_;
  session::NullLog log_;
  session::SystemClock clock_;
  FakeObjectStore objects_;
  FakeStaging staging_;
  FakeJournal journal_;
  session::Overlay overlay_{{}, objects_, staging_, journal_, clock_, log_};
};

bool soon(const std::function<bool()>& condition) {
  for (int i = 0; i < 6000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A file of two pages, and stores into both through a mapping that lives as long as this does.
class DirtyPages {
 public:
  explicit DirtyPages(const std::string& path) {
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0 || ftruncate(file, kSize) != 0) return;
    void* const mapped = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) return;
    bytes_ = static_cast<char*>(mapped);
    bytes_[0] = bytes_[4096] = 'd';
  }
  ~DirtyPages() {
    if (bytes_ != nullptr) munmap(bytes_, kSize);
  }
  DirtyPages(const DirtyPages&) = delete;
  DirtyPages& operator=(const DirtyPages&) = delete;
  static bool are_in(const std::string& bytes) {
    return bytes.size() == kSize && bytes[0] == 'd' && bytes[4096] == 'd';
  }

 private:
  static constexpr std::size_t kSize = 8192;
  char* bytes_ = nullptr;
};

// As an ordinary user's process: no file can be opened by handle, and modes count.
template <typename Work>
void without_capabilities(Work work) {
  std::thread([&] {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct none[2]{};
    ASSERT_EQ(0, syscall(SYS_capset, &header, none));
    work();
  }).join();
}

TEST_F(KernelCache, FlushReachesEveryFileByPathWhereHandlesAreNotAllowed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root has capabilities to lose";
  const auto tree = mount_tree();
  const std::string deep = tree->path() + "/closed/" + std::string(200, 'd');
  std::filesystem::create_directories(deep);
  const DirtyPages plain(tree->path() + "/plain"), closed(tree->path() + "/no rights"), below(deep + "/below");
  chmod((tree->path() + "/no rights").c_str(), 0);
  chmod((tree->path() + "/closed").c_str(), 0);
  without_capabilities([&] { EXPECT_EQ(fuse::Flushed::all, tree->mount().flush(tree->files())); });
  const std::string inner = deep.substr(tree->path().size() + 1) + "/below";
  for (const std::string& name : {std::string("plain"), std::string("no rights"), inner})
    EXPECT_TRUE(DirtyPages::are_in(tree->stored_bytes(name))) << name;
  // What a helper was told so that it could enter is not what others see.
  struct stat about {};
  ASSERT_EQ(0, stat((tree->path() + "/no rights").c_str(), &about));
  EXPECT_EQ(0u, about.st_mode & 07777);
  ASSERT_EQ(0, stat((tree->path() + "/closed").c_str(), &about));
  EXPECT_EQ(0u, about.st_mode & 07777);
}

TEST_F(KernelCache, FlushReachesWhatIsMountedInAnotherNamespaceOnly) {
  if (geteuid() != 0) GTEST_SKIP() << "only root makes mount namespaces";
  const auto tree = mount_tree();
  const std::string name = tree->path() + "/f";
  int ready[2];
  ASSERT_EQ(0, pipe2(ready, O_CLOEXEC));
  const pid_t elsewhere = fork();
  if (elsewhere == 0) {
    if (unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) _exit(1);
    const DirtyPages pages(name);
    if (write(ready[1], "x", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char told = 0;
  ASSERT_EQ(1, ::read(ready[0], &told, 1));
  EXPECT_TRUE(tree->mount().try_unmount()) << "nothing holds it here";
  ASSERT_TRUE(tree->mount().is_mounted());
  EXPECT_TRUE(tree->mount().is_unmounted());
  EXPECT_TRUE(tree->mount().try_unmount()) << "it is unmounted already";
  EXPECT_EQ(fuse::Flushed::all, tree->mount().flush(tree->files()));
  EXPECT_TRUE(DirtyPages::are_in(tree->stored_bytes("f")));
  kill(elsewhere, SIGKILL);
  waitpid(elsewhere, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
  EXPECT_TRUE(tree->mount().wait_for_end(std::chrono::seconds(60)));
}

TEST_F(KernelCache, AnInvalidatedNameIsLookedUpAgain) {
  const auto mount = mounted();
  const std::string name = directory_.path() + "/f";
  EXPECT_NE(0, access(name.c_str(), F_OK));
  overlay_.make_node(session::kRootNode, "f", S_IFREG | 0644, 0, {});
  EXPECT_NE(0, access(name.c_str(), F_OK)) << "the kernel remembers that it was absent";
  mount->invalidate({{session::kRootNode, "f"}});
  EXPECT_EQ(0, access(name.c_str(), F_OK));
}

std::set<std::string> listed(const std::string& directory) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) names.insert(entry.path().filename());
  return names;
}

TEST_F(KernelCache, TheDirectoryOfAnInvalidatedNameIsListedAnew) {
  const auto mount = mounted();
  const session::Attributes below = overlay_.make_node(session::kRootNode, "d", S_IFDIR | 0755, 0, {});
  overlay_.make_node(below.node, "old", S_IFREG | 0644, 0, {});
  const std::string directory = directory_.path() + "/d";
  EXPECT_EQ(std::set<std::string>{"old"}, listed(directory));
  EXPECT_EQ(std::set<std::string>{"old"}, listed(directory));
  // Of this name the kernel has nothing yet, but that the directory has it not.
  overlay_.make_node(below.node, "new", S_IFREG | 0644, 0, {});
  EXPECT_EQ(std::set<std::string>{"old"}, listed(directory)) << "the kernel keeps listings";
  mount->invalidate({{below.node, "new"}});
  EXPECT_EQ((std::set<std::string>{"new", "old"}), listed(directory));
  overlay_.unlink(below.node, "old");
  mount->invalidate({{below.node, "old"}});
  EXPECT_EQ(std::set<std::string>{"new"}, listed(directory));
  EXPECT_NE(0, access((directory + "/old").c_str(), F_OK));
}

// POSIX: fsync(2). The kernel keeps count for each open file; close(2) and munmap(2) say nothing.
TEST_F(KernelCache, PagesThatCannotBeWrittenBackAreToldOnceToEachOpenFileAndTheFileIsKnownToLackThem) {
  const auto mount = mounted();
  const std::string name = directory_.path() + "/f";
  const int first = open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  const int second = open(name.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(0, ftruncate(first, 16 * 4096));
  ASSERT_EQ(0, fsync(first));
  auto* const bytes =
      static_cast<char*>(mmap(nullptr, 16 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, first, 0));
  ASSERT_NE(MAP_FAILED, static_cast<void*>(bytes));
  staging_.limit_blocks(4);
  for (int page = 0; page < 16; ++page) bytes[page * 4096] = 's';
  EXPECT_NE(0, fsync(first));
  EXPECT_EQ(ENOSPC, errno);
  EXPECT_EQ(std::vector<std::string>{"f"}, overlay_.incomplete_files());
  EXPECT_EQ(0, fsync(first)) << "it was told";
  EXPECT_NE(0, fsync(second));
  EXPECT_EQ(ENOSPC, errno);
  EXPECT_EQ(0, fsync(second));
  const int third = open(name.c_str(), O_RDWR | O_CLOEXEC);
  EXPECT_EQ(0, fsync(third)) << "others were told before it was opened";
  EXPECT_EQ(std::vector<std::string>{"f"}, overlay_.incomplete_files()) << "whoever was told, the bytes are missing";
  // The kernel still has what was stored; with room, storing again writes it.
  staging_.limit_blocks(std::nullopt);
  for (int page = 0; page < 16; ++page) bytes[page * 4096] = 't';
  EXPECT_EQ(0, fsync(third));
  EXPECT_EQ(std::vector<std::string>{}, overlay_.incomplete_files());
  munmap(bytes, 16 * 4096);
  for (const int file : {first, second, third}) close(file);
}

// A program that stores, and ends without a word.
TEST_F(KernelCache, WhatAProgramStoredAndCouldNotBeWrittenWhenItEndedIsKnown) {
  const auto mount = mounted();
  const std::string name = directory_.path() + "/f";
  staging_.limit_blocks(2);
  const pid_t program = fork();
  if (program == 0) {
    const int file = open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0 || ftruncate(file, 16 * 4096) != 0) _exit(1);
    void* const mapped = mmap(nullptr, 16 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) _exit(1);
    std::memset(mapped, 's', 16 * 4096);
    _exit(0);
  }
  int status = 0;
  waitpid(program, &status, 0);
  EXPECT_EQ(0, status);
  EXPECT_EQ(std::vector<std::string>{"f"}, overlay_.incomplete_files());
}

// A directory is locked while a name is made in it: whoever told the kernel then would wait for the file system.
TEST_F(KernelCache, InvalidatingBesideCallsThatAreUnderWayEnds) {
  const auto mount = mounted();
  std::atomic<bool> stop = false;
  std::vector<std::thread> makers;
  for (int maker = 0; maker < 3; ++maker)
    makers.emplace_back([&, name = directory_.path() + "/" + std::to_string(maker)] {
      while (!stop) {
        mkdir(name.c_str(), 0755);
        rmdir(name.c_str());
      }
    });
  for (int round = 0; round < 200; ++round) mount->invalidate({{session::kRootNode, std::to_string(round % 4)}});
  stop = true;
  for (std::thread& maker : makers) maker.join();
  EXPECT_EQ(std::set<std::string>{}, listed(directory_.path()));
}

// What runs cannot be opened for writing, and where the mount is read-only nothing can.
TEST_F(KernelCache, PagesOfARunningProgramAndOfAReadOnlyMountAreReadAnew) {
  for (const bool read_only : {false, true}) {
    fuse::MountOptions wanted = options(directory_.path());
    wanted.read_only = read_only;
    wanted.allow_other = true;
    std::string program = bytes_of("/bin/sleep");
    const session::NodeId node = overlay_.make_node(session::kRootNode, "sleep", S_IFREG | 0755, 0, {}).node;
    store(node, program);
    fuse::Mount mount(overlay_, wanted, log_);
    const std::string name = directory_.path() + "/sleep";
    const pid_t child = fork();
    if (child == 0) {
      execl(name.c_str(), "sleep", "60", nullptr);
      _exit(1);
    }
    ASSERT_TRUE(soon([&] { return bytes_of("/proc/" + std::to_string(child) + "/comm") == "sleep\n"; }));
    ASSERT_EQ(program, bytes_of(name));
    program.back() = static_cast<char>(program.back() + 1);  // the same in length, changed behind the kernel's back
    store(node, program);
    EXPECT_NE(program, bytes_of(name)) << "the kernel keeps pages";
    mount.invalidate_file(node);
    EXPECT_EQ(program, bytes_of(name)) << (read_only ? "read-only" : "running");
    EXPECT_EQ(0, kill(child, SIGKILL));
    waitpid(child, nullptr, 0);
    overlay_.unlink(session::kRootNode, "sleep");
  }
}

}  // namespace
}  // namespace escrow::support
