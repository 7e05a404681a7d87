// Memory mappings and locks on a mount, against ext4.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tests/mount/differential.h"

namespace escrow::support {
namespace {

using PosixMmap = Differential;
using PosixLocks = Differential;

constexpr std::size_t kPage = 4096;

char* map(int file, std::size_t size, int protection, int flags) {
  void* memory = mmap(nullptr, size, protection, flags, file, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<char*>(memory);
}

TEST_F(PosixMmap, SharedWritesAreReadableAtOnceAndStay) {
  compare([](Scene& s) {
    const int file = open("f", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    s.check("ftruncate", ftruncate(file, 3 * kPage + 100));
    char* memory = map(file, 3 * kPage + 100, PROT_READ | PROT_WRITE, MAP_SHARED);
    std::memcpy(memory, "first", 5);
    std::memcpy(memory + 2 * kPage - 3, "across", 6);
    char bytes[8] = {};
    s.value("pread", pread(file, bytes, 6, 2 * kPage - 3));
    s.note(bytes);
    s.value("pwrite", pwrite(file, "PWRITE", 6, kPage));
    s.note(std::string(memory + kPage, 6));
    s.check("msync", msync(memory, 3 * kPage + 100, MS_SYNC));
    std::memcpy(memory + 3 * kPage, "tail", 4);
    s.check("munmap", munmap(memory, 3 * kPage + 100));
    s.stat("f");
    s.content("f");
  });
}

// A hole that is stored to through a mapping is data, before it is written back, too: cp and tar go by it.
TEST_F(PosixMmap, SeekDataFindsWhatIsStoredThroughAMapping) {
  compare([](Scene& s) {
    const int file = open("f", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    constexpr off_t kSize = 1 << 20, kStored = 600'000;
    s.check("ftruncate", ftruncate(file, kSize));
    s.check("fsync", fsync(file));
    char* memory = map(file, kSize, PROT_READ | PROT_WRITE, MAP_SHARED);
    memory[kStored] = 'x';
    const auto find = [&] {
      const int reader = open("f", O_RDONLY | O_CLOEXEC);
      for (const int descriptor : {file, reader}) {
        const off_t data = lseek(descriptor, 0, SEEK_DATA);
        const off_t hole = data < 0 ? -1 : lseek(descriptor, data, SEEK_HOLE);
        s.note(0 <= data && data <= kStored && kStored < hole ? "is data" : "is taken for a hole");
      }
      s.check("close", close(reader));
    };
    find();
    s.check("msync", msync(memory, kSize, MS_SYNC));
    find();
    memory[kStored + 1] = 'y';
    s.check("munmap", munmap(memory, kSize));
    find();
    s.content("f");
  });
}

TEST_F(PosixMmap, PrivateWritesStayPrivate) {
  compare([](Scene& s) {
    s.write("f", std::string(2 * kPage, 'x'));
    const int file = open("f", O_RDONLY | O_CLOEXEC);
    char* memory = map(file, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    memory[5] = 'p';
    s.note(std::string(memory, 8));
    char bytes[9] = {};
    s.value("pread", pread(file, bytes, 8, 0));
    s.note(bytes);
    s.check("shared writable map of a reader", map(file, kPage, PROT_READ | PROT_WRITE, MAP_SHARED) ? 0 : -1);
    s.check("munmap", munmap(memory, 2 * kPage));
    s.content("f");
  });
}

TEST_F(PosixMmap, MappingsSeeTruncationAndOutliveNames) {
  compare([](Scene& s) {
    s.write("f", std::string(4 * kPage, 'x'));
    const int file = open("f", O_RDWR | O_CLOEXEC);
    char* memory = map(file, 4 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED);
    s.note(std::string(memory + 3 * kPage, 3));
    s.check("ftruncate", ftruncate(file, kPage));
    s.check("ftruncate", ftruncate(file, 4 * kPage));
    s.value("a byte after shrinking and growing", memory[2 * kPage]);
    s.check("unlink", unlink("f"));
    close(file);
    std::memcpy(memory + kPage, "nameless", 8);
    s.note(std::string(memory + kPage, 8));
    s.check("munmap", munmap(memory, 4 * kPage));
    const pid_t child = fork();
    if (child == 0) {
      signal(SIGBUS, SIG_DFL);  // a sanitizer would take it for a fault of ours
      const int other = open("g", O_RDWR | O_CREAT, 0644);
      char* beyond = map(other, kPage, PROT_READ, MAP_SHARED);
      _exit(beyond[0]);
    }
    int status = 0;
    waitpid(child, &status, 0);
    s.note(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS ? "SIGBUS beyond the end" : "no SIGBUS");
  });
}

TEST_F(PosixMmap, TwoProcessesShareOneMapping) {
  compare([](Scene& s) {
    const int file = open("f", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    s.check("ftruncate", ftruncate(file, kPage));
    char* memory = map(file, kPage, PROT_READ | PROT_WRITE, MAP_SHARED);
    const pid_t child = fork();
    if (child == 0) {
      const int own = open("f", O_RDWR | O_CLOEXEC);
      char* shared = map(own, kPage, PROT_READ | PROT_WRITE, MAP_SHARED);
      std::memcpy(shared, "from the child", 14);
      _exit(0);
    }
    waitpid(child, nullptr, 0);
    s.note(std::string(memory, 14));
  });
}

// Whether another process could take the lock.
std::string others_try(const char* name, const std::function<int(int)>& take) {
  const pid_t child = fork();
  if (child == 0) {
    const int file = open(name, O_RDWR | O_CLOEXEC);
    _exit(take(file) == 0 ? 0 : errno);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status) == 0 ? "free" : errno_name(WEXITSTATUS(status));
}

TEST_F(PosixLocks, FlockExcludesAcrossProcesses) {
  compare([](Scene& s) {
    s.write("f", "x");
    const auto try_exclusive = [](int file) { return flock(file, LOCK_EX | LOCK_NB); };
    const auto try_shared = [](int file) { return flock(file, LOCK_SH | LOCK_NB); };
    const int file = open("f", O_RDWR | O_CLOEXEC);
    s.check("exclusive", flock(file, LOCK_EX));
    s.note("others: " + others_try("f", try_exclusive) + " " + others_try("f", try_shared));
    s.check("shared", flock(file, LOCK_SH));
    s.note("others: " + others_try("f", try_exclusive) + " " + others_try("f", try_shared));
    s.check("unlock", flock(file, LOCK_UN));
    s.note("others: " + others_try("f", try_exclusive));
    const int second = open("f", O_RDWR | O_CLOEXEC);
    s.check("first", flock(file, LOCK_EX));
    s.check("second descriptor of the process", flock(second, LOCK_EX | LOCK_NB));
    close(file);
    s.check("after close", flock(second, LOCK_EX | LOCK_NB));
  });
}

TEST_F(PosixLocks, FcntlLocksExcludeByRange) {
  compare([](Scene& s) {
    s.write("f", "0123456789");
    const auto lock = [](short type, off_t start, off_t length) {
      struct flock range {};
      range.l_type = type;
      range.l_whence = SEEK_SET;
      range.l_start = start;
      range.l_len = length;
      return range;
    };
    const auto attempt = [&](short type, off_t start, off_t length) {
      return others_try("f", [&](int file) {
        struct flock range = lock(type, start, length);
        return fcntl(file, F_SETLK, &range);
      });
    };
    const int file = open("f", O_RDWR | O_CLOEXEC);
    struct flock range = lock(F_WRLCK, 2, 3);
    s.check("write lock", fcntl(file, F_SETLKW, &range));
    s.note("inside " + attempt(F_RDLCK, 3, 1) + ", outside " + attempt(F_WRLCK, 6, 2));
    range = lock(F_RDLCK, 2, 3);
    s.check("read lock", fcntl(file, F_SETLK, &range));
    s.note("read " + attempt(F_RDLCK, 3, 1) + ", write " + attempt(F_WRLCK, 3, 1));
    const pid_t child = fork();
    if (child == 0) {
      const int own = open("f", O_RDWR | O_CLOEXEC);
      struct flock asked = lock(F_WRLCK, 0, 0);
      fcntl(own, F_GETLK, &asked);
      _exit(asked.l_type == F_RDLCK && asked.l_pid == getppid() ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    s.value("F_GETLK", status);
    const int other = open("f", O_RDWR | O_CLOEXEC);
    close(other);
    s.note("after closing another descriptor " + attempt(F_WRLCK, 0, 0));
    struct flock open_range = lock(F_WRLCK, 0, 0);
    s.check("OFD lock", fcntl(file, F_OFD_SETLK, &open_range));
    s.note("others " + attempt(F_WRLCK, 5, 1));
  });
}

}  // namespace
}  // namespace escrow::support
