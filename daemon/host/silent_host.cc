#include "daemon/host/silent_host.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <vector>

#include "fuse/helper_process.h"
#include "fuse/place.h"
#include "session/base/repo_path.h"

namespace escrow::daemon {
namespace {

enum class Health { fine, stopped, killed };

std::string proc(pid_t process) { return "/proc/" + std::to_string(process); }

// One thread; SIGKILL is pending where the thread is in the kernel, and has not been let out of it.
Health health_of(const std::filesystem::path& thread) {
  std::ifstream status(thread / "status");
  Health health = Health::fine;
  for (std::string line; std::getline(status, line);) {
    const std::string value = line.substr(std::min(line.find('\t') + 1, line.size()));
    if (line.starts_with("State:") && (value.starts_with("Z") || value.starts_with("X"))) health = Health::killed;
    if (line.starts_with("State:") && value.starts_with("T")) health = Health::stopped;
    if (line.starts_with("SigPnd:") && (std::strtoull(value.c_str(), nullptr, 16) >> (SIGKILL - 1) & 1) != 0)
      return Health::killed;
  }
  return health;
}

Health health_of(pid_t process) {
  Health worst = Health::fine;
  std::error_code failed;
  for (std::filesystem::directory_iterator at(proc(process) + "/task", failed), end; !failed && at != end;
       at.increment(failed)) {
    worst = std::max(worst, health_of(at->path()));
  }
  return worst;
}

struct Connection {
  std::string abort_file, mountpoint;
};

// In the helper: as the user whose mount it is, or as root.
bool abort(const Connection& connection) {
  const int file = ::open(connection.abort_file.c_str(), O_WRONLY | O_CLOEXEC);
  if (file >= 0 && ::write(file, "1", 1) == 1) return true;
  return ::umount2(connection.mountpoint.c_str(), MNT_FORCE | MNT_DETACH | UMOUNT_NOFOLLOW) == 0;
}

}  // namespace

bool can_answer(pid_t host) { return host <= 0 || health_of(host) == Health::fine; }

bool let_killed_host_end(pid_t host, const session::SessionId& id) {
  if (host <= 0 || health_of(host) != Health::killed) return false;
  std::vector<Connection> connections;
  for (const fuse::MountedPath& mounted : fuse::mounted_paths()) {
    if (mounted.type != fuse::kMountType || mounted.source != "escrow:" + id.text()) continue;
    connections.push_back({"/sys/fs/fuse/connections/" + std::to_string(minor(mounted.device)) + "/abort",
                           mounted.path});
  }
  fuse::HelperProcess helper([&connections](const fuse::HelperProcess::Report& report) {
    for (const Connection& connection : connections)
      if (abort(connection)) report.add("ok", 2);
  });
  const auto aborted = helper.finish(fuse::kPlacePatience);
  return aborted && !aborted->empty();
}

std::string describe_silence(pid_t host, const session::SessionId& id) {
  std::string process = "the process that hosts session " + id.text();
  if (host <= 0) return process + " does not answer; it runs where this command cannot see it";
  std::string name;
  std::getline(std::ifstream(proc(host) + "/comm"), name);
  process += ", " + session::quote_path(name) + " (" + std::to_string(host) + "),";
  const std::string number = std::to_string(host);
  switch (health_of(host)) {
    case Health::stopped:
      return process + " is stopped; `kill -CONT " + number + "` lets it go on, `kill -KILL " + number +
             "` ends it and leaves the session detached";
    case Health::killed:
      return process + " was killed and cannot end, because its mount waits for it; as root, `umount -f` of the mount "
                       "lets it end";
    case Health::fine: break;
  }
  return process + " does not answer; wait for it, or end it with `kill -KILL " + number +
         "`, which leaves the session detached";
}

}  // namespace escrow::daemon
