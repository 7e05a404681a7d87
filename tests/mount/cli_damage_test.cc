// Sessions of which something is damaged, or held for a moment: they are listed, saved as far as they can be read, and
// ended.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "tests/mount/cli_fixture.h"

namespace escrow::test {
namespace {

class DamagedSessions : public EscrowCommands {
 protected:
  // A detached session with a small new file and a large one.
  std::string make() {
    const std::string id = mount();
    write(in_mount("kept.txt"), "kept");
    write(in_mount("large"), std::string(1 << 20, 'l'));
    unmount_outside(id);
    return id;
  }
  std::string directory_of(const std::string& id) const { return repository_ + "/escrow/sessions/" + id; }
  void expect_nothing_left(const std::string& id) {
    EXPECT_FALSE(std::filesystem::exists(directory_of(id)));
    EXPECT_EQ(git("for-each-ref refs/escrow refs/sessions"), "");
    done({"verify"});
  }
};

TEST_F(DamagedSessions, OneWhoseDatabaseIsGarbageIsListedShownAndRolledBack) {
  const std::string id = make();
  for (const char* name : {"/session.db-wal", "/session.db-shm"}) std::filesystem::remove(directory_of(id) + name);
  write(directory_of(id) + "/session.db", std::string(20000, 'g'));
  EXPECT_NE(done({"sessions"}).find(id), std::string::npos);
  EXPECT_EQ(status_of(id, "state"), "open");
  EXPECT_NE(done({"status", id}).find("escrow rollback " + id), std::string::npos);
  const ProcessResult commit = escrow({"commit", id});
  EXPECT_NE(commit.status, 0);
  EXPECT_NE(commit.err.find("escrow rollback " + id), std::string::npos) << commit.err;
  EXPECT_NE(commit.err.find(directory_of(id) + "/staging"), std::string::npos) << commit.err;
  done({"rollback", id});
  EXPECT_EQ(status_of(id, "state"), "rolled_back");
  expect_nothing_left(id);
}

TEST_F(DamagedSessions, OneWhoseDirectoryWasRemovedIsListedAndRolledBack) {
  const std::string id = make();
  std::filesystem::remove_all(directory_of(id));
  EXPECT_NE(done({"sessions"}).find(id), std::string::npos);
  const ProcessResult commit = escrow({"commit", id});
  EXPECT_NE(commit.status, 0);
  EXPECT_NE(commit.err.find("`escrow rollback " + id + "` ends the session"), std::string::npos) << commit.err;
  done({"rollback", id});
  EXPECT_EQ(status_of(id, "state"), "rolled_back");
  EXPECT_EQ(status_of(id, "last_error"), "its directory is missing");
  expect_nothing_left(id);
}

TEST_F(DamagedSessions, OneWhoseDirectoryWasRemovedUnderItsMountIsRolledBackAndTheMountNamed) {
  const std::string id = mount();
  std::filesystem::remove_all(directory_of(id));
  const ProcessResult ended = escrow({"rollback", id});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_NE(ended.err.find("is still mounted at " + mountpoint_), std::string::npos) << ended.err;
  EXPECT_EQ(status_of(id, "state"), "rolled_back");
  EXPECT_EQ(run_process({"umount", mountpoint_}).status, 0);
}

TEST_F(DamagedSessions, WithoutTheCatalogNothingIsTouchedUntilItIsBack) {
  const std::string id = make();
  const std::string state = repository_ + "/escrow", aside = repository_ + ".aside";
  std::filesystem::create_directory(aside);
  const auto move = [](const std::string& from, const std::string& to) {
    for (const char* name : {"/catalog.db", "/catalog.db-wal", "/catalog.db-shm"})
      if (std::filesystem::exists(from + name)) std::filesystem::rename(from + name, to + name);
  };
  move(state, aside);
  for (const bool is_empty : {false, true}) {
    if (is_empty) write(state + "/catalog.db", "");
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"sessions"}, {"verify"}, {"gc"}, {"status", id}, {"run", "--", "true"}, {"init"}}) {
      const ProcessResult refused = escrow(command);
      EXPECT_NE(refused.status, 0) << command.front();
      EXPECT_NE(refused.err.find("the catalog of sessions, " + state + "/catalog.db, is missing"), std::string::npos)
          << command.front() << ": " << refused.err;
    }
  }
  EXPECT_TRUE(std::filesystem::exists(directory_of(id) + "/staging"));
  move(aside, state);
  EXPECT_NE(escrow({"init", "--new-catalog"}).err.find("catalog.db, is there"), std::string::npos);
  done({"commit", id});
  EXPECT_EQ(git("show main:kept.txt"), "kept");
}

