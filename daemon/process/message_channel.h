// Framed messages over a stream socket between the host process of a run and its supervisor, and between escrowd and a
// host process. Throws nothing: a peer that is gone is a value.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/process/file_descriptor.h"

namespace escrow::daemon {

enum class MessageKind : std::uint32_t {
  start,     // host: encode(CommandSpec)
  signal,    // host: the number, in decimal
  contain,   // host: encode(CommandSpec) of a command that comes soon, for what will hold it
  settled,   // host: it has looked after the command's container
  starting,  // supervisor: the command comes next, and can keep it from saying more; the paths of its cgroups, encode()
  started,   // supervisor: the command runs
  ended,     // supervisor: encode(CommandEnd)
  // Between escrowd and the host process of a run of its own.
  order,    // escrowd: encode(RunOrder)
  ready,    // host: the session is open and mounted
  go,       // escrowd: start the command
  running,  // host: it was started
  refused,  // host: there is no run, or no mount; encode_refusal()
  // Between escrowd and a host of mounted sessions (daemon/service/sessions/mount_host.h).
  prepare,   // escrowd: a repository's path, of which an order may come
  released,  // host: nothing holds the session any more, and another order may come; what the mount has served
};

struct Message {
  MessageKind kind;
  std::string body;
};

class MessageChannel {
 public:
  explicit MessageChannel(FileDescriptor socket) : socket_(std::move(socket)) {}
  // The two ends of a new one, closed by exec; nullopt with errno.
  static std::optional<std::pair<MessageChannel, MessageChannel>> pair();
  int descriptor() const noexcept { return socket_.get(); }
  // False when the peer is gone.
  bool send(MessageKind kind, std::string_view body);
  // Waits for a whole message; nullopt when the peer is gone.
  std::optional<Message> receive();
  // The same, but nullopt also when nothing has come in time.
  std::optional<Message> receive_within(std::chrono::milliseconds patience);
  void close() { socket_.reset(); }

 private:
  FileDescriptor socket_;
};

}  // namespace escrow::daemon
