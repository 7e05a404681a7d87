#include "fuse/operations_file.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <optional>
#include <string>

#include "fuse/reply.h"
#include "session/base/error.h"
#include "session/base/still_wanted.h"

namespace escrow::fuse {
namespace {

using session::FileSystem;
using session::NodeId;

// One request of copy_file_range copies at most this much, so that a signal is noticed soon; callers go on after it.
constexpr std::size_t kMaxCopy_bytes = std::size_t{64} << 20;
constexpr std::size_t kCopyChunk_bytes = std::size_t{1} << 20;

session::AllocateMode allocate_mode_of(int mode) {
  switch (mode) {
    case 0: return session::AllocateMode::reserve;
    case FALLOC_FL_KEEP_SIZE: return session::AllocateMode::reserve_keep_size;
    case FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE: return session::AllocateMode::punch_hole;
    case FALLOC_FL_ZERO_RANGE: return session::AllocateMode::zero_range;
    case FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE: return session::AllocateMode::zero_range_keep_size;
    default:
      throw session::Error(session::Errc::not_supported,
                           "fallocate(2) with a mode other than KEEP_SIZE, PUNCH_HOLE and ZERO_RANGE");
  }
}

// Throws only when nothing was copied. The kernel has refused ranges of one file that overlap.
std::size_t copy(FileSystem& file_system, NodeId from, std::uint64_t from_offset, NodeId to, std::uint64_t to_offset,
                 std::size_t length) {
  const std::size_t wanted = std::min(length, kMaxCopy_bytes);
  const std::span<std::byte> buffer = thread_buffer(std::min(wanted, kCopyChunk_bytes));
  std::size_t copied = 0;
  try {
    while (copied < wanted) {
      const std::size_t chunk = std::min(buffer.size(), wanted - copied);
      const std::size_t got = file_system.read(from, from_offset + copied, buffer.first(chunk));
      if (got == 0) break;
      file_system.write(to, to_offset + copied, buffer.first(got), session::WriteOrigin::call);
      copied += got;
    }
  } catch (const session::Error&) {
    if (copied == 0) throw;
  }
  return copied;
}

// The program that stored them has gone on long ago.
void record_lost(Service& service, NodeId node, std::uint64_t offset, std::size_t size) noexcept {
  try {
    service.file_system.pages_lost(node, offset, size);
  } catch (const session::Error& error) {
    // Of a file that has no name and no holder any more nobody misses them.
    if (error.code() != session::Errc::not_found) service.report(std::string("recording lost pages: ") + error.what());
  } catch (...) {
    service.report("pages that could not be written back could not be recorded as lost");
  }
}

// Of pages that a program has stored: it has gone on, and what becomes of it does not matter.
const std::function<bool()> kWantedAlways = [] { return true; };

}  // namespace

void open(fuse_req_t request, fuse_ino_t node, fuse_file_info* file) {
  Service& service = service_of(request);
  if (service.io.opens == Opens::none) {
    service.counts.add(Operation::open);
    fuse_reply_err(request, ENOSYS);
    return;
  }
  answer(request, Operation::open,
         [&](FileSystem&) { return opened(request, service, NodeId{node}, file->flags, false); });
}

// After ENOSYS to OPEN some kernels still send it for what CREATE opened.
void release(fuse_req_t request, fuse_ino_t node, fuse_file_info* file) {
  Service& service = service_of(request);
  if (service.io.opens == Opens::daemon) service.open_files.release(NodeId{node}, is_for_writing(file->flags));
  service.counts.add(Operation::release);  // whoever reads the count knows that the file is let go of
  fuse_reply_err(request, 0);
}

void read(fuse_req_t request, fuse_ino_t node, std::size_t size, off_t offset, fuse_file_info*) {
  answer(request, Operation::read, [&](FileSystem& file_system) {
    // What a thread had read ahead when it ended is read in vain: the kernel asks again.
    const std::function<bool()> is_wanted = [request] {
      return !service_of(request).is_ending && asker_of(request) == Asker::waits;
    };
    const session::WantedWhile wanted(is_wanted);
    const std::span<std::byte> buffer = reply_buffer(request, size);
    const std::size_t got = file_system.read(NodeId{node}, static_cast<std::uint64_t>(offset), buffer);
    return BytesReply{buffer.first(got)};
  });
}

void write(fuse_req_t request, fuse_ino_t node, const char* bytes, std::size_t size, off_t offset,
           fuse_file_info* file) {
  answer(request, Operation::write, [&](FileSystem& file_system) {
    const auto origin = file->writepage ? session::WriteOrigin::page_cache : session::WriteOrigin::call;
    std::optional<session::WantedWhile> wanted;
    if (origin == session::WriteOrigin::page_cache) wanted.emplace(kWantedAlways);
    try {
      file_system.write(NodeId{node}, static_cast<std::uint64_t>(offset), std::as_bytes(std::span(bytes, size)),
                        origin);
    } catch (...) {
      if (origin == session::WriteOrigin::page_cache) {
        record_lost(service_of(request), NodeId{node}, static_cast<std::uint64_t>(offset), size);
      }
      throw;
    }
    return WrittenReply{size};
  });
}

void fsync(fuse_req_t request, fuse_ino_t node, int, fuse_file_info*) {
  answer(request, Operation::fsync, [&](FileSystem& file_system) {
    file_system.sync_file(NodeId{node});
    return Done{};
  });
}

void fallocate(fuse_req_t request, fuse_ino_t node, int mode, off_t offset, off_t length, fuse_file_info*) {
  answer(request, Operation::fallocate, [&](FileSystem& file_system) {
    if (is_from_helper(request)) return Done{};  // the kernel drops the pages of the range, and nothing else happens
    file_system.allocate(NodeId{node}, allocate_mode_of(mode), static_cast<std::uint64_t>(offset),
                         static_cast<std::uint64_t>(length));
    return Done{};
  });
}

// The kernel asks for data and holes without writing back what was stored through a mapping, and where a page is dirty
// nobody here can tell: a hole in the staging file may be full. Without a message for each open nobody can tell either
// who could have made one dirty, and a write-back cache knows better how long the file is, so there the kernel itself
// answers, that all is data.
void lseek(fuse_req_t request, fuse_ino_t node, off_t offset, int whence, fuse_file_info*) {
  Service& service = service_of(request);
  if (service.io.opens == Opens::none || service.io.data == Data::writeback) {
    service.counts.add(Operation::lseek);
    fuse_reply_err(request, ENOSYS);
    return;
  }
  answer(request, Operation::lseek, [&](FileSystem& file_system) {
    if (whence != SEEK_DATA && whence != SEEK_HOLE) {
      throw session::Error(session::Errc::invalid_argument, "lseek(2) for something else than data or a hole");
    }
    const auto target = whence == SEEK_DATA ? session::SeekTarget::data : session::SeekTarget::hole;
    const auto from = static_cast<std::uint64_t>(offset);
    const auto found = service.open_files.may_have_dirty_pages(NodeId{node})
                           ? session::seek_all_data(file_system.attributes(NodeId{node}).size_bytes, from, target)
                           : file_system.seek(NodeId{node}, from, target);
    if (!found) throw session::Error(session::Errc::no_such_offset, "lseek(2) past the last data of the file");
    return OffsetReply{*found};
  });
}

void copy_file_range(fuse_req_t request, fuse_ino_t from, off_t from_offset, fuse_file_info*, fuse_ino_t to,
                     off_t to_offset, fuse_file_info*, std::size_t length, int) {
  answer(request, Operation::copy_file_range, [&](FileSystem& file_system) {
    return WrittenReply{copy(file_system, NodeId{from}, static_cast<std::uint64_t>(from_offset), NodeId{to},
                             static_cast<std::uint64_t>(to_offset), length)};
  });
}

// There are none; ENOSYS would say that to every later one of any kind.
void ioctl(fuse_req_t request, fuse_ino_t, unsigned, void*, fuse_file_info*, unsigned, const void*, std::size_t,
           std::size_t) {
  service_of(request).counts.add(Operation::ioctl);
  fuse_reply_err(request, ENOTTY);
}

// A regular file is always ready (poll(2)).
void poll(fuse_req_t request, fuse_ino_t, fuse_file_info*, fuse_pollhandle* handle) {
  service_of(request).counts.add(Operation::poll);
  if (handle != nullptr) fuse_pollhandle_destroy(handle);
  fuse_reply_poll(request, EPOLLIN | EPOLLOUT | EPOLLRDNORM | EPOLLWRNORM);
}

}  // namespace escrow::fuse
