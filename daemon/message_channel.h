// Framed messages over a stream socket between the host process of a run and its supervisor. Throws nothing: a peer
// that is gone is a value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/file_descriptor.h"

namespace escrow::daemon {

enum class MessageKind : std::uint32_t {
  start,    // host: encode(CommandSpec)
  signal,   // host: the number, in decimal
  started,  // supervisor: the path of the cgroup, maybe empty
  ended,    // supervisor: encode(CommandEnd)
};

struct Message {
  MessageKind kind;
  std::string body;
};

class MessageChannel {
 public:
  explicit MessageChannel(FileDescriptor socket) : socket_(std::move(socket)) {}
  int descriptor() const noexcept { return socket_.get(); }
  // False when the peer is gone.
  bool send(MessageKind kind, std::string_view body);
  // Waits for a whole message; nullopt when the peer is gone.
  std::optional<Message> receive();
  void close() { socket_.reset(); }

 private:
  FileDescriptor socket_;
};

}  // namespace escrow::daemon
