#include "api/control_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "session/base/error.h"

namespace escrow::api {

using session::Errc;
using session::Error;
using Milliseconds = std::chrono::milliseconds;

namespace {

// For the socket to be ready; false: it is not in time.
bool wait_for(int socket, short events, Milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (true) {
    int timeout_ms = -1;
    if (patience != Milliseconds::zero()) {
      const auto left = std::chrono::ceil<Milliseconds>(deadline - std::chrono::steady_clock::now());
      if (left <= Milliseconds::zero()) return false;
      timeout_ms = static_cast<int>(left.count());
    }
    pollfd watched{socket, events, 0};
    const int ready = poll(&watched, 1, timeout_ms);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    fd_ = other.release();
  }
  return *this;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

int Descriptor::release() noexcept {
  const int fd = fd_;
  fd_ = -1;
  return fd;
}

ControlAddress::ControlAddress(const std::string& directory) noexcept
    : directory_fd(open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)),
      error(directory_fd.get() < 0 ? errno : 0) {
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/control.sock", directory_fd.get());
}

Descriptor make_socket() {
  Descriptor made(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (made.get() < 0) {
    throw Error(Errc::unavailable, std::string("cannot make a control socket: ") + std::strerror(errno));
  }
  return made;
}

namespace {

// One descriptor beside a message (unix(7), cmsg(3)).
union OneDescriptor {
  char bytes[CMSG_SPACE(sizeof(int))];
  cmsghdr align;
};

ssize_t send_some(int socket, std::string_view bytes, int& descriptor) {
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  OneDescriptor beside{};
  if (descriptor >= 0) {
    message.msg_control = beside.bytes;
    message.msg_controllen = sizeof beside.bytes;
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  const ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent > 0) descriptor = -1;
  return sent;
}

}  // namespace

bool send_bytes(int socket, std::string_view bytes, Milliseconds patience, int descriptor) {
  while (!bytes.empty()) {
    // The deadline moves with what the peer takes: a long answer may take long, a stalled peer may not.
    if (!wait_for(socket, POLLOUT, patience)) return false;
    const ssize_t sent = send_some(socket, bytes, descriptor);
    if (sent < 0 && errno != EINTR && errno != EAGAIN) return false;
    if (sent > 0) bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

// At most one descriptor is kept; of a peer that sends more the kernel closes the rest.
Received receive_bytes(int socket, Milliseconds patience, std::string& to, Descriptor& beside) {
  while (true) {
    if (!wait_for(socket, POLLIN, patience)) return Received::too_slow;
    std::array<char, 65536> buffer;
    iovec part{buffer.data(), buffer.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    OneDescriptor control{};
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_LEN(sizeof(int));  // the padding of CMSG_SPACE() would be room for a second
    const ssize_t count = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count <= 0) return count < 0 && errno == ECONNRESET ? Received::unread : Received::closed;
    const cmsghdr* const header = CMSG_FIRSTHDR(&message);
    if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
      int received = -1;
      std::memcpy(&received, CMSG_DATA(header), sizeof received);
      beside = Descriptor(received);
    }
    to.append(buffer.data(), static_cast<std::size_t>(count));
    return Received::some;
  }
}

}  // namespace escrow::api
