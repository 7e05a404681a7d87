// The service manager: told how far the service is (sd_notify(3)'s protocol, a datagram to $NOTIFY_SOCKET), asked for
// the socket that it already listens on (sd_listen_fds(3)'s). Without one nothing is done and nothing is there.
#pragma once

#include <string_view>

namespace escrow::api {

// "READY=1", "STOPPING=1". Thread-safe, never throws.
void tell_service_manager(std::string_view state) noexcept;

// A descriptor, closed on exec; -1 without one. Once, before there are threads: the variables that name it go, lest a
// child takes them for its own. Throws Error{unavailable} when there is more than one.
int take_service_manager_socket();

}  // namespace escrow::api
