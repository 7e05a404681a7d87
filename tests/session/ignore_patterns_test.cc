// What git would not add, against git itself.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "session/trees/ignore_patterns.h"
#include "tests/session/git_command.h"
#include "tests/support/seed.h"

namespace escrow::session {
namespace {

namespace fs = std::filesystem;
using Verdict = IgnorePatterns::Verdict;

// A work tree with .gitignore files, as git sees it and as the levels do.
class WorkTree {
 public:
  WorkTree() { support::run_git(git_, "init -q ."); }

  void put(const std::string& path, const std::string& content = "") {
    const fs::path file = fs::path(git_.path()) / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << content;
    if (file.filename() == ".gitignore") ignore_files_[fs::path(path).parent_path().string()] = content;
    for (fs::path at = path; !at.empty(); at = at.parent_path()) paths_.insert(at.string());
  }
  void put_exclude(const std::string& content) {
    std::ofstream(git_.path() + "/.git/info/exclude", std::ios::binary) << content;
    exclude_ = content;
  }

  // The paths that git ignores.
  std::set<std::string> by_git() {
    std::string asked;
    for (const std::string& path : paths_) asked += path + '\0';
    const std::string told = support::run_git(git_, "check-ignore --no-index --stdin -z -v -n", asked, true);
    std::vector<std::string> fields;
    for (std::size_t at = 0; at < told.size();) {
      const std::size_t end = told.find('\0', at);
      fields.push_back(told.substr(at, end - at));
      at = end + 1;
    }
    EXPECT_EQ(fields.size(), 4 * paths_.size());
    std::set<std::string> ignored;
    for (std::size_t at = 0; at + 3 < fields.size(); at += 4)
      if (!fields[at + 2].empty() && fields[at + 2][0] != '!') ignored.insert(fields[at + 3]);
    return ignored;
  }

  std::set<std::string> by_levels() {
    std::map<std::string, std::unique_ptr<IgnoreLevel>> levels;
    const auto read = [this](const std::string& directory) {
      return [this, directory] { return ignore_files_[directory]; };
    };
    levels[""] = std::make_unique<IgnoreLevel>(exclude_, read(""));
    std::set<std::string> ignored;
    for (const std::string& path : paths_) {  // parents come before what is in them
      const std::string parent = fs::path(path).parent_path().string(), name = fs::path(path).filename().string();
      const bool is_directory = fs::is_directory(fs::path(git_.path()) / path);
      if (levels.at(parent)->ignores(name, is_directory)) ignored.insert(path);
      if (is_directory) levels[path] = std::make_unique<IgnoreLevel>(*levels.at(parent), name, read(path));
    }
    return ignored;
  }

  std::size_t size() const { return paths_.size(); }
  std::string described() const {
    std::string text = "info/exclude: " + exclude_;
    for (const auto& [directory, content] : ignore_files_) text += "\n" + directory + "/.gitignore: " + content;
    return text;
  }

