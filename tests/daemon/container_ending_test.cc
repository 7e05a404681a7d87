#include "daemon/container_ending.h"

#include <gtest/gtest.h>

#include "daemon/volume_options.h"
#include "storage/volume_store.h"

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
  EXPECT_EQ(ending_after({event_of("kill", {{"signal", "28"}}), success}), Reason::success) << "a terminal's new size";
  EXPECT_EQ(ending_after({success, event_of("kill", {{"signal", "9"}})}), Reason::success) << "the first cause decides";
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
  EXPECT_EQ(read.opening.repository, "data");
  EXPECT_EQ(read.opening.options.branch, "next");
  EXPECT_EQ(read.opening.options.prefix.text(), "a/b");
  EXPECT_EQ(read.opening.committer, "agent:x");
  EXPECT_EQ(read.issuer, "user:y");
  EXPECT_EQ(read.opening.uid, 1000u);
  EXPECT_TRUE(read.opening.options.require_approval);
  EXPECT_FALSE(read.opening.options.read_only);
  EXPECT_EQ(read.opening.timeout_ms, 90'000u);
  EXPECT_EQ(read.opening.options.umask, 022u);
  EXPECT_TRUE(read.contained_symlinks);
}

}  // namespace
}  // namespace escrow::daemon
