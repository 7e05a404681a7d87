// Names on a mount, against ext4: making, linking, renaming, removing and listing them.
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "tests/mount/differential.h"

namespace escrow::support {
namespace {

using PosixNames = Differential;

long rename_with(const char* from, const char* to, unsigned flags) {
  return renameat2(AT_FDCWD, from, AT_FDCWD, to, flags);
}

TEST_F(PosixNames, LookupOfAMissingNameIsENOENTUntilItIsMade) {
  compare([](Scene& s) {
    s.check("open before", try_open("a", O_RDONLY));
    s.check("below a missing directory", try_open("d/e", O_RDONLY | O_CREAT));
    s.write("a", "x");
    s.check("open after", try_open("a", O_RDONLY));
    s.check("below a file", try_open("a/b", O_RDONLY));
    s.stat("a");
    s.stat("a/b");
  });
}

TEST_F(PosixNames, CreateHonoursExclAndUmaskAndModes) {
  compare([](Scene& s) {
    for (const unsigned mode : {0666u, 0777u, 0600u, 0000u, 04755u, 02755u, 01644u}) {
      const std::string name = "f" + std::to_string(mode);
      s.check("create", try_open(name, O_CREAT | O_EXCL | O_WRONLY, mode));
      s.check("again", try_open(name, O_CREAT | O_EXCL | O_WRONLY, mode));
      s.stat(name);
    }
    umask(077);
    s.check("create under umask 077", try_open("u", O_CREAT | O_WRONLY, 0666));
    s.stat("u");
    s.check("a directory", try_open(".", O_CREAT | O_WRONLY));
    s.check("a directory for writing", try_open(".", O_WRONLY));
    s.check("O_DIRECTORY of a file", try_open("u", O_RDONLY | O_DIRECTORY));
    s.check("O_CREAT with a slash", try_open("new/", O_CREAT | O_WRONLY));
  });
}

TEST_F(PosixNames, MkdirAndRmdirAnswerAsExt4) {
  compare([](Scene& s) {
    s.check("mkdir", mkdir("d", 0777));
    s.stat("d");
    s.check("mkdir again", mkdir("d", 0777));
    s.check("mkdir below missing", mkdir("x/y", 0777));
    s.write("f", "");
    s.check("mkdir over a file", mkdir("f", 0777));
    s.check("mkdir below a file", mkdir("f/y", 0777));
    s.check("rmdir of a file", rmdir("f"));
    s.check("rmdir of nothing", rmdir("nothing"));
    s.write("d/inner", "1");
    s.check("rmdir of a full one", rmdir("d"));
    s.check("unlink of a directory", unlink("d"));
    s.check("unlink inner", unlink("d/inner"));
    s.check("rmdir of .", rmdir("d/."));
    s.check("rmdir of ..", rmdir("d/.."));
    s.check("rmdir", rmdir("d"));
    s.check("rmdir again", rmdir("d"));
    s.list(".");
  });
}

TEST_F(PosixNames, UnlinkRemovesOneNameAndKeepsOthers) {
  compare([](Scene& s) {
    s.write("a", "one");
    s.check("link", link("a", "b"));
    s.stat("a");
    s.check("unlink", unlink("a"));
    s.stat("a");
    s.stat("b");
    s.content("b");
    s.check("unlink of nothing", unlink("a"));
    s.check("unlink below a file", unlink("b/c"));
    s.check("unlink", unlink("b"));
    s.list(".");
  });
}

TEST_F(PosixNames, HardLinksShareContentModeAndCount) {
  compare([](Scene& s) {
    s.write("a", "first");
    s.make_directory("d");
    s.check("link", link("a", "d/b"));
    s.write("d/b", "second");
    s.content("a");
    s.check("chmod", chmod("a", 0600));
    s.stat("d/b");
    s.check("link over an existing name", link("a", "d/b"));
    s.check("link of a directory", link("d", "e"));
    s.check("link of nothing", link("nothing", "e"));
    s.make_symlink("a", "l");
    s.check("link of a symlink", linkat(AT_FDCWD, "l", AT_FDCWD, "l2", 0));
    s.stat("l2");
    s.times("link", "a", [&] { s.check("link", link("a", "c")); });
    s.times("unlink", "a", [&] { s.check("unlink", unlink("c")); });
    s.times("rename of another name", "a", [&] { s.check("rename", rename("d/b", "d/c")); });
    s.check("rename of a name to another of the same file", rename("a", "d/c"));
    s.list(".");
    s.list("d");
  });
}

TEST_F(PosixNames, SymlinksAreFollowedAsFarAsPosixSays) {
  compare([](Scene& s) {
    s.write("f", "x");
    s.make_directory("d");
    s.write("d/g", "y");
    s.make_symlink("f", "l");
    s.make_symlink("d", "ld");
    s.make_symlink("nowhere", "dangling");
    s.make_symlink("loop", "loop");
    s.stat("l");
    s.content("l");
    s.content("ld/g");
    s.check("open dangling", try_open("dangling", O_RDONLY));
    s.check("create through dangling", try_open("dangling", O_RDWR | O_CREAT));
    s.stat("nowhere");
    s.check("create exclusively through a link", try_open("dangling", O_RDWR | O_CREAT | O_EXCL));
    s.check("loop", try_open("loop", O_RDONLY));
    s.check("loop below", try_open("loop/x", O_RDONLY));
    s.check("O_NOFOLLOW", try_open("l", O_RDONLY | O_NOFOLLOW));
    s.check("symlink over a name", symlink("x", "f"));
    s.check("empty target", symlink("", "e"));
    s.check("target too long", symlink(std::string(5000, 't').c_str(), "e"));
    s.check("target of 4095", symlink(std::string(4095, 't').c_str(), "long"));
    s.stat("long");
    s.check("target of bytes", symlink("\x01\xff\xfe sp\nace", "bytes"));
    s.stat("bytes");
    char buffer[16];
    s.check("readlink of a file", readlink("f", buffer, sizeof buffer));
    s.value("readlink cut off", readlink("l", buffer, 1));
    s.check("unlink of a link to a directory", unlink("ld"));
    s.check("rmdir of a link", rmdir("l"));
    s.list(".");
  });
}

TEST_F(PosixNames, ChainsOfMoreThanFortySymlinksAreELOOP) {
  compare([](Scene& s) {
    s.write("l0", "end");
    for (int i = 1; i <= 45; ++i) s.make_symlink("l" + std::to_string(i - 1), "l" + std::to_string(i));
    s.check("40", try_open("l40", O_RDONLY));
    s.check("41", try_open("l41", O_RDONLY));
  });
}

TEST_F(PosixNames, RenameMovesAndReplaces) {
  compare([](Scene& s) {
    s.write("a", "A");
    s.write("b", "B");
    s.make_directory("d");
    s.make_directory("e");
    s.write("e/inner", "I");
    s.check("to a new name", rename("a", "c"));
    s.check("over a file", rename("c", "b"));
    s.content("b");
    s.check("into a directory", rename("b", "d/b"));
    s.check("of nothing", rename("b", "x"));
    s.check("a directory over an empty one", rename("e", "d/e"));
    s.make_directory("empty");
    s.check("a directory over a full one", rename("empty", "d"));
    s.check("a directory over an empty one", rename("d/e", "empty"));
    s.content("empty/inner");
    s.check("a directory into itself", rename("empty", "empty/sub"));
    s.check("a directory over a file", rename("empty", "d/b"));
    s.check("a file over a directory", rename("d/b", "empty"));
    s.check("onto itself", rename("d/b", "d/b"));
    s.check("of .", rename("d/.", "x"));
    s.check("file with a slash", rename("d/b", "x/"));
    s.check("to a missing parent", rename("d/b", "missing/b"));
    s.check("over its own parent", rename("d/b", "d"));
    s.list(".");
    s.list("d");
    s.list("empty");
  });
}

TEST_F(PosixNames, RenameOfADirectoryKeepsWhatIsBelow) {
  compare([](Scene& s) {
    s.make_directory("a");
    s.make_directory("a/b");
    s.make_directory("a/b/c");
    s.write("a/b/c/f", "deep");
    const int file = open("a/b/c/f", O_RDWR | O_CLOEXEC);
    const int directory = open("a/b", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    s.make_directory("x");
    s.check("rename", rename("a/b", "x/y"));
    s.content("x/y/c/f");
    s.check("old path", try_open("a/b/c/f", O_RDONLY));
    s.value("write through the open file", pwrite(file, "DEEP", 4, 0));
    s.content("x/y/c/f");
    s.check("openat through the open directory", openat(directory, "c/f", O_RDONLY | O_CLOEXEC));
    s.check("create through it", mkdirat(directory, "new", 0755));
    s.list("x/y");
    char where[4096];
    s.check("fchdir", fchdir(directory));
    const std::string path = getcwd(where, sizeof where) == nullptr ? "" : where;
    s.note("getcwd ends in x/y: " + std::string(path.ends_with("/x/y") ? "yes" : "no"));
  });
}

TEST_F(PosixNames, RenameFlagsNoReplaceAndExchange) {
  compare([](Scene& s) {
    s.write("a", "A");
    s.write("b", "B");
    s.make_directory("d");
    s.write("d/f", "F");
    s.check("NOREPLACE over a file", rename_with("a", "b", RENAME_NOREPLACE));
    s.check("NOREPLACE to a new name", rename_with("a", "c", RENAME_NOREPLACE));
    s.check("EXCHANGE of files", rename_with("c", "b", RENAME_EXCHANGE));
    s.content("c");
    s.content("b");
    s.check("EXCHANGE of a file and a directory", rename_with("c", "d", RENAME_EXCHANGE));
    s.stat("d");
    s.content("c/f");
    s.check("EXCHANGE with nothing", rename_with("d", "nothing", RENAME_EXCHANGE));
    s.check("EXCHANGE across directories", rename_with("d", "c/f", RENAME_EXCHANGE));
    s.content("d");
    s.content("c/f");
    s.check("EXCHANGE with its own child", rename_with("c", "c/f", RENAME_EXCHANGE));
    s.check("both flags", rename_with("c", "d", RENAME_EXCHANGE | RENAME_NOREPLACE));
    s.check("unknown flag", rename_with("c", "d", 1u << 7));
    s.list(".");
  });
}

TEST_F(PosixNames, RenameWithWhiteoutIsEINVAL) {
  EXPECT_EQ("whiteout -> EINVAL\n", on_mount([](Scene& s) {
              s.write("a", "A");
              s.check("whiteout", rename_with("a", "b", RENAME_WHITEOUT));
            }));
}

TEST_F(PosixNames, RenameAndLinkToAnotherFileSystemAreEXDEV) {
  compare([](Scene& s) {
    s.write("a", "A");
    s.check("rename", rename("a", "/proc/a"));
    s.check("link", link("a", "/proc/a"));
  });
}

TEST_F(PosixNames, NamesMayHoldAnyByteButSlashAndNul) {
  compare([](Scene& s) {
    for (int byte = 1; byte < 256; ++byte) {
      if (byte == '/' || byte == '.') continue;
      const std::string name(1, static_cast<char>(byte));
      s.write(name, name);
      s.check("again", try_open(name, O_RDONLY));
    }
    s.write("new\nline \t\"quoted\" \\ \xc3\x28 .git", "x");
    s.list(".");
    for (int byte = 1; byte < 256; ++byte) {
      if (byte != '/' && byte != '.') s.check("unlink", unlink(std::string(1, static_cast<char>(byte)).c_str()));
    }
    s.list(".");
  });
}

TEST_F(PosixNames, NamesOfMoreThan255BytesAreENAMETOOLONG) {
  compare([](Scene& s) {
    const std::string longest(255, 'n'), too_long(256, 'n');
    s.write("f", "");
    s.make_directory("d");
    s.check("create 255", try_open(longest, O_CREAT | O_RDWR));
    s.stat(longest);
    for (const std::string& name : {too_long, std::string(1024, 'n'), std::string(3000, 'n')}) {
      struct stat values {};
      s.check("stat", stat(name.c_str(), &values));
      s.check("create", try_open(name, O_CREAT | O_RDWR));
      s.check("mkdir", mkdir(name.c_str(), 0755));
      s.check("symlink", symlink("x", name.c_str()));
      s.check("mkfifo", mkfifo(name.c_str(), 0644));
      s.check("link", link("f", name.c_str()));
      s.check("rename", rename("f", name.c_str()));
      s.check("rename from", rename(name.c_str(), "g"));
      s.check("unlink", unlink(name.c_str()));
      s.check("rmdir", rmdir(name.c_str()));
      s.check("below", try_open("d/" + name, O_CREAT | O_RDWR));
    }
    s.check("path of 4096", try_open(std::string(2048, '.') + std::string(2048, '/'), O_RDONLY));
    s.check("unlink 255", unlink(longest.c_str()));
  });
}

TEST_F(PosixNames, FifosSocketsAndDevicesCanBeMade) {
  compare([](Scene& s) {
    s.check("fifo", mkfifo("fifo", 0640));
    s.stat("fifo");
    s.check("socket", mknod("socket", S_IFSOCK | 0600, 0));
    s.stat("socket");
    s.check("character device", mknod("null", S_IFCHR | 0666, makedev(1, 3)));
    s.stat("null");
    s.check("block device", mknod("loop", S_IFBLK | 0600, makedev(7, 300)));
    s.stat("loop");
    s.check("regular", mknod("file", S_IFREG | 0644, 0));
    s.stat("file");
    s.check("again", mknod("file", S_IFREG | 0644, 0));
    s.check("directory", mknod("dir", S_IFDIR | 0755, 0));
    const int reader = open("fifo", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    const int writer = open("fifo", O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    s.value("write to the fifo", write(writer, "through", 7));
    char bytes[16];
    s.value("read from it", read(reader, bytes, sizeof bytes));
    s.check("rename", rename("fifo", "pipe"));
    s.check("link", link("pipe", "pipe2"));
    s.stat("pipe2");
    s.check("open a socket", try_open("socket", O_RDONLY));
    s.list(".");
  });
}

TEST_F(PosixNames, DirectoriesTakeNewTimesWhenNamesComeAndGo) {
  compare([](Scene& s) {
    s.make_directory("d");
    s.make_directory("e");
    s.write("d/old", "x");
    s.times("create", "d", [&] { s.write("d/f", "x"); });
    s.times("mkdir", "d", [&] { s.make_directory("d/sub"); });
    s.times("symlink", "d", [&] { s.make_symlink("x", "d/l"); });
    s.times("mknod", "d", [&] { s.check("mkfifo", mkfifo("d/p", 0644)); });
    s.times("link", "d", [&] { s.check("link", link("d/f", "d/g")); });
    s.times("rename within", "d", [&] { s.check("rename", rename("d/g", "d/h")); });
    s.times("rename out, of the old parent", "d", [&] { s.check("rename", rename("d/h", "e/h")); });
    s.times("rename in, of the new parent", "e", [&] { s.check("rename", rename("d/f", "e/f")); });
    s.times("rename of a file", "e/f", [&] {
      s.check("rename", rename("e/f", "e/k"));
      s.check("back", rename("e/k", "e/f"));
    });
    s.times("rename of a directory", "d/sub", [&] {
      s.check("rename", rename("d/sub", "e/sub"));
      s.check("back", rename("e/sub", "d/sub"));
    });
    s.times("unlink", "d", [&] { s.check("unlink", unlink("d/l")); });
    s.times("rmdir", "d", [&] { s.check("rmdir", rmdir("d/sub")); });
    s.times("write in a file", "d", [&] { s.write("d/old", "y"); });
    s.times("chmod of a file", "d", [&] { s.check("chmod", chmod("d/old", 0600)); });
    s.times("a refused mkdir", "d", [&] { s.check("mkdir", mkdir("d/old", 0700)); });
    s.times("a refused rmdir", "d", [&] { s.check("rmdir", rmdir("d")); });
    s.times("list", "d", [&] { s.list("e"); });
  });
}

TEST_F(PosixNames, AnUnlinkedDirectoryThatIsOpenRefusesNewNames) {
  compare([](Scene& s) {
    s.make_directory("d");
    const int directory = open("d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    s.check("rmdir", rmdir("d"));
    s.check("create in it", openat(directory, "f", O_CREAT | O_RDWR | O_CLOEXEC, 0644));
    s.check("mkdir in it", mkdirat(directory, "f", 0755));
    struct stat values {};
    s.check("fstat", fstat(directory, &values));
    s.check("openat ..", openat(directory, "..", O_RDONLY | O_CLOEXEC));
    s.check("mkdir again", mkdir("d", 0755));
    s.check("a new one is another", openat(directory, "f", O_CREAT | O_RDWR | O_CLOEXEC, 0644));
  });
}

TEST_F(PosixNames, PathsWithDotsAndSlashesResolve) {
  compare([](Scene& s) {
    s.make_directory("d");
    s.make_directory("d/e");
    s.write("d/f", "x");
    s.content("d/e/../f");
    s.content("d//.//f");
    s.content("./d/e/./../../d/f");
    s.check("trailing slash of a file", try_open("d/f/", O_RDONLY));
    s.check("trailing slash of a directory", try_open("d/e/", O_RDONLY));
    s.check("empty path", try_open("", O_RDONLY));
  });
}

}  // namespace
}  // namespace escrow::support
