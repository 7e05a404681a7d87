// The maker of what is in a cache is the only hand that had the sessions which wrote to it: daemon/host/hidden_git.h.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "session/trees/git_file_rules.h"
#include "storage/caches/caches.h"
#include "tests/support/temporary_directory.h"

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using session::kRootNode;
using Files = std::shared_ptr<session::EntryFileSystem>;

class CacheHands : public testing::Test {
 protected:
  Files open(const std::string& session, const std::optional<std::string>& hand) {
    fs::create_directories(path_of(session));
    return caches_.open(path_of(session), "c", {::geteuid(), ::getegid(), 022}, {}, hand);
  }
  void publish(const std::string& session) {
    caches_.publish(path_of(session), std::uint64_t{1} << 40);
    end(session);
  }
  void end(const std::string& session) { fs::remove_all(path_of(session)); }
  std::string about_of(const std::string& generation) const {
    std::ifstream about(state_.path() + "/caches/c/" + generation + "/about");
    return {std::istreambuf_iterator<char>(about), {}};
  }
  std::string path_of(const std::string& session) const { return state_.path() + "/sessions/" + session; }
  static std::string maker(const Files& files) { return files->xattr(kRootNode, session::kGitMaker).value(); }
  static void make(session::FileSystem& files, const std::string& name, std::uint32_t type) {
    files.make_node(kRootNode, name, type | 0700, 0, {::geteuid(), ::getegid()});
  }

  support::TemporaryDirectory state_;
  const Caches caches_{state_.path()};
};

TEST_F(CacheHands, EachGenerationNotesTheHandsThatWroteToIt) {
  {
    const Files one = open("1", "a b\n");
    EXPECT_EQ(maker(one), "a b\n");
    make(*one, ".git", S_IFDIR);
  }
  EXPECT_EQ(maker(open("1", std::nullopt)), "a b\n") << "no program sees it";
  publish("1");
  EXPECT_EQ(maker(open("2", "a b\n")), "a b\n");
  EXPECT_EQ(maker(open("2", "other")), "");
  EXPECT_EQ(maker(open("2", "a b\n")), "a b\n") << "the other changed nothing";
  make(*open("2", "other"), "file", S_IFREG);
  EXPECT_EQ(maker(open("2", "a b\n")), "");
  publish("2");
  for (const char* hand : {"a b\n", "other"}) EXPECT_EQ(maker(open("3", hand)), "") << hand;
  make(*open("3", "third"), "another", S_IFREG);
  publish("3");
  EXPECT_EQ(about_of("3").find("third"), std::string::npos) << "two are several already";
  {
    const Files files = open("4", "third");
    files->remove_directory(kRootNode, ".git");
    EXPECT_EQ(maker(files), "");
  }
  publish("4");
  EXPECT_EQ(maker(open("5", "a b\n")), "a b\n") << "nothing of git was there";
  make(*open("5", ""), "GIT~1", S_IFDIR);
  EXPECT_EQ(maker(open("5", "a b\n")), "") << "an unknown hand";
  publish("5");
  EXPECT_EQ(maker(open("6", "a b\n")), "");
}

TEST_F(CacheHands, HandsOfAGenerationWithoutANoteAreUnknown) {
  make(*open("1", "tests"), ".git", S_IFDIR);
  publish("1");
  const std::string about = state_.path() + "/caches/c/1/about";
  for (const char* text : {"", "\n1\n", "\n1\nseen\n", "\n1\nhands tests"}) {
    std::ofstream(about) << text;
    EXPECT_EQ(maker(open("2", "tests")), "") << text;
    end("2");
  }
  fs::remove(about);
  make(*open("2", "tests"), "file", S_IFREG);
  publish("2");
  EXPECT_EQ(maker(open("3", "tests")), "");
}

}  // namespace
}  // namespace escrow::storage
