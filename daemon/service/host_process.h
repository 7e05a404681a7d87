// A process that escrowd starts to host a session: this very program, in a session of its own (setsid(2)), with nothing
// of escrowd's but standard error and one end of a channel. It outlives escrowd.
//
// Sources: posix_spawn(3), setsid(2).
#pragma once

#include <sys/types.h>

#include "daemon/process/message_channel.h"
#include "session/base/error.h"

namespace escrow::daemon {

struct HostProcess {
  // `argument` tells the program which host it is. Throws Error{unavailable}.
  static HostProcess start(const char* argument);

  pid_t pid = -1;  // a child of this process, to be reaped
  MessageChannel channel;
};

// The host's own end; at the beginning of its process.
MessageChannel begin_host_process();

// The next message, within a minute. Throws the Error of a refusal, and Error{unavailable} for a host that has died.
Message expect_message(MessageChannel& channel, MessageKind kind);

// How a host says why it cannot do what it was asked for.
std::string encode_refusal(const session::Error& error);
session::Error decode_refusal(std::string_view bytes);

}  // namespace escrow::daemon
