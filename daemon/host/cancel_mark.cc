#include "daemon/host/cancel_mark.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "session/base/error.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/file_lookup.h"

namespace escrow::daemon {
namespace {

using session::Errc;
using session::Error;

std::string mark_in(const std::string& directory) { return directory + "/cancel"; }

FileDescriptor events_of(const std::string& directory) {
  FileDescriptor events(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!events || ::inotify_add_watch(events.get(), directory.c_str(), IN_CREATE | IN_MOVED_TO) < 0) {
    throw Error(Errc::unavailable, "the run could not be started: its directory " + directory +
                                       " cannot be watched: " + std::strerror(errno));
  }
  return events;
}

}  // namespace

void mark_cancelled(const std::string& directory) {
  if (!is_marked_cancelled(directory)) storage::write_file_durably(mark_in(directory), "", 0600);
}

bool is_marked_cancelled(const std::string& directory) { return storage::is_there(mark_in(directory)); }

CancelWatch::CancelWatch(const std::string& directory, std::function<void()> cancelled)
    : directory_(directory),
      cancelled_(std::move(cancelled)),
      events_(events_of(directory)),
      stop_(::eventfd(0, EFD_CLOEXEC)),
      thread_([this] { watch(); }) {}

CancelWatch::~CancelWatch() {
  const std::uint64_t one = 1;
  // Fails only when it is signalled already.
  [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof one);
  thread_.join();
}

void CancelWatch::watch() {
  for (;;) {
    int patience_ms = -1;
    try {
      if (is_marked_cancelled(directory_)) break;
    } catch (const Error&) {
      patience_ms = 1000;  // nobody can say; the commit asks again, and must be told
    }
    std::array<pollfd, 2> watched = {{{events_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
    ::poll(watched.data(), watched.size(), patience_ms);
    if (watched[1].revents != 0) return;
    std::array<char, 4096> events;
    [[maybe_unused]] const ssize_t drained = ::read(events_.get(), events.data(), events.size());
  }
  cancelled_();
}

}  // namespace escrow::daemon
