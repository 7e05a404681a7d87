// Attributes on a mount, against ext4: modes, owners, sizes, times, permissions.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <vector>

#include "tests/mount/differential.h"

namespace escrow::support {
namespace {

using PosixAttributes = Differential;

void note_times(Scene& s, const char* name) {
  struct stat values {};
  s.check("stat", lstat(name, &values));
  s.note(std::to_string(values.st_atim.tv_sec) + "." + std::to_string(values.st_atim.tv_nsec) + " " +
         std::to_string(values.st_mtim.tv_sec) + "." + std::to_string(values.st_mtim.tv_nsec));
}

TEST_F(PosixAttributes, ChmodSetsAllTwelveBits) {
  compare([](Scene& s) {
    s.write("f", "x");
    s.make_directory("d");
    for (unsigned mode = 0; mode <= 07777; mode = mode * 2 + 1) {
      s.check("chmod", chmod("f", mode));
      s.stat("f");
      s.check("chmod of a directory", chmod("d", mode | 0500));
      s.stat("d");
    }
    s.make_symlink("f", "l");
    s.check("chmod through a link", chmod("l", 0640));
    s.stat("f");
    s.check("chmod of a dangling link", (unlink("f"), chmod("l", 0640)));
    s.check("chmod of nothing", chmod("nothing", 0640));
  });
}

TEST_F(PosixAttributes, ChownIsForRootAndClearsSetuid) {
  compare([](Scene& s) {
    s.write("f", "x");
    s.check("chmod", chmod("f", 06755));
    s.check("chown of the owner", chown("f", 1234, -1u));
    s.stat("f");
    s.check("chmod", chmod("f", 06755));
    s.check("chown of the group", chown("f", -1u, 4321));
    s.stat("f");
    s.check("chmod", chmod("f", 02745));
    s.check("chown of nothing at all", chown("f", -1u, -1u));
    s.stat("f");
    s.check("chown to oneself", chown("f", geteuid(), getegid()));
    s.stat("f");
    s.make_symlink("f", "l");
    s.check("lchown", lchown("l", geteuid(), getegid()));
    s.stat("l");
    s.make_directory("d");
    s.check("chmod of a directory", chmod("d", 06755));
    s.check("chown of a directory", chown("d", geteuid(), getegid()));
    s.stat("d");
  });
}

TEST_F(PosixAttributes, SetattrOfSeveralThingsAtOnceKeepsTheOthers) {
  compare_as_root([](Scene& s) {
    s.write("f", "0123456789", 0640);
    s.check("chown both", chown("f", 5, 6));
    s.stat("f");
    s.check("truncate", truncate("f", 3));
    s.stat("f");
    const timespec times[2] = {{1000, 5}, {2000, 999999999}};
    s.check("utimensat", utimensat(AT_FDCWD, "f", times, 0));
    s.stat("f");
    note_times(s, "f");
    s.check("chmod", chmod("f", 0604));
    note_times(s, "f");
    s.check("chown", chown("f", 7, -1u));
    note_times(s, "f");
    s.stat("f");
    s.content("f");
  });
}

TEST_F(PosixAttributes, UtimensSetsOmitsAndTakesNow) {
  compare([](Scene& s) {
    s.write("f", "x");
    const std::vector<std::pair<timespec, timespec>> cases = {{{12345, 678}, {54321, 876}},
                                                              {{0, UTIME_OMIT}, {7, 8}},
                                                              {{9, 10}, {0, UTIME_OMIT}},
                                                              {{0, 0}, {0, 0}},
                                                              {{-1, 5}, {-2000, 6}},
                                                              {{4000000000, 1}, {4294967296, 2}},
                                                              {{0, UTIME_OMIT}, {0, UTIME_OMIT}}};
    for (const auto& [accessed, modified] : cases) {
      const timespec times[2] = {accessed, modified};
      s.times("utimensat changes ctime", "f", [&] { s.check("utimensat", utimensat(AT_FDCWD, "f", times, 0)); });
      note_times(s, "f");
    }
    const timespec now[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}};
    s.times("now", "f", [&] { s.check("utimensat", utimensat(AT_FDCWD, "f", now, 0)); });
    const timespec half[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
    s.times("access time now", "f", [&] { s.check("utimensat", utimensat(AT_FDCWD, "f", half, 0)); });
    const timespec bad[2] = {{0, 2000000000}, {0, 0}};
    s.check("bad nanoseconds", utimensat(AT_FDCWD, "f", bad, 0));
    s.make_symlink("f", "l");
    const timespec link[2] = {{11, 12}, {13, 14}};
    s.check("of a link", utimensat(AT_FDCWD, "l", link, AT_SYMLINK_NOFOLLOW));
    note_times(s, "l");
    s.make_directory("d");
    s.check("of a directory", utimensat(AT_FDCWD, "d", link, 0));
    note_times(s, "d");
    const int file = open("f", O_RDONLY | O_CLOEXEC);
    s.check("futimens", futimens(file, link));
    note_times(s, "f");
  });
}

TEST_F(PosixAttributes, ChangeTimeMovesOnEveryChange) {
  compare([](Scene& s) {
    s.write("f", "0123456789");
    s.times("chmod", "f", [&] { s.check("chmod", chmod("f", 0600)); });
    s.times("chmod to the same", "f", [&] { s.check("chmod", chmod("f", 0600)); });
    s.times("chown", "f", [&] { s.check("chown", chown("f", geteuid(), getegid())); });
    s.times("truncate", "f", [&] { s.check("truncate", truncate("f", 5)); });
    s.times("truncate to more", "f", [&] { s.check("truncate", truncate("f", 50)); });
    // The kernel's write-back cache keeps the times of a file, and moves none here.
    if (io_of_environment().data != fuse::Data::writeback)
      s.times("truncate to the same", "f", [&] { s.check("truncate", truncate("f", 50)); });
    s.times("ftruncate to the same", "f", [&] {
      const int file = open("f", O_WRONLY | O_CLOEXEC);
      s.check("ftruncate", ftruncate(file, 50));
      close(file);
    });
    s.times("O_TRUNC", "f", [&] { s.check("open", try_open("f", O_WRONLY | O_TRUNC)); });
    s.times("O_TRUNC of an empty one", "f", [&] { s.check("open", try_open("f", O_WRONLY | O_TRUNC)); });
    s.times("open for writing", "f", [&] { s.check("open", try_open("f", O_RDWR)); });
    const int file = open("f", O_RDWR | O_CLOEXEC);
    s.times("write", "f", [&] { s.value("write", write(file, "abc", 3)); });
    s.times("write of nothing", "f", [&] { s.value("write", write(file, "", 0)); });
    s.times("fallocate", "f", [&] { s.check("fallocate", fallocate(file, 0, 0, 10000)); });
    s.times("fsync", "f", [&] { s.check("fsync", fsync(file)); });
    s.times("a refused chmod", "f", [&] { s.check("chmod", chmod("f/x", 0600)); });
  });
}

TEST_F(PosixAttributes, WritingClearsSetuidAndSetgidForOrdinaryUsers) {
  compare_as_root([](Scene& s) {
    for (const unsigned mode : {04777u, 02777u, 06777u}) {
      s.write("f", "0123456789");
      s.check("chmod", chmod("f", mode));
      s.check("root writes", try_open("f", O_WRONLY | O_APPEND));
      s.stat("f");
      const int file = open("f", O_WRONLY | O_CLOEXEC);
      s.value("root writes", write(file, "r", 1));
      s.stat("f");
      close(file);
      s.check("chmod", chmod("f", mode));
      s.as(kNobody, [&] {
        const int own = open("f", O_WRONLY | O_CLOEXEC);
        s.value("a user writes", write(own, "u", 1));
        s.stat("f");
      });
      s.stat("f");
      s.check("chmod", chmod("f", mode));
      s.as(kNobody, [&] { s.check("a user truncates", truncate("f", 2)); });
      s.stat("f");
      s.check("chmod", chmod("f", mode));
      s.as(kNobody, [&] { s.check("O_TRUNC", try_open("f", O_WRONLY | O_TRUNC)); });
      s.stat("f");
      s.content("f");
    }
  });
}

TEST_F(PosixAttributes, SetgidDirectoriesHandTheirGroupOn) {
  compare_as_root([](Scene& s) {
    s.make_directory("d");
    s.check("chown", chown("d", kNobody, 4242));
    s.check("chmod", chmod("d", 02777));
    s.write("d/root", "");
    s.stat("d/root");
    s.as(kNobody, [&] {
      s.write("d/f", "");
      s.stat("d/f");
      s.make_directory("d/sub");
      s.stat("d/sub");
      s.make_directory("d/sub/subsub");
      s.stat("d/sub/subsub");
      s.make_symlink("x", "d/l");
      s.stat("d/l");
      s.check("mkfifo", mkfifo("d/p", 0644));
      s.stat("d/p");
      s.check("create setgid", try_open("d/g", O_CREAT | O_RDWR, 02775));
      s.stat("d/g");
      s.check("chmod g+s of a foreign group", chmod("d/f", 02755));
      s.stat("d/f");
    });
    s.make_directory("plain");
    s.check("rename", rename("d/f", "plain/f"));
    s.stat("plain/f");
  });
}

TEST_F(PosixAttributes, StickyDirectoriesProtectOthersFiles) {
  compare_as_root([](Scene& s) {
    s.make_directory("d");
    s.check("chmod", chmod("d", 01777));
    s.write("d/root", "r");
    s.make_directory("d/rootdir");
    s.make_directory("free", 0777);
    s.check("chmod", chmod("free", 0777));
    s.as(kNobody, [&] {
      s.write("d/mine", "m");
      s.check("unlink another's", unlink("d/root"));
      s.check("rmdir another's", rmdir("d/rootdir"));
      s.check("rename another's", rename("d/root", "free/x"));
      s.check("rename over another's", rename("d/mine", "d/root"));
      s.check("exchange with another's", renameat2(AT_FDCWD, "d/mine", AT_FDCWD, "d/root", RENAME_EXCHANGE));
      s.check("rename mine", rename("d/mine", "d/mine2"));
      s.check("unlink mine", unlink("d/mine2"));
    });
    s.as(1000, [&] {
      s.write("d/other", "o");
      s.check("link of another's", link("d/root", "free/y"));
    });
    s.check("root may", unlink("d/other"));
    s.list("d");
    s.list("free");
  });
}

TEST_F(PosixAttributes, PermissionsAreCheckedForOwnerGroupAndOthers) {
  compare_as_root([](Scene& s) {
    for (const unsigned mode : {0700u, 0070u, 0007u, 0444u, 0222u, 0111u, 0000u}) {
      s.write("f", "x");
      s.check("chmod", chmod("f", mode));
      for (const auto& [uid, gid] : std::vector<std::pair<unsigned, unsigned>>{{kNobody, 0}, {0, kNobody}, {0, 0}}) {
        s.check("chown", chown("f", uid, gid));
        s.check("chmod", chmod("f", mode));
        s.as(kNobody, [&] {
          s.check("read", try_open("f", O_RDONLY));
          s.check("write", try_open("f", O_WRONLY));
          s.check("both", try_open("f", O_RDWR));
          s.check("truncate", truncate("f", 1));
          s.check("access r", access("f", R_OK));
          s.check("access w", access("f", W_OK));
          s.check("access x", access("f", X_OK));
          s.check("chmod", chmod("f", mode));
          s.check("chown", chown("f", kNobody, kNobody));
          s.check("utimes to now", utimensat(AT_FDCWD, "f", nullptr, 0));
          const timespec times[2] = {{1, 2}, {3, 4}};
          s.check("utimes to then", utimensat(AT_FDCWD, "f", times, 0));
        });
      }
      s.check("root reads", try_open("f", O_RDWR));
      s.check("root executes", access("f", X_OK));
      s.check("unlink", unlink("f"));
    }
  });
}

TEST_F(PosixAttributes, DirectoryPermissionsGuardNames) {
  compare_as_root([](Scene& s) {
    s.make_directory("d");
    s.make_directory("d/sub");
    s.write("d/f", "x", 0666);
    s.check("chmod", chmod("d/f", 0666));
    for (const unsigned mode : {0755u, 0744u, 0711u, 0733u, 0722u, 0700u}) {
      s.check("chmod", chmod("d", mode));
      s.as(kNobody, [&] {
        s.list("d");
        s.stat("d/f");
        s.check("open", try_open("d/f", O_RDONLY));
        s.check("write", try_open("d/f", O_WRONLY));
        s.check("create", try_open("d/new" + std::to_string(mode), O_CREAT | O_RDWR));
        s.check("mkdir", mkdir(("d/dir" + std::to_string(mode)).c_str(), 0755));
        s.check("symlink", symlink("x", ("d/l" + std::to_string(mode)).c_str()));
        s.check("unlink", unlink("d/f"));
        s.check("unlink of nothing", unlink("d/nothing"));
        s.check("rmdir", rmdir("d/sub"));
        s.check("rename", rename("d/f", "d/g"));
        s.check("chdir", chdir("d"));
      });
      s.write("d/f", "x");
      s.check("chmod", chmod("d/f", 0666));
      s.check("mkdir", mkdir("d/sub", 0755));
    }
  });
}

TEST_F(PosixAttributes, MovingADirectoryOfAnotherNeedsItsPermission) {
  compare_as_root([](Scene& s) {
    s.make_directory("a");
    s.make_directory("b");
    s.check("chmod", chmod("a", 0777));
    s.check("chmod", chmod("b", 0777));
    s.make_directory("a/d");
    s.as(kNobody, [&] {
      s.check("rename within the parent", rename("a/d", "a/e"));
      s.check("rename to another parent", rename("a/e", "b/e"));
      s.check("exchange", renameat2(AT_FDCWD, "a/e", AT_FDCWD, "b", RENAME_EXCHANGE));
    });
    s.list("a");
    s.list("b");
  });
}

TEST_F(PosixAttributes, TruncateShrinksExtendsAndRefuses) {
  compare([](Scene& s) {
    s.write("f", "0123456789");
    s.check("to less", truncate("f", 4));
    s.content("f");
    s.check("to more", truncate("f", 8));
    s.content("f");
    s.stat("f");
    s.check("to nothing", truncate("f", 0));
    s.stat("f");
    s.check("far", truncate("f", 1LL << 40));
    s.stat("f");
    s.check("negative", truncate("f", -1));
    s.check("of a directory", truncate(".", 0));
    s.check("of nothing", truncate("nothing", 0));
    s.make_symlink("f", "l");
    s.check("through a link", truncate("l", 3));
    s.stat("f");
    const int reader = open("f", O_RDONLY | O_CLOEXEC);
    s.check("ftruncate of a reader", ftruncate(reader, 1));
    s.check("fifo", mkfifo("p", 0644));
    s.check("truncate of a fifo", truncate("p", 0));
  });
}

TEST_F(PosixAttributes, AccessIsAnsweredByTheKernelAlone) {
  const auto count = [] {
    for (const auto& operation : tree().mount().counts()) {
      if (operation.name == "access" || operation.name == "flush") return operation.count;
    }
    return std::uint64_t{0};
  };
  compare([](Scene& s) {
    s.write("f", "x", 0604);
    s.check("r", access("f", R_OK));
    s.check("x", access("f", X_OK));
    s.check("nothing", access("nothing", F_OK));
    s.check("chdir", chdir("."));
    s.check("eaccess", faccessat(AT_FDCWD, "f", W_OK, AT_EACCESS));
  });
  EXPECT_EQ(0u, count());
}

TEST_F(PosixAttributes, StatfsTellsTheSpaceOfTheStagingDirectory) {
  compare([](Scene& s) {
    struct statvfs values {};
    s.check("statvfs", statvfs(".", &values));
    s.note("longest name " + std::to_string(values.f_namemax));
    s.note(values.f_blocks > 0 && values.f_bavail <= values.f_bfree && values.f_bfree <= values.f_blocks ? "sane"
                                                                                                         : "odd");
    s.note(values.f_frsize > 0 && values.f_files > 0 ? "sane" : "odd");
  });
}

TEST_F(PosixAttributes, InodeNumbersAreStableAndDistinct) {
  compare([](Scene& s) {
    s.write("a", "");
    s.write("b", "");
    struct stat a {
    }, b{}, c{}, d{};
    stat("a", &a);
    stat("b", &b);
    s.note(a.st_ino != b.st_ino ? "distinct" : "same");
    s.check("rename", rename("a", "c"));
    s.check("link", link("c", "d"));
    stat("c", &c);
    stat("d", &d);
    s.note(a.st_ino == c.st_ino && c.st_ino == d.st_ino ? "stable" : "changed");
    s.note(a.st_dev == b.st_dev ? "one device" : "two devices");
  });
}

TEST_F(PosixAttributes, UnknownIoctlsAreENOTTY) {
  compare([](Scene& s) {
    s.write("f", "x");
    const int file = open("f", O_RDONLY | O_CLOEXEC);
    int argument = 0;
    s.check("ioctl", ioctl(file, _IOR('e', 99, int), &argument));
    s.check("ioctl again", ioctl(file, _IOR('e', 99, int), &argument));
    s.check("TCGETS", isatty(file) ? 0 : -1);
  });
}

}  // namespace
}  // namespace escrow::support
