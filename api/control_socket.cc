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

// Until `deadline` (or for ever) for the socket to be ready; false: it is not.
bool wait_for(int socket, short events, Milliseconds patience, std::chrono::steady_clock::time_point deadline) {
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

ControlAddress::ControlAddress(const std::string& directory)
    : directory_fd(open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)), address{} {
  if (directory_fd.get() < 0) {
    throw Error(Errc::unavailable, "cannot reach the session's directory " + directory + ": " + std::strerror(errno));
  }
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

bool send_line(int socket, std::string_view line, Milliseconds patience, int descriptor) {
  std::string framed(line);
  framed += '\n';
  std::string_view left = framed;
  while (!left.empty()) {
    // The deadline moves with what the peer takes: a long answer may take long, a stalled peer may not.
    if (!wait_for(socket, POLLOUT, patience, std::chrono::steady_clock::now() + patience)) return false;
    const ssize_t sent = send_some(socket, left, descriptor);
    if (sent < 0 && errno != EINTR && errno != EAGAIN) return false;
    if (sent > 0) left.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

// At most one descriptor is kept; of a peer that sends more the kernel closes the rest.
ssize_t LineReader::receive(std::span<char> into) {
  iovec part{into.data(), into.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  OneDescriptor beside{};
  message.msg_control = beside.bytes;
  message.msg_controllen = sizeof beside.bytes;
  const ssize_t count = recvmsg(socket_, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (count < 0) return count;
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    int received = -1;
    std::memcpy(&received, CMSG_DATA(header), sizeof received);
    descriptor_ = Descriptor(received);
  }
  return count;
}

std::optional<std::string> LineReader::next(Milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  std::size_t searched = 0;
  while (true) {
    const std::size_t newline = pending_.find('\n', searched);
    if (newline != std::string::npos) {
      std::string line = pending_.substr(0, newline);
      pending_.erase(0, newline + 1);
      return line;
    }
    searched = pending_.size();
    if (pending_.size() > limit_) {
      end_ = End::too_long;
      return std::nullopt;
    }
    if (!wait_for(socket_, POLLIN, patience, deadline)) {
      end_ = End::too_slow;
      return std::nullopt;
    }
    std::array<char, 65536> buffer;
    const ssize_t count = receive(buffer);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count <= 0) {
      end_ = count < 0 && errno == ECONNRESET ? End::unread : End::closed;
      return std::nullopt;
    }
    pending_.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

}  // namespace escrow::api