 private:
  support::TemporaryDirectory git_;
  std::string exclude_;
  std::map<std::string, std::string> ignore_files_;
  std::set<std::string> paths_;
};

TEST(IgnorePatterns, DecideAsGitSaysInItsManual) {
  WorkTree tree;
  tree.put_exclude("*.swp\n");
  tree.put(".gitignore",
           "\xef\xbb\xbf*.o\r\n# comment\n\\#literal\n\\!bang\nbuild/\n/anchored\ndoc/*.txt\n**/deep/one\nabc/**\n"
           "a/**/b\n!keep.o\ntrailing  \nkept\\ \nout/\n!out/back\n*.[ch]x\n[[:digit:]]z\n[!a-c]q\nno-newline");
  tree.put("src/.gitignore", "!*.o\n*.tmp\n/local\n");
  for (const char* path :
       {"x.o", "keep.o", "#literal", "!bang", "build/x", "sub/build/y", "anchored", "sub/anchored", "doc/a.txt",
        "doc/sub/a.txt", "deep/one", "x/deep/one", "x/y/deep/one", "abc/x/y", "x/abc/z", "a/b", "a/x/b", "a/x/y/b",
        "trailing", "trailing  ", "kept ", "out/back", "m.cx", "m.hx", "m.ix", "7z", "az", "aq", "dq", "no-newline",
        "src/x.o", "src/x.tmp", "src/local", "src/sub/local", "src/sub/x.tmp", "e.swp", "src/e.swp", "# comment"})
    tree.put(path);
  tree.put("plain/build");  // a file: the pattern is of directories
  const std::set<std::string> ignored = tree.by_levels();
  EXPECT_EQ(ignored, tree.by_git());
  for (const char* path : {"x.o", "build", "build/x", "out/back", "a/x/y/b", "x/y/deep/one", "src/local", "e.swp"})
    EXPECT_TRUE(ignored.contains(path)) << path;
  for (const char* path : {"keep.o", "plain/build", "src/x.o", "src/sub/local", "az", "doc/sub/a.txt"})
    EXPECT_FALSE(ignored.contains(path)) << path;
}

TEST(IgnorePatterns, DecideAsGitDoesInRandomTrees) {
  std::mt19937 random(static_cast<unsigned>(support::seed_of_this_run()));
  const auto pick = [&](std::size_t count) { return std::uniform_int_distribution<std::size_t>(0, count - 1)(random); };
  const std::vector<std::string> names = {"a", "b", "ab", "foo", "foo.o", "a.o", "f o", "x ", "[a]", "a*b", "a\\b",
                                          "-", "]", "9", "A", "\xc3\xa9", "!a", "#b", "bar", "foobar"};
  const std::vector<std::string> pieces = {
      "a", "b", "foo", "bar", "o", ".o", "*", "**", "?", "/", "**/", "/**", "/**/", "*.o", "[ab]", "[!a]", "[^b]",
      "[a-f]", "[]a]", "[f-a]", "[a", "[[:alpha:]]", "[[:digit:]x]", "[[:nope:]]", "[[:upper:]-z]", "[a-]", "\\*",
      "\\a", "\\[a]", "\\/", "\\", " ", "\\ ", "!", "#", "-", "]", "9", "[--0]", "[\\]]", "[:a:]", "\xc3", "\xa9"};
  const auto pattern = [&] {
    std::string line = pick(6) == 0 ? "!" : "";
    if (pick(5) == 0) line += "/";
    for (std::size_t count = 1 + pick(4); count > 0; --count) line += pick(3) == 0 ? names[pick(names.size())]
                                                                                  : pieces[pick(pieces.size())];
    if (pick(5) == 0) line += "/";
    if (pick(9) == 0) line += "  ";
    return line + (pick(9) == 0 ? "\r\n" : "\n");
  };
  const auto file = [&](std::size_t most) {
    std::string content;
    for (std::size_t count = 1 + pick(most); count > 0; --count) content += pattern();
    if (pick(4) == 0) content.pop_back();
    return content;
  };
  std::size_t compared = 0, ignored = 0;
  for (int round = 0; round < 25; ++round) {
    WorkTree tree;
    std::vector<std::string> directories = {""};
    std::set<std::string> taken;
    for (int count = 0; count < 12; ++count) {
      const std::string path = directories[pick(directories.size())] + names[pick(names.size())];
      if (taken.insert(path).second) directories.push_back(path + "/");
    }
    for (const std::string& directory : directories)
      if (pick(4) == 0) tree.put(directory + ".gitignore", file(6));
    tree.put(".gitignore", file(12));
    if (pick(2) == 0) tree.put_exclude(file(4));
    for (const std::string& directory : directories)
      for (int count = 0; count < 9; ++count) {
        const std::string path = directory + names[pick(names.size())];
        if (taken.insert(path).second) tree.put(path);
      }
    const std::set<std::string> expected = tree.by_git();
    ASSERT_EQ(tree.by_levels(), expected) << tree.described();
    compared += tree.size();
    ignored += expected.size();
  }
  EXPECT_GT(compared, 1200u);
  EXPECT_GT(ignored, compared / 20);
  EXPECT_LT(ignored, compared * 19 / 20);
}

TEST(IgnorePatterns, NoPatternTakesLong) {
  std::string line;
  for (int count = 0; count < 1000; ++count) line += "*a";
  const IgnorePatterns patterns(line + "b\n" + std::string(5000, 'a') + "\n");
  EXPECT_EQ(patterns.verdict(std::string(4000, 'a'), false), Verdict::undecided);
  EXPECT_EQ(patterns.verdict(std::string(4000, 'a') + "b", false), Verdict::ignored);
  EXPECT_EQ(IgnorePatterns(std::string(5000, '*')).verdict("x", false), Verdict::undecided) << "too long";
}

}  // namespace
}  // namespace escrow::session
