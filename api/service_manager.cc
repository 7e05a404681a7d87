#include "api/service_manager.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

#include "api/control_socket.h"
#include "session/base/error.h"

namespace escrow::api {
namespace {

constexpr int kFirstPassedDescriptor = 3;  // SD_LISTEN_FDS_START

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

void tell_service_manager(std::string_view state) noexcept {
  const char* named = std::getenv("NOTIFY_SOCKET");
  if (named == nullptr) return;
  const std::string_view path = named;
  sockaddr_un address{};
  if (path.empty() || path.size() >= sizeof address.sun_path) return;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  if (path.front() == '@') address.sun_path[0] = '\0';  // of the abstract name space
  const Descriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  ::sendto(socket.get(), state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address), length);
}

int take_service_manager_socket() {
  const bool is_for_us = variable("LISTEN_PID") == std::to_string(::getpid());
  const std::string count = variable("LISTEN_FDS");
  for (const char* name : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) ::unsetenv(name);
  if (!is_for_us || count.empty() || count == "0") return -1;
  if (count != "1") {
    throw session::Error(session::Errc::unavailable,
                         "the service manager handed over " + count + " sockets, and one is of use; leave "
                         "escrowd.socket a single ListenStream=");
  }
  ::fcntl(kFirstPassedDescriptor, F_SETFD, FD_CLOEXEC);
  return kFirstPassedDescriptor;
}

}  // namespace escrow::api
