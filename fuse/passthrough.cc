#include "fuse/passthrough.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "session/base/error.h"

namespace escrow::fuse {
namespace {

// Of linux/fuse.h since Linux 6.9, which the headers of older distributions lack.
struct BackingMap {
  std::int32_t descriptor;
  std::uint32_t flags;
  std::uint64_t padding;
};
constexpr unsigned long kBackingOpen = _IOW(229, 1, BackingMap);
constexpr unsigned long kBackingClose = _IOW(229, 2, std::uint32_t);

// The mount's own place in a stack of file systems: the staging files lie on none, and others may be put on the mount.
constexpr std::uint32_t kStackDepth = 1;

}  // namespace

int open_backing(fuse_session* session, int descriptor) noexcept {
  BackingMap map{descriptor, 0, 0};
  const int id = ::ioctl(fuse_session_fd(session), kBackingOpen, &map);
  return id > 0 ? id : -errno;
}

void close_backing(fuse_session* session, int backing_id) noexcept {
  auto id = static_cast<std::uint32_t>(backing_id);
  ::ioctl(fuse_session_fd(session), kBackingClose, &id);  // fails only when the mount is gone, and the id with it
}

void require_passthrough(fuse_session* session, const std::string& mountpoint) {
  const int file = memfd_create("escrow-probe", MFD_CLOEXEC);
  const int id = file < 0 ? -errno : open_backing(session, file);
  if (file >= 0) close(file);
  if (id > 0) {
    close_backing(session, id);
    return;
  }
  throw session::Error(session::Errc::unavailable,
                       "cannot mount at " + mountpoint + " with passthrough: the kernel refuses it (" +
                           std::strerror(-id) +
                           "); it takes Linux 6.9 or later, and root outside of any user namespace; leave --io at "
                           "auto");
}

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)

void ask_for_passthrough(fuse_conn_info& connection) {
  connection.want |= connection.capable & FUSE_CAP_PASSTHROUGH;
  connection.max_backing_stack_depth = kStackDepth - 1;  // libfuse adds the mount
}

bool take_device_for_passthrough(fuse_session* session, int device) {
  return fuse_session_mount(session, ("/dev/fd/" + std::to_string(device)).c_str()) == 0;
}

PassthroughReply::PassthroughReply(fuse_file_info& file, int backing_id) noexcept { file.backing_id = backing_id; }
PassthroughReply::~PassthroughReply() = default;

#else

namespace {

// struct fuse_init_out and struct fuse_open_out of protocol 7.40, which this libfuse fills as far as it knows them.
struct InitOut {
  std::uint32_t major, minor, max_readahead, flags;
  std::uint16_t max_background, congestion_threshold;
  std::uint32_t max_write, time_granularity;
  std::uint16_t max_pages, map_alignment;
  std::uint32_t flags2, max_stack_depth, unused[6];
};
static_assert(sizeof(InitOut) == 64);
constexpr std::uint32_t kInitExtended = 1u << 30;
constexpr std::uint32_t kPassthrough2 = 1u << (37 - 32);

struct OpenOut {
  std::uint64_t handle;
  std::uint32_t open_flags;
  std::int32_t backing_id;
};
static_assert(sizeof(OpenOut) == 16);
constexpr std::uint32_t kOpenPassthrough = 1u << 7;

struct OutHeader {
  std::uint32_t length;
  std::int32_t error;
  std::uint64_t unique;  // 0: a notification
};

// What the next reply of this thread is completed with.
thread_local bool init_reply = false;
thread_local int reply_backing_id = 0;

template <typename Payload, typename Change>
void change_last(const iovec& payload, Change change) {
  if (payload.iov_len < sizeof(Payload)) return;
  auto* const at = static_cast<char*>(payload.iov_base) + payload.iov_len - sizeof(Payload);
  Payload value;
  std::memcpy(&value, at, sizeof value);
  change(value);
  std::memcpy(at, &value, sizeof value);
}

// OPEN is answered with a fuse_open_out, CREATE with an entry and a fuse_open_out.
void complete(const iovec& header, const iovec& payload) {
  OutHeader out;
  std::memcpy(&out, header.iov_base, sizeof out);
  if (out.error != 0 || out.unique == 0) return;
  if (init_reply) {
    change_last<InitOut>(payload, [](InitOut& init) {
      init.flags |= kInitExtended;
      init.flags2 |= kPassthrough2;
      init.max_stack_depth = kStackDepth;
    });
    init_reply = false;
  } else if (reply_backing_id != 0) {
    change_last<OpenOut>(payload, [](OpenOut& open) {
      open.open_flags |= kOpenPassthrough;
      open.backing_id = reply_backing_id;
    });
  }
}

ssize_t send_reply(int device, iovec* parts, int count, void*) {
  if (count == 2) complete(parts[0], parts[1]);
  return ::writev(device, parts, count);
}

ssize_t receive_request(int device, void* buffer, std::size_t size, void*) { return ::read(device, buffer, size); }

}  // namespace

void ask_for_passthrough(fuse_conn_info&) { init_reply = true; }

bool take_device_for_passthrough(fuse_session* session, int device) {
  fuse_custom_io io{};
  io.writev = send_reply;
  io.read = receive_request;
  return fuse_session_custom_io(session, &io, device) == 0;
}

PassthroughReply::PassthroughReply(fuse_file_info&, int backing_id) noexcept { reply_backing_id = backing_id; }
PassthroughReply::~PassthroughReply() { reply_backing_id = 0; }

#endif

}  // namespace escrow::fuse