TEST_F(DamagedSessions, WithoutASessionInitMakesACatalogThatIsMissing) {
  std::filesystem::remove(repository_ + "/escrow/catalog.db");
  done({"init"});
  done({"run", "--", "touch", "made"});
  EXPECT_EQ(git("ls-tree --name-only main made"), "made");
}

// As with a copy of the catalog that is older than the session.
TEST_F(DamagedSessions, WhatANewCatalogDoesNotKnowIsSetAsideUntilTheRightOneIsBack) {
  const std::string id = make();
  const ProcessResult failed = escrow({"run", "--keep-on-failure", "--", "sh", "-c", "echo half > half.txt; exit 1"});
  const std::string of_failed = failed.err.substr(failed.err.find("refs/sessions/"), 14 + 16);
  const std::string state = repository_ + "/escrow", aside = repository_ + ".aside";
  std::filesystem::create_directory(aside);
  const auto move = [](const std::string& from, const std::string& to) {
    for (const char* name : {"/catalog.db", "/catalog.db-wal", "/catalog.db-shm"}) {
      std::filesystem::remove(to + name);
      if (std::filesystem::exists(from + name)) std::filesystem::rename(from + name, to + name);
    }
  };
  move(state, aside);
  done({"init", "--new-catalog"});
  const ProcessResult listed = escrow({"sessions"});
  EXPECT_EQ(listed.status, 0) << listed.err;
  EXPECT_NE((listed.out + listed.err).find("was set aside in " + state + "/orphans/" + id), std::string::npos)
      << listed.out << listed.err;
  EXPECT_EQ(escrow({"sessions"}).err.find(id), std::string::npos) << "it is said once";
  git("config gc.pruneExpire now");
  const std::string collected = done({"gc"});
  EXPECT_NE(collected.find("is set aside in escrow/orphans/" + id + " of the repository"), std::string::npos)
      << collected;
  done({"verify"});
  EXPECT_NE(git("for-each-ref refs/escrow").find(id), std::string::npos) << "what the session is based on stays";
  EXPECT_EQ(git("show " + of_failed + ":half.txt"), "half") << "a result that was kept may be another catalog's";
  move(aside, state);
  EXPECT_NE(done({"sessions"}).find(id), std::string::npos);
  done({"commit", id});
  EXPECT_EQ(git("show main:kept.txt"), "kept");
  EXPECT_EQ(git("cat-file -s main:large"), std::to_string(1 << 20));
  done({"gc"});
  EXPECT_EQ(git("show " + of_failed + ":half.txt"), "half");
  git("update-ref -d " + of_failed);
  expect_nothing_left(id);
}

