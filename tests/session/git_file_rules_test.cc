// What is left out of commits, against `git fsck --strict` itself.
#include "session/trees/git_file_rules.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/session/git_command.h"

namespace escrow::session {
namespace {

using support::run_git;
using support::TemporaryDirectory;

// Which of `contents` git refuses in a file of this name: a tree with a directory for each, one fsck.
std::set<std::size_t> refused_by_git(const std::string& name, const std::vector<std::string>& contents) {
  const TemporaryDirectory directory;
  run_git(directory, "init -q -b main .");
  std::string paths, trees, entries;
  for (std::size_t at = 0; at < contents.size(); ++at) {
    const std::string path = directory.path() + "/" + std::to_string(at);
    std::ofstream(path, std::ios::binary) << contents[at];
    paths += path + "\n";
  }
  std::istringstream blobs(run_git(directory, "hash-object -w --no-filters --stdin-paths", paths));
  std::map<std::string, std::vector<std::size_t>> by_blob;
  for (std::size_t at = 0; at < contents.size(); ++at) {
    std::string blob;
    std::getline(blobs, blob);
    by_blob[blob].push_back(at);
    trees += (at == 0 ? "" : "\n") + ("100644 blob " + blob) + "\t" + name + "\n";
  }
  std::istringstream made(run_git(directory, "mktree --batch", trees));
  for (std::size_t at = 0; at < contents.size(); ++at) {
    std::string tree;
    std::getline(made, tree);
    entries += "040000 tree " + tree + "\t" + std::to_string(at) + "\n";
  }
  std::string root = run_git(directory, "mktree", entries);
  root.pop_back();
  const std::string commit = run_git(directory, "-c user.name=t -c user.email=t@x commit-tree -m x " + root);
  run_git(directory, "update-ref refs/heads/main " + commit);
  std::set<std::size_t> refused;
  const std::string said = run_git(directory, "-c alias.all='!git fsck --strict --no-dangling 2>&1' all", "", true);
  constexpr std::string_view kError = "error in blob ";
  for (std::size_t at = said.find(kError); at != said.npos; at = said.find(kError, at + 1)) {
    const auto& same = by_blob.at(said.substr(at + kError.size(), 40));
    refused.insert(same.begin(), same.end());
  }
  return refused;
}

void compare(const std::string& name, const std::vector<std::string>& contents, bool (*ours)(std::string_view),
             bool exactly) {
  const std::set<std::size_t> git = refused_by_git(name, contents);
  for (std::size_t at = 0; at < contents.size(); ++at) {
    const bool by_git = git.contains(at), by_us = ours(contents[at]);
    if (exactly || by_git) {
      EXPECT_EQ(by_us, by_git) << "by us, by git: " << contents[at].substr(0, 300);
    }
  }
  EXPECT_FALSE(git.empty());
  EXPECT_LT(git.size(), contents.size());
}

std::string with(const std::string& item, const std::string& value, const std::string& name = "n") {
  return "[submodule \"" + name + "\"]\n\t" + item + " = " + value + "\n";
}

TEST(GitFileRules, AttributesAreRefusedAsGitFsckRefusesThem) {
  const std::string long_line(2048, 'a'), short_line(2047, 'a');
  compare(".gitattributes",
          {"", "* text\n", short_line, short_line + "\n", long_line, long_line + "\n", "x\n" + long_line, short_line +
           "\r\n", short_line + "\n" + short_line + "\n", std::string("\0", 1) + long_line, "a" + std::string("\0", 1) +
           long_line, long_line + std::string("\0", 1), std::string(5000, '\n')},
          git_refuses_attributes, true);
}

TEST(GitFileRules, ModulesAreRefusedAsGitFsckRefusesThem) {
  std::vector<std::string> samples{
      "", "nonsense", "[submodule \"a\"]\n", "[submodule]\n\turl = -x\n", "[submodule \"..\"]\n",
      "\xef\xbb" + with("url", "-x"),
      "[submodule.a]\nurl=-x\n", "[SUBMODULE \"a\"]\nURL=-x\n",
      "[submodule \"a\"] url = -x\n", "[submodule \"a\"]url=-x", "[submodule\n \"a\"]url=-x\n",
      "[submodule \"a\"\n]url=-x\n", "[submodule\t\"a\"]\r\nurl=-x\r\n", "[submodule \"a\" ]\nurl=-x\n",
      "[other \"a\"]\nurl=-x\n", "[submodule \"a\"]\n;url=-x\n#url=-x\n", "[submodule \"a\"]\nurl\n",
      "[submodule \"a\"]\nurl\nurl=-x\n", "broken line\n" + with("url", "-x"), with("url", "-x") + "broken line\n",
      with("url", "\"-x\""), with("url", "\"-x"), with("url", "\\\"-x"), with("url", "\\q") + with("path", "-x"),
      with("url", "x ; -x"), with("url", "; -x"), with("url", "\\\n-x"), "[submodule \"a\\\"..\"]\nurl=x\n",
      "[submodule \"a/../b\"]\nurl=x\n", "[submodule \"a\\\\..\"]\nurl=x\n", "[submodule \"a\\..\"]\nurl=x\n",
      "[submodule \"\"]\nurl=x\n", "[submodule \"..a\"]\nurl=x\n", "[submodule \"a..\"]\nurl=x\n",
      "[submodule \"../a\"]\nurl=x\n", "[submodule \"a/..\"]\npath=x\n", "[submodule \"..\"]\n[submodule \"a\"]\n",
      std::string("[submodule \"..\0\"]\nurl=x\n", 25), std::string("[submodule \"a\"]\nurl=x\0\nurl=-x\n", 31),
      std::string("[submodule \"a\"]\nurl=-\0x\n", 24), with("path", "-x"), with("path", "x"), with("path", " -x"),
      with("update", "!rm"), with("update", "none"), with("update", "command"), with("update", "\"!\""),
      with("branch", "-x"), with("u-rl", "-x"), with("1url", "-x"), with("url", "x") + "\turl = -x\n"};
  for (const char* url :
       {"https://example.com/a", "http://example.com", "https://user:pw@example.com:80/a", "git://example.com/a",
        "ssh://example.com/a", "user@example.com:a", "../a", "./a", "../../a", ".\\a", "..\\a", "-u", "--upload-pack=x",
        "https://", "https:///a", "http::https://example.com", "https::", "https::example.com/a", "ftp://", "ftps:///x",
        "file:///a", "/a", "a", "..", ".", "../", "git://example.com/%0a", "git://%0A", "../%0ahost=x", "./%0aa",
        "../a%0", "../../:a", "..//a", "../:a", "../../../:x", ".././:x", "./:a", ".//a", "https://exam%0aple.com/",
        "https://example.com/%0a", "https://u%0a@example.com/", "https://u:p%0a@example.com/", "https://@example.com/",
        "http://example.com?x", "http://?x", "http://#x", "http://example.com/?a=%0a", "ext::sh -c x", "\"a\\nb\"",
        "\"https://example.com/a\\nb\"", "\"../a\\nb\"", "https://example.com/a b", "https://[::1]/a",
        "https://[::1]:8080/a", "https://example.com:80", "https://example.com:/a", "https://user@/a", "HTTPS:///a",
        "https://host/a/../b", "https://a:b@/x"})
    samples.push_back(with("url", url));
  compare(".gitmodules", samples, git_refuses_modules, true);
}

// What git refuses from 2.44 on, and before that accepts: url_normalize() of the URL has to succeed. And a byte order
// mark, which git sees only where char is unsigned.
TEST(GitFileRules, WhatOnlySomeVersionsOfGitRefuseIsRefused) {
  EXPECT_TRUE(git_refuses_modules("\xef\xbb\xbf" + with("url", "-x")));
  for (const char* url : {"https://example.com:99999/a", "https://example.com:0/a", "https://example.com:x/a",
                          "https://exa mple.com/a", "https://example.com/%zz", "https://example.com/../a",
                          "https://example.com/a/%2e%2e/../b", "^//a", "^/:a", "http://a@b@c/"})
    EXPECT_TRUE(git_refuses_modules(with("url", url))) << url;
  for (const char* url : {"https://example.com:443/a", "https://example.com/a/../b", "https://example.com/%41", "^/a"})
    EXPECT_FALSE(git_refuses_modules(with("url", url))) << url;
}

// Pieces that a parser has opinions about, in any order: whatever git refuses is refused.
TEST(GitFileRules, NothingThatGitRefusesIsAcceptedInRandomModules) {
  const std::vector<std::string> pieces{
      "[submodule \"a\"]", "[submodule \"..\"]", "[submodule", " \"", "\"]", "]", "[", "\n", "\r\n", "\r", "\t", " ",
      "url", "path", "update", "=", " = ", "-x", "!x", "\"", "\\", "\\n", "\\\n", "#", ";", "../", "./", "%0a",
      "https://",
      "http::", "git://", ":", "/", "@", "example.com", "..", ".", std::string(1, '\0'), "\xff", "submodule.a.url"};
  std::mt19937 random(20240613);
  std::vector<std::string> samples;
  for (int i = 0; i < 600; ++i) {
    std::string text = i % 2 == 0 ? "[submodule \"a\"]\n" : "";
    if (i % 4 == 0) text += "url = ";
    for (unsigned left = random() % 12; left > 0; --left) text += pieces[random() % pieces.size()];
    samples.push_back(text + (i % 3 == 0 ? "\n" + with("url", "-x") : ""));
  }
  compare(".gitmodules", samples, git_refuses_modules, false);
}

}  // namespace
}  // namespace escrow::session
