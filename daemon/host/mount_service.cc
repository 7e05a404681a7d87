#include "daemon/host/mount_service.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>

namespace escrow::daemon {

FileDescriptor take_leave_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return FileDescriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

void serve_mount(SessionHost& host, const FileDescriptor& signals) {
  std::array<pollfd, 2> watched = {{{host.event_fd(), POLLIN, 0}, {signals.get(), POLLIN, 0}}};
  while (!host.has_ended() && host.is_mounted()) {
    if (poll(watched.data(), watched.size(), -1) < 0 && errno != EINTR) break;
    if ((watched[1].revents & POLLIN) != 0) break;
    std::uint64_t drained = 0;
    if ((watched[0].revents & POLLIN) != 0 && read(host.event_fd(), &drained, sizeof drained) < 0) break;
  }
}

}  // namespace escrow::daemon
