// Bad input: one clear sentence, a non-zero status, nothing changed.
#include <sys/stat.h>

#include <filesystem>

#include "tests/mount/cli_fixture.h"

namespace escrow::test {
namespace {

using BadInput = EscrowCommands;

TEST_F(BadInput, UnknownCommandsAndOptionsAreUsageErrors) {
  const std::string before = head();
  refused(2, "--colour", {"sessions", "--colour"});
  refused(2, "frobnicate", {"frobnicate"});
  refused(2, "SESSION", {"status"});
  refused(2, "required", {});
  EXPECT_EQ(head(), before);
}

TEST_F(BadInput, AMissingOrForeignRepositoryIsNamed) {
  const auto at = [&](const std::string& repository) {
    return run_escrow({"--repo", repository, "sessions"}, {.directory = "/", .environment = {}, .input = {}});
  };
  const ProcessResult missing = at(file("nowhere"));
  EXPECT_EQ(missing.status, 125);
  EXPECT_NE(missing.err.find("nowhere"), std::string::npos) << missing.err;
  shell("git init -q --bare '" + file("plain.git") + "'");
  const ProcessResult plain = at(file("plain.git"));
  EXPECT_EQ(plain.status, 125);
  EXPECT_NE(plain.err.find("init"), std::string::npos) << plain.err;
  const ProcessResult none = run_escrow({"sessions"}, {.directory = "/", .environment = {}, .input = {}});
  EXPECT_EQ(none.status, 125);
  EXPECT_NE(none.err.find("--repo"), std::string::npos) << none.err;
}

TEST_F(BadInput, SessionsThatDoNotExistOrAreAmbiguousAreRefused) {
  refused(1, "ffff", {"status", "ffff"});
  refused(1, "ffff", {"commit", "ffff"});
  refused(1, "ffff", {"mount", mountpoint_, "--session", "ffff"});
  EXPECT_FALSE(is_mounted());
}

TEST_F(BadInput, MountpointsThatCannotBeAreRefused) {
  const std::string id = mount();
  ASSERT_EQ(::mkdir(in_mount("inside").c_str(), 0755), 0);
  refused(2, "does not exist", {"mount", file("nowhere")});
  refused(2, "not a directory", {"mount", file("in/a.txt")});
  refused(2, "not empty", {"mount", file("in")});
  refused(2, "inside the mount of session", {"mount", in_mount("inside")});
  refused(2, "already", {"mount", mountpoint_});
  refused(2, "inside the repository", {"mount", repository_ + "/refs/tags"});
  EXPECT_EQ(done({"sessions", "--open", "--json"}).find("\"session\"", 20), std::string::npos);
  done({"rollback", id});
}

TEST_F(BadInput, ARelativeMountpointIsTakenFromTheCurrentDirectory) {
  const std::string id = done({"mount", "mnt"});
  EXPECT_EQ(status_of(id, "mountpoint"), mountpoint_);
  EXPECT_EQ(read(in_mount("a.txt")), "a\n");
  done({"rollback", id});
}

TEST_F(BadInput, BranchesAndPrefixesThatCannotBeAreRefused) {
  refused(1, "nowhere", {"mount", mountpoint_, "--branch", "nowhere"});
  refused(2, "..", {"mount", mountpoint_, "--branch", "a..b"});
  refused(1, "a.txt", {"mount", mountpoint_, "--path-prefix", "a.txt"});
  refused(2, "..", {"mount", mountpoint_, "--path-prefix", "../x"});
  const std::string before = head();
  for (const char* name : {".git", "a/.GIT/b", "git~1", ".gitmodules/x"}) {
    refused(2, std::string("--path-prefix ") + name, {"mount", mountpoint_, "--path-prefix", name});
    refused(2, std::string("--path-prefix ") + name, {"import", file("in"), "--path-prefix", name});
    refused(2, name, {"mount", mountpoint_, "-o", std::string("path_prefix=") + name});
    refused(125, name, {"run", "--path-prefix", name, "--", "true"});
  }
  EXPECT_EQ(head(), before);
  EXPECT_FALSE(is_mounted());
  EXPECT_EQ(done({"sessions", "--open", "--json"}), "[]");
}

TEST_F(BadInput, AuditValuesWithControlCharactersAreRefused) {
  const std::string before = head();
  refused(2, "--committer", {"import", file("in"), "--committer", "root"});
  refused(2, "--trigger", {"import", file("in"), "--trigger", "a\nEscrow-Committer: user:evil"});
  refused(2, "--image", {"mount", mountpoint_, "--image", "a\x1b"});
  refused(2, "umask", {"mount", mountpoint_, "--umask", "999"});
  EXPECT_EQ(head(), before);
}

TEST_F(BadInput, UnknownMountOptionsAreRefusedAndKnownOnesTaken) {
  refused(2, "colour", {"mount", mountpoint_, "-o", "rw,colour=red"});
  refused(2, "uid", {"mount", mountpoint_, "-o", "uid=alice"});
  refused(2, "io_uring", {"mount", mountpoint_, "-o", "io_uring=maybe"});
  const std::string id = done(
      {"mount", mountpoint_, "-o", "rw,nosuid,nodev,relatime,nofail,uid=1234,path_prefix=dir,io_uring=off"});
  struct stat about {};
  ASSERT_EQ(::stat(in_mount("b.txt").c_str(), &about), 0);
  EXPECT_EQ(about.st_uid, 1234u);
  done({"rollback", id});
}

TEST_F(BadInput, ImportOfWhatCannotBeReadChangesNothing) {
  const std::string before = head();
  refused(2, "nowhere", {"import", file("nowhere")});
  refused(2, "not a directory", {"import", file("in/a.txt")});
  EXPECT_EQ(head(), before);
  EXPECT_EQ(done({"sessions", "--open", "--json"}), "[]");
}

}  // namespace
}  // namespace escrow::test
