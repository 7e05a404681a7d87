// A person who has gone into the mount of a session names neither it nor its repository any more.
#include <sys/mount.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/mount/cli_fixture.h"
#include "tests/work/project_fixture.h"

namespace escrow::test {
namespace {

class SessionHere : public EscrowCommands {
 protected:
  // `escrow ARGUMENTS` in a directory of the mount, without --repo.
  ProcessResult here(const std::vector<std::string>& arguments, const std::string& directory = {}) const {
    return run_escrow(arguments, {.directory = mountpoint_ + "/" + directory, .environment = {}, .input = {}});
  }
  std::string done_here(const std::vector<std::string>& arguments, const std::string& directory = {}) const {
    const ProcessResult result = here(arguments, directory);
    EXPECT_EQ(result.status, 0) << arguments.front() << ": " << result.err;
    return result.out;
  }
};

TEST_F(SessionHere, EachCommandMeansTheSessionWhoseMountItIsCalledIn) {
  const std::string session = mount();
  write(in_mount("dir/b.txt"), "mine");
  EXPECT_TRUE(has(done_here({"status", "--json"}), session));
  EXPECT_TRUE(has(done_here({"diff", "--name-status"}, "dir/sub"), "M\tdir/b.txt"));
  done_here({"savepoint", "create", "one"});
  EXPECT_TRUE(has(done_here({"savepoint", "list"}), "one"));
  done_here({"savepoint", "restore", "one"}, "dir");
  write(file("other.sh"), "echo other > a.txt");
  EXPECT_EQ(escrow({"run", "--", "sh", file("other.sh")}).status, 0);
  done_here({"update"});
  EXPECT_EQ(read(in_mount("a.txt")), "other\n");
  EXPECT_TRUE(has(done_here({"commit", "-m", "from inside"}, "dir"), "Session " + session + " was committed"));
  EXPECT_EQ(content("dir/b.txt"), "mine");
}

TEST_F(SessionHere, PathsAreFromTheCurrentDirectory) {
  const std::string session = mount();
  write(in_mount("dir/b.txt"), "mine");
  write(in_mount("a.txt"), "mine");
  done_here({"discard", "b.txt"}, "dir");
  EXPECT_EQ(done_here({"diff", "--name-status"}), "M\ta.txt\n");
  done_here({"discard", in_mount("dir") + "/../a.txt"}, "dir/sub");
  EXPECT_EQ(done_here({"diff", "--name-status"}), "");
  const ProcessResult outside = here({"discard", "../../elsewhere"}, "dir");
  EXPECT_EQ(outside.status, 2);
  EXPECT_TRUE(has(outside.err, "outside of the mount of session " + session)) << outside.err;

  write(in_mount("dir/b.txt"), "mine");
  write(file("other.sh"), "echo other > dir/b.txt");
  EXPECT_EQ(escrow({"run", "--", "sh", file("other.sh")}).status, 0);
  EXPECT_EQ(here({"commit"}).status, 122);
  done_here({"resolve", "b.txt", "--theirs"}, "dir");
  EXPECT_EQ(read(in_mount("dir/b.txt")), "other\n");
  EXPECT_TRUE(has(done_here({"rollback"}), session));
}

TEST_F(SessionHere, AnIdStillNamesItAndAFileOfThatNameIsAFile) {
  const std::string session = mount();
  write(in_mount("a.txt"), "mine");
  done_here({"discard", session, "a.txt"}, "dir");
  EXPECT_EQ(done_here({"diff", "--name-status"}), "");
  const std::string like_an_id = session.substr(0, 6);
  write(in_mount(like_an_id), "a file");
  write(in_mount("a.txt"), "mine");
  done_here({"discard", like_an_id});
  EXPECT_EQ(done_here({"diff", "--name-status"}), "M\ta.txt\n");
}

TEST_F(SessionHere, WithoutOneItIsSaidWhatIsMissing) {
  refused(2, "no session is named, and the current directory is in no session's mount", {"status"});
  refused(2, "no session is named", {"commit"});
  const std::string session = mount();
  const ProcessResult busy = run_process({"sh", "-c", "'" ESCROW_BINARY "' unmount; exit $?"},
                                         {.directory = mountpoint_, .environment = {}, .input = {}});
  EXPECT_EQ(busy.status, 1) << busy.out;
  EXPECT_TRUE(has(busy.err, "it is in use by sh (")) << busy.err;
  EXPECT_FALSE(has(busy.err, "escrow (")) << busy.err;
  done({"unmount", session});
}

TEST_F(SessionHere, TheRepositoryIsShownToTheUserWhoServesTheMountOnly) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::string session = mount();
  ASSERT_EQ(::chmod(directory_.path().c_str(), 0755), 0);
  const ProcessResult stranger = run_process({"setpriv", "--reuid=65534", "--clear-groups", ESCROW_BINARY, "status"},
                                             {.directory = mountpoint_, .environment = {}, .input = {}});
  EXPECT_NE(stranger.status, 0);
  EXPECT_FALSE(has(stranger.err, repository_)) << stranger.err;
}

}  // namespace
}  // namespace escrow::test
