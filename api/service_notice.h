// Tells the service manager how far the service is: sd_notify(3)'s protocol, a datagram to $NOTIFY_SOCKET. Does nothing
// without a service manager; never throws. Thread-safe.
#pragma once

#include <string_view>

namespace escrow::api {

// "READY=1", "STOPPING=1"
void tell_service_manager(std::string_view state) noexcept;

}  // namespace escrow::api
