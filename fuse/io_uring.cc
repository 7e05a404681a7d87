#include "fuse/io_uring.h"

#include <sys/sysinfo.h>

#include <algorithm>

namespace escrow::fuse {
namespace {

// Requests that a mount can have in the hands of its ring threads. Each has a buffer of the largest message (1 MiB),
// whose pages are there once used: this bounds a mount's memory. A thread answers one request at a time, so more of
// them would only lie in wait nearer to it.
constexpr unsigned kRequestsPerMount = 8;

}  // namespace

std::string io_uring_options() {
  const unsigned processors = static_cast<unsigned>(std::max(get_nprocs_conf(), 1));
  return "io_uring,io_uring_q_depth=" + std::to_string(std::max(kRequestsPerMount / processors, 1u));
}

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 18)

unsigned io_uring_flag() { return static_cast<unsigned>(FUSE_CAP_OVER_IO_URING); }

void stop_io_uring(fuse_session* session) {
  // The only public way: a loop that ends before it reads anything stops the ring on its way out.
  fuse_session_exit(session);
  fuse_session_loop(session);
}

bool came_over_io_uring(fuse_req_t request) { return fuse_req_is_uring(request); }

std::optional<std::span<std::byte>> ring_payload(fuse_req_t request, std::size_t size) {
  char* payload = nullptr;
  std::size_t capacity = 0;
  if (fuse_req_get_payload(request, &payload, &capacity, nullptr) != 0 || capacity < size) return std::nullopt;
  return std::as_writable_bytes(std::span(payload, size));
}

#else

unsigned io_uring_flag() { return 0; }
void stop_io_uring(fuse_session*) {}
bool came_over_io_uring(fuse_req_t) { return false; }
std::optional<std::span<std::byte>> ring_payload(fuse_req_t, std::size_t) { return std::nullopt; }

#endif

}  // namespace escrow::fuse
