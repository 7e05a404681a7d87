#include "daemon/service/volumes/container_ending.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "daemon/process/container_verdict.h"
#include "daemon/service/volumes/volume_options.h"
#include "storage/database/volume_store.h"

namespace escrow::daemon {
namespace {

using session::Reason;
using Event = api::ContainerApi::Event;
using Mount = storage::VolumeStore::Mount;

constexpr const char* kDocker = "unix:///docker.sock";

Mount mount_of(const std::string& container) {
  Mount mount{.session = session::SessionId::generate()};
  mount.volume = "work";
  mount.created_ns = 100;
  mount.container = container;
  return mount;
}

Event event_of(const std::string& action, std::map<std::string, std::string> attributes = {}) {
  return {.time_ns = 200, .type = "container", .action = action, .subject = "c1", .attributes = std::move(attributes)};
}

Reason ending_after(const std::vector<Event>& events) {
  Mount mount = mount_of("c1");
  for (const Event& event : events) apply_event(event, kDocker, mount);
  return mount.ending;
}

TEST(ContainerEnding, TheExitStatusDecidesWhenNobodyInterfered) {
  EXPECT_EQ(ending_after({event_of("start")}), Reason::none);
  EXPECT_EQ(ending_after({event_of("die", {{"exitCode", "0"}})}), Reason::success);
  EXPECT_EQ(ending_after({event_of("die", {{"exitCode", "3"}})}), Reason::exit_status);
  EXPECT_EQ(ending_after({event_of("died", {{"containerExitCode", "0"}})}), Reason::success);
  EXPECT_EQ(ending_after({event_of("die")}), Reason::host_lost) << "without an exit status nobody knows";
}

TEST(ContainerEnding, AStopAKillAndNoMemoryWinOverALaterExitZero) {
  const Event success = event_of("die", {{"exitCode", "0"}});
  EXPECT_EQ(ending_after({event_of("kill", {{"signal", "15"}}), success}), Reason::cancelled);
  EXPECT_EQ(ending_after({event_of("kill"), success}), Reason::cancelled);
  EXPECT_EQ(ending_after({event_of("stop"), success}), Reason::cancelled);
  EXPECT_EQ(ending_after({event_of("oom"), success}), Reason::oom);
  // A terminal's new size, a configuration to be read again, and what programs make of their own.
  for (const char* other : {"28", "1", "10", "12", "18"})
    EXPECT_EQ(ending_after({event_of("kill", {{"signal", other}}), success}), Reason::success) << other;
  EXPECT_EQ(ending_after({success, event_of("kill", {{"signal", "9"}})}), Reason::success) << "the first cause decides";
}

TEST(ContainerVerdict, OnlyASignalThatAsksForAnEndDoes) {
  for (const int number : {SIGTERM, SIGINT, SIGQUIT, SIGKILL, SIGABRT}) EXPECT_TRUE(asks_to_end(number, 0)) << number;
  for (const int number : {SIGHUP, SIGUSR1, SIGUSR2, SIGWINCH, SIGCHLD, SIGCONT, SIGPIPE, SIGURG, SIGALRM}) {
    EXPECT_FALSE(asks_to_end(number, 0)) << number;
    EXPECT_FALSE(asks_to_end(number, SIGTERM)) << number;
    EXPECT_TRUE(asks_to_end(number, number)) << "it is what the container is to be stopped with";
  }
}

TEST(ContainerVerdict, ExitZeroIsASuccessOnlyWhereNothingElseHappened) {
  EXPECT_EQ(judge({.exit_code = 0}), Reason::success);
  EXPECT_EQ(judge({.exit_code = 3}), Reason::exit_status);
  EXPECT_EQ(judge({.exit_code = {}}), Reason::host_lost);
  EXPECT_EQ(judge({.exit_code = 0, .stop_signal = SIGTERM}), Reason::cancelled);
  EXPECT_EQ(judge({.exit_code = 0, .ran_out_of_memory = true, .stop_signal = SIGTERM}), Reason::oom);
}

TEST(ContainerEnding, ExitZeroThatNoEventToldIsNoSuccess) {
  Mount mount = mount_of("c1");
  end_as_found(0, false, mount);
  EXPECT_EQ(mount.ending, Reason::cancelled) << "a stop may have been missed as well";
  EXPECT_TRUE(mount.keep_result);
  mount = mount_of("c1");
  end_as_found(3, false, mount);
  EXPECT_EQ(mount.ending, Reason::exit_status);
  EXPECT_FALSE(mount.keep_result);
  mount = mount_of("c1");
  end_as_found(0, true, mount);
  EXPECT_EQ(mount.ending, Reason::oom);
  mount = mount_of("c1");
  apply_event(event_of("kill", {{"signal", "15"}}), kDocker, mount);
  end_as_found(0, false, mount);
  EXPECT_EQ(mount.ending, Reason::cancelled) << "what was told before still counts";
}

TEST(ContainerEnding, ExitZeroAfterForgottenEventsIsNoSuccess) {
  const Event success = event_of("die", {{"exitCode", "0"}});
  const auto mount_after_gap = [](const std::vector<Event>& known) {
    Mount mount = mount_of("c1");
    mount.runtime = kDocker;
    note_gap(known, kDocker, mount);
    return mount;
  };
  Mount mount = mount_after_gap({success});
  apply_event(success, kDocker, mount);
  EXPECT_EQ(mount.ending, Reason::cancelled);
  EXPECT_TRUE(mount.keep_result);
  mount = mount_after_gap({});
  apply_event(event_of("die", {{"exitCode", "3"}}), kDocker, mount);
  EXPECT_EQ(mount.ending, Reason::exit_status);
  mount = mount_after_gap({event_of("start"), success});
  apply_event(success, kDocker, mount);
  EXPECT_EQ(mount.ending, Reason::success) << "all since its start is known";
  Event older = event_of("start");
  older.time_ns = 99;
  EXPECT_TRUE(mount_after_gap({older, success}).has_gap) << "the start before it had the mount";
}

TEST(ContainerEnding, AGapIsOfTheContainersOfItsRuntime) {
  Mount mount = mount_of("c1");
  mount.runtime = kDocker;
  EXPECT_FALSE(note_gap({}, "unix:///podman.sock", mount));
  EXPECT_TRUE(note_gap({}, kDocker, mount));
  EXPECT_FALSE(note_gap({}, kDocker, mount)) << "it is noted already";
}

TEST(ContainerEnding, AMountOfWhichTheEventsMayBeForgottenIsNotTakenForUnused) {
  Mount mount = mount_of("");
  Event older = event_of("start");
  older.time_ns = 99;
  EXPECT_FALSE(note_gap({older, event_of("die")}, kDocker, mount)) << "nothing since the mount is forgotten";
  EXPECT_TRUE(note_gap({event_of("die")}, kDocker, mount));
  mount.has_gap = false;
  EXPECT_TRUE(note_gap({}, "unix:///podman.sock", mount)) << "it may be any runtime's";
  EXPECT_TRUE(give_to_container("c1", kDocker, 200, mount));
  EXPECT_FALSE(mount.has_gap) << "all since then is known";
}

TEST(ContainerEnding, WhatIsOlderOrOfOthersMeansNothing) {
  Mount mount = mount_of("c1");
  Event event = event_of("die", {{"exitCode", "0"}});
  event.time_ns = 99;
  EXPECT_FALSE(apply_event(event, kDocker, mount));
  event.time_ns = 200;
  event.subject = "c2";
  EXPECT_FALSE(apply_event(event, kDocker, mount));
  EXPECT_EQ(mount.ending, Reason::none);
}

TEST(ContainerEnding, AMountIsTheFirstContainersThatIsNamed) {
  Mount mount = mount_of("");
  Event event{.time_ns = 200, .type = "volume", .action = "mount", .subject = "work", .attributes = {}};
  event.attributes["container"] = "c1";
  EXPECT_TRUE(apply_event(event, kDocker, mount));
  EXPECT_EQ(mount.container, "c1");
  EXPECT_EQ(mount.runtime, kDocker);
  EXPECT_FALSE(apply_event(event, kDocker, mount));
  event.attributes["container"] = "c2";
  EXPECT_FALSE(apply_event(event, kDocker, mount)) << "docker gives each container a mount of its own";
  EXPECT_EQ(mount.container, "c1");
}

TEST(ContainerEnding, AMountThatTwoContainersShareIsNeverASuccess) {
  Mount mount = mount_of("c1");
  EXPECT_TRUE(give_to_container("c2", kDocker, 200, mount));
  apply_event(event_of("die", {{"exitCode", "0"}}), kDocker, mount);
  EXPECT_EQ(mount.ending, Reason::cancelled);
  EXPECT_TRUE(mount.keep_result);
}

TEST(ContainerEnding, ExitZeroIsNoSuccessWhereAStopWouldNotBeTold) {
  Mount mount = mount_of("c1");
  mount.hides_stops = true;
  apply_event(event_of("die", {{"exitCode", "0"}}), kDocker, mount);
  EXPECT_EQ(mount.ending, Reason::cancelled);
  EXPECT_TRUE(mount.keep_result);
}

TEST(VolumeOptions, AreThoseOfASessionAsText) {
  const VolumeOptions read = read_volume_options({{"repository", "data"}, {"branch", "next"}, {"path_prefix", "a/b"},
                                                  {"committer", "agent:x"}, {"issuer", "user:y"}, {"uid", "1000"},
                                                  {"require_approval", "true"}, {"timeout", "90s"}});
  EXPECT_EQ(read.repository, "data");
  EXPECT_EQ(read.session.branch, "next");
  EXPECT_EQ(read.session.path_prefix, "a/b");
  EXPECT_EQ(read.session.committer, "agent:x");
  EXPECT_EQ(read.session.issuer, "user:y");
  EXPECT_EQ(read.session.uid, 1000u);
  EXPECT_TRUE(read.session.require_approval);
  EXPECT_FALSE(read.session.read_only);
  EXPECT_EQ(read.timeout_ms, 90'000u);
  EXPECT_EQ(read.session.umask, "022");
  EXPECT_EQ(read.session.symlinks, "contained");
}

}  // namespace
}  // namespace escrow::daemon
