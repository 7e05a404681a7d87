#include "daemon/process/message_channel.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace escrow::daemon {
namespace {

struct Header {
  std::uint32_t kind;
  std::uint32_t length;
};

bool send_all(int socket, const char* bytes, std::size_t length) {
  while (length > 0) {
    const ssize_t sent = ::send(socket, bytes, length, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes += sent;
    length -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool receive_all(int socket, char* bytes, std::size_t length) {
  while (length > 0) {
    const ssize_t received = ::recv(socket, bytes, length, 0);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) return false;
    bytes += received;
    length -= static_cast<std::size_t>(received);
  }
  return true;
}

}  // namespace

std::optional<std::pair<MessageChannel, MessageChannel>> MessageChannel::pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return std::nullopt;
  return std::pair(MessageChannel(FileDescriptor(ends[0])), MessageChannel(FileDescriptor(ends[1])));
}

std::optional<Message> MessageChannel::receive_within(std::chrono::milliseconds patience) {
  pollfd watched{socket_.get(), POLLIN, 0};
  if (::poll(&watched, 1, static_cast<int>(patience.count())) <= 0) return std::nullopt;
  return receive();
}

bool MessageChannel::send(MessageKind kind, std::string_view body) {
  const Header header{static_cast<std::uint32_t>(kind), static_cast<std::uint32_t>(body.size())};
  std::string frame(reinterpret_cast<const char*>(&header), sizeof header);
  frame += body;
  return send_all(socket_.get(), frame.data(), frame.size());
}

std::optional<Message> MessageChannel::receive() {
  Header header;
  if (!receive_all(socket_.get(), reinterpret_cast<char*>(&header), sizeof header)) return std::nullopt;
  Message message{static_cast<MessageKind>(header.kind), std::string(header.length, '\0')};
  if (!receive_all(socket_.get(), message.body.data(), header.length)) return std::nullopt;
  return message;
}

}  // namespace escrow::daemon
