// The bytes of a control socket: its address below a directory of any length, and lines in and out with a deadline.
// Only for the .cc files of api/.
#pragma once

#include <sys/types.h>
#include <sys/un.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

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
// stands for a directory of any length. Throws Error{unavailable}.
struct ControlAddress {
  explicit ControlAddress(const std::string& directory);
  Descriptor directory_fd;
  sockaddr_un address;
};

Descriptor make_socket();

// A line that a host answers at once, whatever else it is doing: with kPong or, where it does not know it, with an
// error.
inline constexpr std::string_view kPing = R"({"request":"ping"})", kPong = R"({"answer":"pong"})";

// Sends `line` and a newline, with a descriptor beside it (-1: none). False when the peer is gone or takes nothing for
// `patience` (zero: for ever).
bool send_line(int socket, std::string_view line, std::chrono::milliseconds patience, int descriptor = -1);

// Reads lines of at most `limit` bytes from one socket.
class LineReader {
 public:
  // unread: the peer closed it without having read all that was sent (unix_release_sock() in net/unix/af_unix.c).
  enum class End { closed, unread, too_long, too_slow };

  LineReader(int socket, std::size_t limit) : socket_(socket), limit_(limit) {}
  // The next line without its newline, or why there is none. A whole line has `patience` to arrive (zero: for ever).
  std::optional<std::string> next(std::chrono::milliseconds patience);
  End end() const noexcept { return end_; }
  // The last descriptor that came since this was asked for; none: what came had none beside it.
  Descriptor take_descriptor() noexcept { return std::move(descriptor_); }

 private:
  ssize_t receive(std::span<char> into);

  int socket_;
  std::size_t limit_;
  std::string pending_;
  Descriptor descriptor_;
  End end_ = End::closed;
};

}  // namespace escrow::api
