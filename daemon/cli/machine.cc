#include "daemon/cli/machine.h"

#include <sys/utsname.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "daemon/process/confinement.h"
#include "daemon/process/user_namespace.h"
#include "fuse/library.h"

namespace escrow::daemon {
namespace {

std::string kernel_of(const Machine& machine) {
  return "Linux " + std::to_string(machine.kernel_major) + "." + std::to_string(machine.kernel_minor);
}

Finding device(const Machine& machine) {
  Finding finding{
      .name = "/dev/fuse", .is_on = machine.device_error == 0, .worth = "no session can be mounted without"};
  if (finding.is_on) {
    finding.state = "opens";
    return finding;
  }
  finding.state = std::string("cannot be opened: ") + std::strerror(machine.device_error);
  switch (machine.device_error) {
    case EACCES:
      finding.command = "sudo chmod a+rw /dev/fuse";
      break;
    case EPERM:
      finding.command = "docker run --device /dev/fuse ...";
      break;
    default:
      finding.command = "sudo modprobe fuse";
  }
  return finding;
}

Finding mounting(const Machine& machine) {
  Finding finding{.name = "mounting", .is_on = can_mount(machine), .worth = "how sessions are mounted"};
  if (machine.device_error != 0) {
    finding.state = "not without /dev/fuse";
  } else if (machine.has_sys_admin) {
    finding.state = "by Escrow itself (CAP_SYS_ADMIN)";
  } else if (machine.fusermount_is_setuid) {
    finding.state = "by fusermount3";
  } else if (machine.may_make_user_namespace) {
    finding.state = "in a user namespace: `escrow run` works, and nobody else sees its mount";
  } else {
    finding.state = "not by this user: no CAP_SYS_ADMIN, no fusermount3, no user namespaces";
    finding.command = "sudo apt-get install fuse3";
  }
  return finding;
}

Finding fusermount(const Machine& machine) {
  Finding finding{.name = "fusermount3",
                  .is_on = machine.fusermount_is_setuid,
                  .worth = "ordinary users mount sessions that others can see"};
  if (machine.fusermount.empty()) {
    finding.state = "is not installed";
    finding.command = "sudo apt-get install fuse3";
  } else if (!machine.fusermount_is_setuid) {
    finding.state = machine.fusermount + " has no set-user-id bit of root, or its file system is mounted nosuid";
    finding.command = "sudo chmod u+s " + machine.fusermount;
  } else {
    finding.state = machine.fusermount + ", set-user-id root";
  }
  return finding;
}

Finding user_namespaces(const Machine& machine) {
  return {.name = "user namespaces",
          .is_on = machine.may_make_user_namespace,
          .state = machine.may_make_user_namespace ? "can be made" : "are not given by the kernel",
          .worth = "ordinary users run commands over a session without fusermount3",
          .command = machine.may_make_user_namespace ? "" : machine.user_namespace_command};
}

Finding bubblewrap(const Machine& machine) {
  const bool is_there = !machine.bubblewrap.empty(), may_use = machine.may_make_user_namespace;
  return {.name = "bubblewrap",
          .is_on = is_there && may_use,
          .state = !is_there ? "is not installed" : machine.bubblewrap + (may_use ? "" : ", without user namespaces"),
          .worth = "commands that see nothing of the machine (--confine)",
          .command = !is_there ? "sudo apt-get install bubblewrap" : may_use ? "" : machine.user_namespace_command};
}

Finding libfuse(const Machine& machine) {
  const bool is_new = machine.io_uring != fuse::IoUringObstacle::library;
  return {.name = "libfuse",
          .is_on = is_new,
          .state = machine.libfuse_running + (is_new ? "" : ", without io_uring; 3.18 has it") + " (compiled with " +
                   machine.libfuse_compiled + ")",
          .worth = "3.18: FUSE over io_uring",
          .command = is_new ? "" : "deploy/setup.sh && cmake --preset release && cmake --build --preset release"};
}

Finding io_uring(const Machine& machine) {
  using fuse::IoUringObstacle;
  Finding finding{.name = "io_uring",
                  .is_on = machine.io_uring == IoUringObstacle::none,
                  .worth = "about twice the speed of what is bound by messages: creating and deleting small files, "
                           "unpacking, the first walk through a tree"};
  switch (machine.io_uring) {
    case IoUringObstacle::none:
      finding.state = "on: requests of new mounts come over it";
      break;
    case IoUringObstacle::library:
      finding.state = "off: this libfuse has none";
      finding.command = libfuse(machine).command;
      break;
    case IoUringObstacle::kernel:
      finding.state = "off: " + kernel_of(machine) + " has none; 6.14 has";
      break;
    case IoUringObstacle::parameter:
      finding.state = "off in the kernel; fuse.enable_uring=Y on its command line turns it on for good";
      finding.command = "echo Y | sudo tee /sys/module/fuse/parameters/enable_uring";
      break;
    case IoUringObstacle::forbidden:
      finding.state = "off: this process may not use io_uring; in a container its seccomp profile decides, too";
      finding.command = "sudo sysctl -w kernel.io_uring_disabled=0";
      break;
    case IoUringObstacle::processors:
      finding.state = "off: the kernel reckons with processors that are not there; nr_cpus=N on its command line, N "
                      "the number of those that are, tells it";
      break;
  }
  return finding;
}

Finding passthrough(const Machine& machine) {
  Finding finding{.name = "passthrough",
                  .worth = "large writes 1.0 of ext4 instead of 0.6, random 4 KiB writes 0.87 instead of 0.3"};
  const bool kernel_has_it = machine.kernel_major > 6 || (machine.kernel_major == 6 && machine.kernel_minor >= 9);
  if (!kernel_has_it) {
    finding.state = kernel_of(machine) + " has none; 6.9 has";
  } else if (!machine.in_first_user_namespace) {
    finding.state = "the kernel gives it only outside of user namespaces";
  } else if (!machine.has_sys_admin) {
    finding.state = "the kernel gives it only with CAP_SYS_ADMIN";
    finding.command = "sudo escrow ...";
  } else {
    finding.is_on = true;
    finding.state = "possible (" + kernel_of(machine) + ", CAP_SYS_ADMIN)";
  }
  return finding;
}

}  // namespace

Machine look_at_machine() {
  Machine machine;
  machine.device_error = fuse_device_error();
  machine.has_sys_admin = has_sys_admin();
  machine.in_first_user_namespace = in_first_user_namespace();
  machine.may_make_user_namespace = may_make_user_namespace();
  machine.user_namespace_command = user_namespace_command();
  const Helper helper = find_fusermount();
  machine.fusermount = helper.path;
  machine.fusermount_is_setuid = helper.is_setuid;
  machine.bubblewrap = find_bubblewrap();
  machine.libfuse_compiled = fuse::libfuse_compiled();
  machine.libfuse_running = fuse::libfuse_running();
  machine.io_uring = fuse::io_uring_obstacle();
  utsname kernel{};
  if (::uname(&kernel) == 0) std::sscanf(kernel.release, "%d.%d", &machine.kernel_major, &machine.kernel_minor);
  return machine;
}

bool can_mount(const Machine& machine) {
  return machine.device_error == 0 &&
         (machine.has_sys_admin || machine.fusermount_is_setuid || machine.may_make_user_namespace);
}

std::vector<Finding> findings_of(const Machine& machine) {
  return {device(machine),  mounting(machine), fusermount(machine), user_namespaces(machine),
          bubblewrap(machine), libfuse(machine), io_uring(machine), passthrough(machine)};
}

}  // namespace escrow::daemon
