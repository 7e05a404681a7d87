// The bytes of files on a mount, against ext4: reading, writing, holes, copying, and what is open but has no name.
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/falloc.h>
#include <poll.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/mount/differential.h"

namespace escrow::support {
namespace {

using PosixFiles = Differential;

constexpr off_t kMebibyte = 1 << 20;

std::string summary(int file) {
  struct stat values {};
  fstat(file, &values);
  std::string bytes(static_cast<std::size_t>(values.st_size), '?');
  const ssize_t size = pread(file, bytes.data(), bytes.size(), 0);
  return std::to_string(size) + " bytes, hash " + std::to_string(std::hash<std::string>()(bytes));
}

std::string pattern(std::size_t size, unsigned seed = 1) {
  std::string result(size, '\0');
  for (char& c : result) c = static_cast<char>('a' + (seed = seed * 1103515245 + 12345) / 65536 % 26);
  return result;
}

TEST_F(PosixFiles, ReadsAndWritesAtAnyOffset) {
  compare([](Scene& s) {
    const int file = open("f", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    s.value("write", write(file, "hello", 5));
    s.value("pwrite past the end", pwrite(file, "tail", 4, 10));
    s.value("pwrite across pages", pwrite(file, pattern(10000).data(), 10000, 4090));
    char bytes[64];
    s.value("read at the end", pread(file, bytes, sizeof bytes, 14090));
    s.value("read past the end", pread(file, bytes, sizeof bytes, 99999));
    s.value("read at a negative offset", pread(file, bytes, sizeof bytes, -1));
    s.value("short read", pread(file, bytes, sizeof bytes, 14080));
    s.note(summary(file));
    s.value("lseek end", lseek(file, 0, SEEK_END));
    s.value("lseek beyond", lseek(file, 100, SEEK_CUR));
    s.value("lseek before the start", lseek(file, -1, SEEK_SET));
    s.value("write beyond", write(file, "x", 1));
    s.note(summary(file));
    iovec parts[3] = {{bytes, 4}, {bytes + 10, 6}, {bytes + 20, 8}};
    s.value("readv", preadv(file, parts, 3, 4090));
    s.value("writev", pwritev(file, parts, 3, 5));
    s.note(summary(file));
    s.check("read of a writer", open("f", O_WRONLY | O_CLOEXEC) >= 0 ? 0 : -1);
    const int reader = open("f", O_RDONLY | O_CLOEXEC);
    s.value("write of a reader", write(reader, "x", 1));
    const int directory = open(".", O_RDONLY | O_CLOEXEC);
    s.value("read of a directory", read(directory, bytes, 1));
  });
}

TEST_F(PosixFiles, LargeWritesAndReadsAreWhole) {
  compare([](Scene& s) {
    const int file = open("f", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    const std::string bytes = pattern(5 * kMebibyte + 12345);
    s.value("write", write(file, bytes.data(), bytes.size()));
    s.note(summary(file));
    s.value("overwrite in the middle", pwrite(file, bytes.data(), 2 * kMebibyte + 7, 1234567));
    s.note(summary(file));
    const int again = open("f", O_RDONLY | O_CLOEXEC);
    s.note(summary(again));
  });
}

TEST_F(PosixFiles, AppendWritesAtTheEndWhoeverElseWrites) {
  compare([](Scene& s) {
    s.write("f", "start ");
    const int first = open("f", O_WRONLY | O_APPEND | O_CLOEXEC);
    const int second = open("f", O_WRONLY | O_APPEND | O_CLOEXEC);
    s.value("first", write(first, "one ", 4));
    s.value("second", write(second, "two ", 4));
    s.value("pwrite with O_APPEND", pwrite(first, "three ", 6, 0));
    s.check("truncate", truncate("f", 6));
    s.value("after truncation", write(second, "four", 4));
    s.content("f");
    std::vector<pid_t> children;
    for (int i = 0; i < 4; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        for (int n = 0; n < 50; ++n) {
          if (write(first, "0123456789", 10) != 10) _exit(1);
        }
        _exit(0);
      }
      children.push_back(child);
    }
    for (const pid_t child : children) waitpid(child, nullptr, 0);
    s.stat("f");
  });
}

TEST_F(PosixFiles, OpenWithTruncEmptiesTheFile) {
  compare([](Scene& s) {
    s.write("f", "content");
    const int other = open("f", O_RDWR | O_CLOEXEC);
    s.check("O_TRUNC", try_open("f", O_WRONLY | O_TRUNC));
    s.stat("f");
    char bytes[8];
    s.value("read through another descriptor", pread(other, bytes, sizeof bytes, 0));
    s.value("write through it", pwrite(other, "x", 1, 3));
    s.content("f");
    s.check("O_CREAT and O_TRUNC", try_open("f", O_RDWR | O_CREAT | O_TRUNC));
    s.stat("f");
    s.write("r", "readonly", 0444);
    s.check("O_TRUNC of a read-only file", try_open("r", O_WRONLY | O_TRUNC));
    s.stat("r");
  });
}

TEST_F(PosixFiles, AnUnlinkedFileLivesWhileItIsOpen) {
  compare([](Scene& s) {
    s.write("f", "here");
    const int file = open("f", O_RDWR | O_CLOEXEC);
    s.check("unlink", unlink("f"));
    struct stat values {};
    s.check("fstat", fstat(file, &values));
    s.note("links " + std::to_string(values.st_nlink));
    s.value("write", pwrite(file, " and there", 10, 4));
    s.note(summary(file));
    s.check("ftruncate", ftruncate(file, 6));
    s.check("fchmod", fchmod(file, 0600));
    s.check("fallocate", fallocate(file, 0, 0, 5000));
    s.check("fsync", fsync(file));
    s.note(summary(file));
    s.write("f", "another");
    s.note(summary(file));
    s.content("f");
    s.check("linkat",
            linkat(AT_FDCWD, ("/proc/self/fd/" + std::to_string(file)).c_str(), AT_FDCWD, "g", AT_SYMLINK_FOLLOW));
    s.check("rename over", (s.write("h", "h"), rename("f", "h")));
    s.content("h");
    close(file);
    s.list(".");
  });
}

TEST_F(PosixFiles, AFileThatWasRenamedOverLivesWhileItIsOpen) {
  compare([](Scene& s) {
    s.write("old", "old bytes");
    s.write("new", "new bytes");
    const int file = open("old", O_RDWR | O_CLOEXEC);
    s.check("rename", rename("new", "old"));
    s.note(summary(file));
    s.value("write", pwrite(file, "OLD", 3, 0));
    s.note(summary(file));
    s.content("old");
    struct stat values {};
    s.check("fstat", fstat(file, &values));
    s.note("links " + std::to_string(values.st_nlink));
  });
}

TEST_F(PosixFiles, DirectIoReadsAndWrites) {
  compare([](Scene& s) {
    void* memory = nullptr;
    if (posix_memalign(&memory, 4096, 65536) != 0) return;
    std::memcpy(memory, pattern(65536).data(), 65536);
    const int file = open("f", O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0644);
    s.check("open", file);
    s.value("write", pwrite(file, memory, 65536, 0));
    const int cached = open("f", O_RDWR | O_CLOEXEC);
    s.note(summary(cached));
    s.value("cached write", pwrite(cached, "cached", 6, 8192));
    s.value("direct read sees it", pread(file, memory, 4096, 8192));
    s.note(std::string(static_cast<char*>(memory), 6));
    std::memset(memory, 'd', 4096);
    s.value("direct write", pwrite(file, memory, 4096, 4096));
    char byte = 0;
    s.value("cached read sees it", pread(cached, &byte, 1, 5000));
    s.note(std::string(1, byte));
    s.value("direct read at the end", pread(file, memory, 65536, 65536 - 4096));
    std::free(memory);
  });
}

// Beside a reader of the same bytes: SEMANTICS.md, Exemptions.
TEST_F(PosixFiles, AsynchronousDirectWritesAreSeenByLaterReads) {
  compare([](Scene& s) {
    alignas(4096) static char block[4096];
    s.write("f", pattern(65536));
    const int file = open("f", O_RDWR | O_DIRECT | O_CLOEXEC), cached = open("f", O_RDONLY | O_CLOEXEC);
    aio_context_t context = 0;
    s.check("io_setup", static_cast<int>(syscall(SYS_io_setup, 1, &context)));
    for (int i = 0; i < 100; ++i) {
      std::memset(block, 'A' + i % 26, sizeof block);
      iocb request{};
      request.aio_lio_opcode = IOCB_CMD_PWRITE;
      request.aio_fildes = static_cast<std::uint32_t>(file);
      request.aio_buf = reinterpret_cast<std::uintptr_t>(block);
      request.aio_nbytes = sizeof block;
      request.aio_offset = i * 7 % 16 * 4096;
      iocb* requests = &request;
      io_event done{};
      if (syscall(SYS_io_submit, context, 1, &requests) != 1) s.note("not submitted");
      if (syscall(SYS_io_getevents, context, 1, 1, &done, nullptr) != 1) s.note("no answer");
      s.note(std::to_string(done.res) + ", " + summary(cached));
    }
    syscall(SYS_io_destroy, context);
  });
}

TEST_F(PosixFiles, HolesReadAsZeroesAndTakeNoSpace) {
  compare([](Scene& s) {
    const int file = open("f", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    s.value("write", pwrite(file, pattern(8192).data(), 8192, 0));
    s.value("write far", pwrite(file, pattern(8192).data(), 8192, 10 * kMebibyte));
    s.check("extend", ftruncate(file, 20 * kMebibyte));
    s.check("fsync", fsync(file));
    s.note(summary(file));
    // At and behind the end; before it a file system may say that all is data (lseek(2), NOTES).
    for (const off_t offset : {off_t{20 * kMebibyte}, off_t{30 * kMebibyte}, off_t{-1}}) {
      s.value("SEEK_DATA from " + std::to_string(offset), lseek(file, offset, SEEK_DATA));
      s.value("SEEK_HOLE from " + std::to_string(offset), lseek(file, offset, SEEK_HOLE));
    }
    s.value("SEEK_DATA from data", lseek(file, 10 * kMebibyte + 1, SEEK_DATA));
    s.value("SEEK_HOLE from a hole at the end", lseek(file, 20 * kMebibyte - 1, SEEK_HOLE) >= 20 * kMebibyte - 1);
    struct stat values {};
    fstat(file, &values);
    s.note(values.st_blocks < 100 ? "sparse" : "not sparse");
    s.value("blocks", values.st_blocks);
  });
}

TEST_F(PosixFiles, FallocateReservesPunchesAndZeroes) {
  compare([](Scene& s) {
    const int file = open("f", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    s.value("write", write(file, pattern(100000).data(), 100000));
    const auto call = [&](const char* what, int mode, off_t offset, off_t length) {
      s.check(what, fallocate(file, mode, offset, length));
      s.stat("f");
      s.note(summary(file));
    };
    call("reserve inside", 0, 1000, 1000);
    call("reserve beyond", 0, 99000, 50000);
    call("reserve beyond, keep size", FALLOC_FL_KEEP_SIZE, 200000, 50000);
    call("punch", FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 5000, 20000);
    call("punch beyond the end", FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 140000, 200000);
    call("zero", FALLOC_FL_ZERO_RANGE, 40000, 10000);
    call("zero beyond", FALLOC_FL_ZERO_RANGE, 145000, 15000);
    call("zero beyond, keep size", FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 155000, 15000);
    call("punch without keep size", FALLOC_FL_PUNCH_HOLE, 0, 10);
    call("no length", 0, 0, 0);
    call("negative", 0, -1, 10);
    call("unknown mode", 0x100, 0, 10);
    const int reader = open("f", O_RDONLY | O_CLOEXEC);
    s.check("of a reader", fallocate(reader, 0, 0, 10));
    s.check("posix_fallocate", posix_fallocate(file, 0, 300000) == 0 ? 0 : -1);
    s.stat("f");
    s.times("fallocate", "f",
            [&] { s.check("punch", fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096)); });
  });
}

TEST_F(PosixFiles, FallocateModesThatShiftBytesAreRefused) {
  EXPECT_EQ("collapse -> EOPNOTSUPP\ninsert -> EOPNOTSUPP\n", on_mount([](Scene& s) {
              s.write("f", pattern(16384));
              const int file = open("f", O_RDWR | O_CLOEXEC);
              s.check("collapse", fallocate(file, FALLOC_FL_COLLAPSE_RANGE, 0, 4096));
              s.check("insert", fallocate(file, FALLOC_FL_INSERT_RANGE, 0, 4096));
            }));
}

TEST_F(PosixFiles, CopyFileRangeCopiesBetweenAndWithinFiles) {
  compare([](Scene& s) {
    const int from = open("a", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    const int to = open("b", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    s.value("write", write(from, pattern(3 * kMebibyte).data(), 3 * kMebibyte));
    const auto copy = [&](const char* what, int source, off_t in, int target, off_t out, std::size_t length) {
      s.value(what, copy_file_range(source, &in, target, &out, length, 0));
      s.note(summary(target));
    };
    copy("all", from, 0, to, 0, 3 * kMebibyte);
    copy("a part", from, 1000, to, 50, 100000);
    copy("past the end", from, 3 * kMebibyte - 10, to, 3 * kMebibyte, 1000);
    copy("from the end", from, 3 * kMebibyte, to, 0, 1000);
    copy("within one file", from, 0, from, kMebibyte, 5000);
    copy("overlapping", from, 0, from, 10, 5000);
    copy("beyond the end of the target", from, 0, to, 5 * kMebibyte, 10);
    const int reader = open("b", O_RDONLY | O_CLOEXEC);
    copy("to a reader", from, 0, reader, 0, 10);
    off_t zero = 0;
    s.value("sendfile", sendfile(to, from, &zero, 70000));
    s.note(summary(to));
  });
}

TEST_F(PosixFiles, CopyFileRangeTakesAllOfALargeRange) {
  compare([](Scene& s) {
    const int from = open("a", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    const int to = open("b", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    s.check("ftruncate", ftruncate(from, 150 * kMebibyte));
    s.value("write", pwrite(from, "end", 3, 150 * kMebibyte - 3));
    off_t in = 0, out = 0;
    while (copy_file_range(from, &in, to, &out, 200 * kMebibyte, 0) > 0) {
    }
    s.stat("b");
    char bytes[4] = {};
    s.value("read", pread(to, bytes, 3, 150 * kMebibyte - 3));
    s.note(bytes);
  });
}

TEST_F(PosixFiles, ARunningProgramIsETXTBSYForWriters) {
  compare([](Scene& s) {
    const int source = open("/bin/sleep", O_RDONLY | O_CLOEXEC);
    const int program = open("program", O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    struct stat values {};
    fstat(source, &values);
    off_t offset = 0;
    while (offset < values.st_size && sendfile(program, source, &offset, 1 << 20) > 0) {
    }
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return;
    s.check("execute while it is written to", [&] {
      const pid_t child = fork();
      if (child == 0) {
        execl("program", "program", "0", nullptr);
        _exit(errno == ETXTBSY ? 1 : 2);
      }
      int status = 0;
      waitpid(child, &status, 0);
      errno = ETXTBSY;
      return WEXITSTATUS(status) == 1 ? -1 : 0;
    }());
    close(program);
    const pid_t child = fork();
    if (child == 0) {
      execl("program", "program", "20", nullptr);
      _exit(2);
    }
    close(ends[1]);
    char byte;
    s.value("exec has closed the pipe", read(ends[0], &byte, 1));
    s.check("open for writing", try_open("program", O_WRONLY));
    s.check("truncate", truncate("program", 0));
    s.check("open for reading", try_open("program", O_RDONLY));
    s.check("rename", rename("program", "renamed"));
    s.check("unlink", unlink("renamed"));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  });
}

TEST_F(PosixFiles, UnnamedTemporaryFilesAreRefused) {
  EXPECT_EQ("O_TMPFILE -> EOPNOTSUPP\nagain -> EOPNOTSUPP\n", on_mount([](Scene& s) {
              s.check("O_TMPFILE", open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
              s.check("again", open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
            }));
}

TEST_F(PosixFiles, SyncCallsSucceed) {
  compare([](Scene& s) {
    const int file = open("f", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    s.value("write", write(file, "x", 1));
    s.check("fsync", fsync(file));
    s.check("fdatasync", fdatasync(file));
    s.check("sync_file_range", sync_file_range(file, 0, 0, SYNC_FILE_RANGE_WRITE));
    s.check("syncfs", syncfs(file));
    const int directory = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    s.check("fsync of a directory", fsync(directory));
    s.check("fdatasync of a directory", fdatasync(directory));
    const int reader = open("f", O_RDONLY | O_CLOEXEC);
    s.check("fsync of a reader", fsync(reader));
    const int synchronous = open("s", O_RDWR | O_CREAT | O_SYNC | O_CLOEXEC, 0644);
    s.value("O_SYNC write", write(synchronous, "y", 1));
  });
}

TEST_F(PosixFiles, PollSaysAFileIsReady) {
  compare([](Scene& s) {
    const int file = open("f", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    pollfd ready{file, POLLIN | POLLOUT, 0};
    s.value("poll", poll(&ready, 1, 0));
    s.value("events", ready.revents);
  });
}

TEST_F(PosixFiles, OffsetsBeyondTheLargestFileAreRefused) {
  compare_as_root([](Scene& s) {
    const int file = open("f", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    s.value("pwrite at the very end", pwrite(file, "x", 1, INT64_MAX) < 0 ? -1 : 0);
  });
}

}  // namespace
}  // namespace escrow::support