// A member of a group that shares the repository can do that, should the directories let them.
TEST_F(DamagedSessions, SessionsOfAnotherRepositoryAreNotTouched) {
  const std::string id = make();
  const std::string state = repository_ + "/escrow", aside = repository_ + ".aside";
  std::filesystem::rename(state + "/sessions", aside);
  std::filesystem::create_directory_symlink(aside, state + "/sessions");
  for (const char* command : {"sessions", "gc", "verify"}) {
    const ProcessResult refused = escrow({command});
    EXPECT_NE(refused.status, 0) << command;
    EXPECT_NE(refused.err.find(state + "/sessions is no directory, but a link"), std::string::npos) << refused.err;
  }
  EXPECT_TRUE(std::filesystem::exists(aside + "/" + id + "/staging"));
  std::filesystem::remove(state + "/sessions");
  if (::geteuid() == 0) {
    // Neither root's, nor that of the directory above.
    std::filesystem::create_directory(state + "/sessions");
    ASSERT_EQ(::chown((state + "/sessions").c_str(), 12345, 12345), 0);
    const ProcessResult refused = escrow({"sessions"});
    EXPECT_NE(refused.status, 0);
    EXPECT_NE(refused.err.find(state + "/sessions belongs to user 12345"), std::string::npos) << refused.err;
    std::filesystem::remove(state + "/sessions");
  }
  std::filesystem::rename(aside, state + "/sessions");
  done({"rollback", id});
  expect_nothing_left(id);
}

TEST_F(DamagedSessions, NoLockAndNoDatabaseOfAnotherRepositoryIsOpened) {
  const std::string state = repository_ + "/escrow", aside = repository_ + ".aside";
  const auto expect_refused = [&](const std::string& name, const std::vector<std::string>& command) {
    const ProcessResult refused = escrow(command);
    EXPECT_NE(refused.status, 0) << name;
    EXPECT_NE(refused.err.find(state + "/" + name + " is a link"), std::string::npos) << refused.err;
  };
  for (const char* name : {"gc.lock", "upkeep.lock"}) {
    std::filesystem::remove(state + "/" + name);
    std::filesystem::create_symlink(aside, state + "/" + name);
    expect_refused(name, {"gc"});
    EXPECT_FALSE(std::filesystem::exists(aside)) << "a lock is made at the link's target";
    std::filesystem::remove(state + "/" + name);
  }
  std::filesystem::rename(state + "/catalog.db", aside);
  std::filesystem::create_symlink(aside, state + "/catalog.db");
  expect_refused("catalog.db", {"sessions"});
  std::filesystem::rename(aside, state + "/catalog.db");
  done({"gc"});
}

TEST_F(DamagedSessions, AFileWhoseContentIsLostIsNamedAndTheRestIsCommitted) {
  const std::string id = make();
  int removed = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory_of(id) + "/staging"))
    if (entry.file_size() == 1 << 20) removed += std::filesystem::remove(entry.path()) ? 1 : 0;
  ASSERT_EQ(removed, 1);
  EXPECT_NE(done({"status", id}).find("large"), std::string::npos);
  for (const char* verb : {"commit", "diff"}) {
    const ProcessResult result = escrow({verb, id});
    EXPECT_NE(result.status, 0);
    EXPECT_NE(result.err.find("large"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("escrow discard"), std::string::npos) << result.err;
  }
  done({"discard", id, "large"});
  EXPECT_EQ(done({"diff", id, "--name-status"}), "A\tkept.txt");
  done({"commit", id});
  EXPECT_EQ(content("kept.txt"), "kept");
  expect_nothing_left(id);
}

// As by a process that is just ending: the file is on its way through a socket, where no process shows it.
TEST_F(DamagedSessions, AMountThatNobodySeemsToHoldIsWaitedForBeforeItIsDetached) {
  const std::string id = mount();
  write(in_mount("kept.txt"), "kept");
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  int file = ::open(in_mount("kept.txt").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(file, 0);
  char byte = 'x';
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof file)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof file);
  std::memcpy(CMSG_DATA(header), &file, sizeof file);
  ASSERT_EQ(::sendmsg(ends[0], &message, 0), 1);
  ::close(file);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    ::close(ends[0]);
    ::close(ends[1]);
  });
  const ProcessResult result = escrow({"commit", id});
  later.join();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err.find("still in use"), std::string::npos) << result.err;
  EXPECT_FALSE(is_mounted());
  EXPECT_EQ(content("kept.txt"), "kept");
}

}  // namespace
}  // namespace escrow::test
