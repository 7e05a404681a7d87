// Listing directories on a mount, against ext4: complete, once each, and while names come and go.
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "tests/mount/differential.h"

namespace escrow::support {
namespace {

using PosixListing = Differential;

std::string numbered(int i) { return "a-name-of-some-length-" + std::to_string(i); }

TEST_F(PosixListing, AListingHasEveryNameOnceWithItsType) {
  compare([](Scene& s) {
    s.list(".");
    s.make_directory("d");
    s.make_symlink("x", "l");
    s.check("fifo", mkfifo("p", 0644));
    s.check("socket", mknod("s", S_IFSOCK | 0600, 0));
    s.write(".hidden", "");
    s.write("f", "");
    s.list(".");
    s.list("d");
    s.list("f");
    s.list("nothing");
  });
}

TEST_F(PosixListing, LargeDirectoriesAreListedWhole) {
  compare([](Scene& s) {
    s.make_directory("d");
    for (int i = 0; i < 3000; ++i) s.check("create", try_open("d/" + numbered(i), O_CREAT | O_WRONLY));
    for (int pass = 0; pass < 2; ++pass) {
      std::map<std::string, int> seen;
      DIR* listing = opendir("d");
      while (const dirent* entry = readdir(listing)) ++seen[entry->d_name];
      closedir(listing);
      int twice = 0;
      for (const auto& [name, count] : seen) twice += count > 1;
      s.note(std::to_string(seen.size()) + " names, " + std::to_string(twice) + " twice");
    }
  });
}

TEST_F(PosixListing, DeletingWhileListingMissesNothing) {
  compare([](Scene& s) {
    s.make_directory("d");
    for (int i = 0; i < 2000; ++i) s.check("create", try_open("d/" + numbered(i), O_CREAT | O_WRONLY));
    DIR* listing = opendir("d");
    int removed = 0;
    while (const dirent* entry = readdir(listing)) {
      if (entry->d_name[0] != '.' && unlinkat(dirfd(listing), entry->d_name, 0) == 0) ++removed;
    }
    closedir(listing);
    s.note(std::to_string(removed) + " removed in one pass");
    s.list("d");
    s.check("rmdir", rmdir("d"));
  });
}

TEST_F(PosixListing, NamesThatStayAreSeenOnceWhileOthersComeAndGo) {
  compare([](Scene& s) {
    s.make_directory("d");
    for (int i = 0; i < 1000; ++i) s.check("create", try_open("d/" + numbered(i), O_CREAT | O_WRONLY));
    DIR* listing = opendir("d");
    std::map<std::string, int> seen;
    int step = 0;
    while (const dirent* entry = readdir(listing)) {
      ++seen[entry->d_name];
      ++step;
      if (step % 10 == 0) {
        try_open("d/new-" + std::to_string(step), O_CREAT | O_WRONLY);
        unlink(("d/" + numbered(step / 10 * 2)).c_str());  // even numbers below 200
      }
    }
    closedir(listing);
    int once = 0;
    for (int i = 1; i < 1000; i += 2) once += seen[numbered(i)] == 1;
    s.note(std::to_string(once) + " of 500 that stayed were seen once");
  });
}

// A program that makes a name for each one it is shown, and goes on.
Scenario making_names_while_listing(int names) {
  return [names](Scene& s) {
    const auto run = [&](const char* what, const std::function<void(const std::string&, int)>& answer) {
      s.make_directory("d");
      for (int i = 0; i < names; ++i) s.write("d/" + numbered(i), "");
      DIR* listing = opendir("d");
      std::map<std::string, int> seen;
      int count = 0;
      while (const dirent* entry = readdir(listing)) {
        const std::string name = entry->d_name;
        if (name == "." || name == "..") continue;
        ++seen[name];
        if (++count > 4 * names) break;
        answer("d/" + name, count);
      }
      closedir(listing);
      s.note(std::string(what) + (count <= 4 * names ? ": it ends" : ": it goes on and on"));
      std::filesystem::remove_all("d");
      return seen;
    };
    run("each is renamed", [](const std::string& path, int n) {
      renameat(AT_FDCWD, path.c_str(), AT_FDCWD, ("d/renamed-" + std::to_string(n)).c_str());
    });
    const auto created = run("one is made for each", [](const std::string&, int n) {
      try_open("d/made-" + std::to_string(n), O_CREAT | O_WRONLY);
    });
    const auto replaced = run("each is replaced by a temporary file", [](const std::string& path, int) {
      try_open("d/temporary", O_CREAT | O_WRONLY);
      renameat(AT_FDCWD, "d/temporary", AT_FDCWD, path.c_str());
    });
    int stayed = 0, kept = 0;
    for (int i = 0; i < names; ++i) {
      stayed += created.contains(numbered(i)) && created.at(numbered(i)) == 1;
      kept += replaced.contains(numbered(i)) && replaced.at(numbered(i)) == 1;
    }
    s.note(std::to_string(stayed) + " that stayed and " + std::to_string(kept) + " that were replaced were seen once");
  };
}

// Few names are compared with the host's directory. More take minutes there where it is ext4 without a journal, which
// looks at each inode that was deleted in the last minutes before it makes a new one (recently_deleted() in ialloc.c).
TEST_F(PosixListing, AListingEndsWhileNamesAreMadeForEachThatItShows) {
  compare(making_names_while_listing(200));
  for (const unsigned uid : {0u, kNobody}) {
    const std::string names = std::to_string(tree().many_files());
    EXPECT_EQ("each is renamed: it ends\none is made for each: it ends\n"
              "each is replaced by a temporary file: it ends\n" +
                  names + " that stayed and " + names + " that were replaced were seen once\n",
              on_mount(making_names_while_listing(tree().many_files()), uid));
  }
}

TEST_F(PosixListing, RewindAndSeekGoBack) {
  compare([](Scene& s) {
    for (int i = 0; i < 500; ++i) s.write(numbered(i), "");
    DIR* listing = opendir(".");
    std::string first_name, middle_name;
    long middle = 0;
    int count = 0;
    while (const dirent* entry = readdir(listing)) {
      if (count == 0) first_name = entry->d_name;
      if (count == 250) middle_name = entry->d_name;
      ++count;
      if (count == 250) middle = telldir(listing);
    }
    seekdir(listing, middle);
    const dirent* entry = readdir(listing);
    s.note(entry != nullptr && entry->d_name == middle_name ? "seekdir finds the same entry" : "another entry");
    rewinddir(listing);
    entry = readdir(listing);
    s.note(entry != nullptr && entry->d_name == first_name ? "rewinddir finds the first" : "another entry");
    s.write("added", "");
    rewinddir(listing);
    bool is_there = false;
    while ((entry = readdir(listing)) != nullptr) is_there = is_there || std::string(entry->d_name) == "added";
    s.note(is_there ? "a new name is seen after rewinddir" : "a new name is missing");
    closedir(listing);
  });
}

TEST_F(PosixListing, TwoListingsAtOnceAreIndependent) {
  compare([](Scene& s) {
    for (int i = 0; i < 300; ++i) s.write(numbered(i), "");
    DIR* first = opendir(".");
    DIR* second = opendir(".");
    std::set<std::string> one, two;
    const dirent* a = nullptr;
    const dirent* b = nullptr;
    do {
      if ((a = readdir(first)) != nullptr) one.insert(a->d_name);
      if ((b = readdir(second)) != nullptr) two.insert(b->d_name);
    } while (a != nullptr || b != nullptr);
    s.note(std::to_string(one.size()) + " " + std::to_string(two.size()));
    closedir(first);
    closedir(second);
  });
}

TEST_F(PosixListing, InodeNumbersInListingsAreThoseOfStat) {
  compare([](Scene& s) {
    s.make_directory("d");
    s.write("d/f", "");
    s.make_symlink("f", "d/l");
    DIR* listing = opendir("d");
    while (const dirent* entry = readdir(listing)) {
      const std::string name = entry->d_name;
      struct stat values {};
      if (name == "..") continue;
      fstatat(dirfd(listing), name.c_str(), &values, AT_SYMLINK_NOFOLLOW);
      s.note(values.st_ino == entry->d_ino ? "same" : "different: " + name);
    }
    closedir(listing);
  });
}

}  // namespace
}  // namespace escrow::support
