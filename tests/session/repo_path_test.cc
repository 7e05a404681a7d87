#include "session/base/repo_path.h"

#include <gtest/gtest.h>

#include "session/base/error.h"
#include "session/base/path_prefix.h"

namespace escrow::session {
namespace {

RepoPath path(std::string_view text) { return RepoPath::parse(text, "PATH"); }

std::string refusal_of(std::string_view text) {
  try {
    RepoPath::parse(text, "--path-prefix");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::bad_request);
    return error.what();
  }
  return "";
}

TEST(RepoPath, LeadingTrailingAndDoubledSlashesAreDropped) {
  EXPECT_EQ(path("/data//raw/").text(), "data/raw");
  EXPECT_EQ(path("data").text(), "data");
  EXPECT_TRUE(path("").is_root());
  EXPECT_TRUE(path("///").is_root());
}

TEST(RepoPath, DotComponentsNulAndLongNamesAreRefusedNamingTheOption) {
  for (const std::string& bad : {std::string("../x"), std::string("a/../b"), std::string("."), std::string("a/./b"),
                                 std::string("a\0b", 3), std::string(256, 'n'), "a/" + std::string(300, 'n')})
    EXPECT_NE(refusal_of(bad).find("--path-prefix"), std::string::npos) << bad;
  EXPECT_EQ(refusal_of("..."), "");
  EXPECT_EQ(refusal_of("a/..b/.c"), "");
  EXPECT_EQ(refusal_of(std::string(255, 'n')), "");
}

TEST(RepoPath, ComponentsComeInOrder) {
  EXPECT_EQ(path("a/b/c").components(), (std::vector<std::string_view>{"a", "b", "c"}));
  EXPECT_TRUE(RepoPath().components().empty());
}

TEST(RepoPath, ChildrenAreJoinedAndTheRootAddsNoSlash) {
  EXPECT_EQ(RepoPath().child("a").text(), "a");
  EXPECT_EQ(path("a").child("b").text(), "a/b");
  EXPECT_EQ(join_path("", "x"), "x");
  EXPECT_EQ(join_path("a/b", "x"), "a/b/x");
}

TEST(RepoPath, ContainsGoesByWholeComponents) {
  EXPECT_TRUE(path("data").contains(path("data")));
  EXPECT_TRUE(path("data").contains(path("data/x")));
  EXPECT_FALSE(path("data").contains(path("database")));
  EXPECT_FALSE(path("data/x").contains(path("data")));
  EXPECT_TRUE(RepoPath().contains(path("anything/at/all")));
}

TEST(RepoPath, PathsAreQuotedAsGitQuotesThem) {
  EXPECT_EQ(quote_path("plain file-1.txt"), "plain file-1.txt");
  EXPECT_EQ(quote_path("tab\there"), R"("tab\there")");
  EXPECT_EQ(quote_path("a\"b\\c"), R"("a\"b\\c")");
  EXPECT_EQ(quote_path("bell\a\b\v\f\r\n"), R"("bell\a\b\v\f\r\n")");
  EXPECT_EQ(quote_path("\x01\x1f\x7f"), R"("\001\037\177")");
  EXPECT_EQ(quote_path("h\xc3\xa9"), R"("h\303\251")");
}

// Every line was checked against `git fsck` 2.39 and the sources named in repo_path.h.
TEST(RepoPath, GitRefusesDotGitInAllItsDisguises) {
  for (const char* refused :
       {"", ".", "..", ".git", ".GIT", ".Git", ".git ", ".git.", ".git . .", ".git:stream", ".git ::$INDEX_ALLOCATION",
        "git~1", "GIT~1", "git~1.", "git~1 ", "git~1:x", ".g\xe2\x80\x8cit", "\xe2\x80\x8d.git", ".git\xef\xbb\xbf",
        ".g\xe2\x81\xaaiT", ".git\xff", "a\\.git", "a\\git~1", ".git\\x", "\\.git"})
    EXPECT_TRUE(git_refuses_name(refused)) << refused;
}

TEST(RepoPath, GitAcceptsWhatOnlyLooksLikeDotGit) {
  for (const char* accepted :
       {".gitignore", ".gitmodules", ".gitattributes", ".github", "git", ".gi", ".gitx", "git~2", "git~10", "git~1x",
        ".git x", " .git", "..git", "...", "x.git", ".g\xc3\xadt", ".git\xc3\xa9", "a:.git", ".git-", "\xff"})
    EXPECT_FALSE(git_refuses_name(accepted)) << accepted;
}

TEST(RepoPath, PrefixWithANameThatGitRefusesIsRefusedNamingItAndTheOption) {
  for (const char* bad : {".git", "a/.GIT/b", "git~1", "a/GIT~1.", ".git /x", ".g\xe2\x80\x8cit", "a\\.git",
                          ".gitmodules", "a/.GitAttributes/b", "gitmod~1", "gi7d29~1"}) {
    try {
      parse_path_prefix(bad, "--path-prefix");
      ADD_FAILURE() << bad << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::bad_request);
      EXPECT_TRUE(std::string_view(error.what()).starts_with("--path-prefix " + quote_path(bad))) << error.what();
    }
  }
  for (const char* good : {"", "/a//b/", "git", ".github/workflows", "a/.gitignore", "git~2"})
    EXPECT_EQ(parse_path_prefix(good, "--path-prefix"), path(good));
  EXPECT_THROW(parse_path_prefix("../x", "--path-prefix"), Error);
  EXPECT_EQ(path(".git/config").text(), ".git/config") << "a path to look at may name anything";
}

TEST(RepoPath, GitmodulesIsKnownInAllItsDisguises) {
  for (const char* same : {".gitmodules", ".GitModules", ".gitmodules ", ".gitmodules.", ".gitmodules:$DATA",
                           "gitmod~1", "GITMOD~4", "gitmod~2 .", "gi7eba~1", "GI7EBA~9", "gi7eb~12", "gi~12345",
                           ".gitmodule\xe2\x80\x8cs", "a\\.gitmodules"})
    EXPECT_TRUE(is_gitmodules_name(same)) << same;
  for (const char* other : {".gitmodule", "gitmodules", ".gitmodulesx", "gitmod~5", "gitmod~0", "gitmod~10", "gi7eba~0",
                            "gi7ebb~1", ".gitmodules x", ".git", "~1", ""})
    EXPECT_FALSE(is_gitmodules_name(other)) << other;
}

TEST(RepoPath, GitattributesIsKnownInAllItsDisguises) {
  for (const char* same : {".gitattributes", ".GitAttributes", ".gitattributes ", ".gitattributes.:x", "gitatt~1",
                           "GITATT~4", "gi7d29~1", ".gitattribute\xe2\x80\x8cs"})
    EXPECT_TRUE(is_gitattributes_name(same)) << same;
  for (const char* other : {"gitattributes", ".gitattribute", ".gitattributesx", "gitatt~5", "gi7d2a~1",
                            "a\\.gitattributes", ".gitmodules"})
    EXPECT_FALSE(is_gitattributes_name(other)) << other;
}

}  // namespace
}  // namespace escrow::session
