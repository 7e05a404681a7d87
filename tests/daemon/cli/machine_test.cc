// What `escrow doctor` makes of a machine: pure, on invented machines.
#include "daemon/cli/machine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

namespace escrow::daemon {
namespace {

// One that allows everything.
Machine complete() {
  return {.device_error = 0,
          .has_sys_admin = true,
          .in_first_user_namespace = true,
          .may_make_user_namespace = true,
          .user_namespace_command = "",
          .fusermount = "/usr/bin/fusermount3",
          .fusermount_is_setuid = true,
          .bubblewrap = "/usr/bin/bwrap",
          .libfuse_compiled = "3.18",
          .libfuse_running = "3.18.3",
          .io_uring = fuse::IoUringObstacle::none,
          .kernel_major = 6,
          .kernel_minor = 18};
}

Finding finding(const Machine& machine, const std::string& name) {
  for (const Finding& it : findings_of(machine)) {
    if (it.name == name) return it;
  }
  ADD_FAILURE() << "no finding " << name;
  return {};
}

TEST(Machine, OnACompleteOneEverythingIsOnAndNothingIsToBeDone) {
  for (const Finding& it : findings_of(complete())) {
    EXPECT_TRUE(it.is_on) << it.name;
    EXPECT_EQ("", it.command) << it.name;
    EXPECT_FALSE(it.state.empty() || it.worth.empty()) << it.name;
  }
  EXPECT_TRUE(can_mount(complete()));
}

TEST(Machine, WithoutBubblewrapItIsSaidWhatToInstall) {
  Machine machine = complete();
  machine.bubblewrap.clear();
  EXPECT_FALSE(finding(machine, "bubblewrap").is_on);
  EXPECT_EQ("sudo apt-get install bubblewrap", finding(machine, "bubblewrap").command);
  EXPECT_TRUE(can_mount(machine));
}

TEST(Machine, EachObstacleOfIoUringIsSaidWithWhatRemovesIt) {
  using fuse::IoUringObstacle;
  Machine machine = complete();
  const auto command_for = [&](IoUringObstacle obstacle) {
    machine.io_uring = obstacle;
    EXPECT_FALSE(finding(machine, "io_uring").is_on);
    EXPECT_TRUE(can_mount(machine));
    return finding(machine, "io_uring").command;
  };
  EXPECT_EQ("echo Y | sudo tee /sys/module/fuse/parameters/enable_uring", command_for(IoUringObstacle::parameter));
  EXPECT_EQ("sudo sysctl -w kernel.io_uring_disabled=0", command_for(IoUringObstacle::forbidden));
  EXPECT_TRUE(command_for(IoUringObstacle::library).starts_with("deploy/setup.sh && "));
  EXPECT_FALSE(finding(machine, "libfuse").is_on);
  EXPECT_EQ("", command_for(IoUringObstacle::kernel));
  EXPECT_NE(std::string::npos, finding(machine, "io_uring").state.find("6.14"));
  EXPECT_EQ("", command_for(IoUringObstacle::processors));
  EXPECT_NE(std::string::npos, finding(machine, "io_uring").state.find("nr_cpus="));
}

TEST(Machine, WithoutTheDeviceNothingCanBeMounted) {
  Machine machine = complete();
  for (const auto& [error, command] : {std::pair{ENOENT, "modprobe"}, {EACCES, "chmod"}, {EPERM, "--device"}}) {
    machine.device_error = error;
    EXPECT_FALSE(can_mount(machine));
    EXPECT_FALSE(finding(machine, "mounting").is_on);
    EXPECT_NE(std::string::npos, finding(machine, "/dev/fuse").command.find(command));
  }
}

TEST(Machine, AnOrdinaryUserMountsThroughTheHelperOrInAUserNamespace) {
  Machine machine = complete();
  machine.has_sys_admin = false;
  EXPECT_NE(std::string::npos, finding(machine, "mounting").state.find("fusermount3"));
  machine.fusermount_is_setuid = false;
  EXPECT_EQ("sudo chmod u+s /usr/bin/fusermount3", finding(machine, "fusermount3").command);
  EXPECT_NE(std::string::npos, finding(machine, "mounting").state.find("user namespace"));
  EXPECT_TRUE(can_mount(machine));
  machine.may_make_user_namespace = false;
  machine.user_namespace_command = "sudo sysctl -w user.max_user_namespaces=15000";
  EXPECT_EQ(machine.user_namespace_command, finding(machine, "user namespaces").command);
  EXPECT_FALSE(can_mount(machine));
}

TEST(Machine, PassthroughNeedsTheKernelTheCapabilityAndTheFirstUserNamespace) {
  Machine machine = complete();
  machine.in_first_user_namespace = false;
  EXPECT_FALSE(finding(machine, "passthrough").is_on);
  machine = complete();
  machine.has_sys_admin = false;
  EXPECT_FALSE(finding(machine, "passthrough").is_on);
  machine = complete();
  machine.kernel_minor = 8;
  EXPECT_FALSE(finding(machine, "passthrough").is_on);
  machine.kernel_minor = 9;
  EXPECT_TRUE(finding(machine, "passthrough").is_on);
}

TEST(Machine, IsLookedAtWithoutChangingIt) {
  const Machine machine = look_at_machine();
  EXPECT_GE(machine.kernel_major, 5);
  EXPECT_TRUE(machine.libfuse_running.starts_with("3."));
  EXPECT_TRUE(machine.libfuse_running.starts_with(machine.libfuse_compiled));
  EXPECT_EQ(machine.io_uring, fuse::io_uring_obstacle());
}

}  // namespace
}  // namespace escrow::daemon
