// The bytes of a control socket: its address below a directory of any length, and bytes in and out with a deadline.
// Only for the .cc files of api/.
#pragma once

#include <sys/types.h>
#include <sys/un.h>

#include <chrono>
#include <string>
#include <string_view>

namespace escrow::api {

// Owns one descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();

  int get() const noexcept { return fd_; }
  int release() noexcept;

 private:
  int fd_ = -1;
};

// A directory's descriptor, and the address of control.sock below it: sun_path holds 108 bytes only, /proc/self/fd/N
// stands for a directory of any length.
struct ControlAddress {
  explicit ControlAddress(const std::string& directory) noexcept;
  Descriptor directory_fd;
  int error = 0;  // errno of opening the directory; then there is no address
  sockaddr_un address{};
};

Descriptor make_socket();

// Sends the bytes, with a descriptor beside them (-1: none). False when the peer is gone or takes nothing for
// `patience` (zero: for ever).
bool send_bytes(int socket, std::string_view bytes, std::chrono::milliseconds patience, int descriptor = -1);

enum class Received {
  some,
  too_slow,  // nothing came in time
  closed,
  unread  // the peer closed it without having read all that was sent (unix_release_sock() in net/unix/af_unix.c)
};
// Appends what is there to `to`, within `patience` (zero: for ever). A descriptor beside it replaces `beside`.
Received receive_bytes(int socket, std::chrono::milliseconds patience, std::string& to, Descriptor& beside);

}  // namespace escrow::api
