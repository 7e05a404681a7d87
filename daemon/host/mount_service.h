// A process whose only work is to hold a session's mount: `escrow mount`, and the host of a volume's session.
#pragma once

#include "daemon/host/session_host.h"
#include "daemon/process/file_descriptor.h"

namespace escrow::daemon {

// SIGINT, SIGTERM and SIGHUP as a descriptor, blocked in every thread that is started from here on.
FileDescriptor take_leave_signals();

// Until the session ends, the mount goes away, or a signal asks to leave.
void serve_mount(SessionHost& host, const FileDescriptor& signals);

}  // namespace escrow::daemon
