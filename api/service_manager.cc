#include "api/service_manager.h"

#include <systemd/sd-daemon.h>

#include <cstring>
#include <string>

#include "session/base/error.h"

namespace escrow::api {
namespace {

constexpr int kUnsetVariables = 1;  // so that no child takes the messages, or the socket, for its own

}  // namespace

void tell_service_manager(std::string_view state) noexcept { ::sd_notify(0, std::string(state).c_str()); }

int take_service_manager_socket() {
  const int count = ::sd_listen_fds(kUnsetVariables);
  if (count < 0)
    throw session::Error(session::Errc::unavailable,
                         std::string("the sockets of the service manager cannot be taken: ") + std::strerror(-count));
  if (count > 1)
    throw session::Error(session::Errc::unavailable,
                         "the service manager handed over " + std::to_string(count) + " sockets, and one is of use; "
                         "leave escrowd.socket a single ListenStream=");
  return count == 0 ? -1 : SD_LISTEN_FDS_START;
}

}  // namespace escrow::api
