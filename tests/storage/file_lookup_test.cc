// What cannot be looked at is not taken for absent: a symbolic link that leads to itself is refused with ELOOP, to root
// as well, where a disk that fails and a process without descriptors are refused with other errors.
#include "storage/disk/file_lookup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "session/base/error.h"
#include "storage/staging/sqlite_session_journal.h"
#include "tests/support/temporary_directory.h"

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using session::Error;

class FileLookup : public testing::Test {
 protected:
  FileLookup() { fs::create_symlink("loop", loop_); }

  support::TemporaryDirectory directory_;
  const std::string loop_ = directory_.path() + "/loop";
};

TEST_F(FileLookup, WhatIsNotThereIsAbsent) {
  const std::string none = directory_.path() + "/none";
  EXPECT_FALSE(is_there(none));
  EXPECT_FALSE(is_there(none + "/below"));
  EXPECT_TRUE(names_in(none).empty());
  EXPECT_FALSE(for_each_line(none, [](std::string_view) { FAIL(); }));
  EXPECT_TRUE(is_there(loop_)) << "the link itself";
}

TEST_F(FileLookup, WhatIsThereIsRead) {
  fs::create_directory(directory_.path() + "/d");
  std::ofstream(directory_.path() + "/d/file") << "one\n\nlast";
  EXPECT_EQ(names_in(directory_.path() + "/d"), std::vector<std::string>{"file"});
  std::vector<std::string> lines;
  EXPECT_TRUE(for_each_line(directory_.path() + "/d/file", [&](std::string_view line) { lines.emplace_back(line); }));
  EXPECT_EQ(lines, (std::vector<std::string>{"one", "", "last"}));
  EXPECT_EQ(first_line_of(directory_.path() + "/d/file"), "one");
  std::vector<std::string> below;
  for_each_below(directory_.path(), [&](const std::string& path, const struct stat&) { below.push_back(path); });
  std::sort(below.begin(), below.end());
  EXPECT_EQ(below, (std::vector<std::string>{directory_.path() + "/d", directory_.path() + "/d/file", loop_}));
  EXPECT_TRUE(is_directory(directory_.path() + "/d"));
  EXPECT_FALSE(is_directory(directory_.path() + "/d/file"));
}

TEST_F(FileLookup, WhatCannotBeLookedAtIsAnError) {
  EXPECT_THROW(is_there(loop_ + "/below"), Error);
  EXPECT_THROW(names_in(loop_), Error);
  EXPECT_THROW(is_directory(loop_), Error);
  EXPECT_THROW(first_line_of(loop_), Error);
  EXPECT_THROW(for_each_below(loop_, [](const std::string&, const struct stat&) {}), Error);
  EXPECT_THROW(for_each_line(loop_, [](std::string_view) {}), Error);
  EXPECT_THROW(for_each_line(directory_.path(), [](std::string_view) {}), Error) << "a directory is opened, not read";
}

TEST_F(FileLookup, AJournalThatCannotBeLookedAtIsNotAnEmptyOne) {
  EXPECT_THROW(SqliteSessionJournal(loop_).load(), Error);
}

}  // namespace
}  // namespace escrow::storage
