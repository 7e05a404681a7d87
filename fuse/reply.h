// How an operation becomes a reply: the operation is a function that returns one of the values below, and answer()
// sends it, or the errno of what was thrown, exactly once. No lock is held while a reply is sent.
//
// A reply that names a node gives the kernel a lookup count on it. It can fail when the caller was interrupted: the
// count is then taken back. Source: fuse_lowlevel.h, "Request methods and replies".
#pragma once

#include <sys/statvfs.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "fuse/inode_table.h"
#include "fuse/libfuse.h"
#include "fuse/mount.h"
#include "fuse/mount_visits.h"
#include "fuse/open_files.h"
#include "fuse/operation.h"
#include "session/base/log.h"
#include "session/base/still_wanted.h"
#include "session/base/synchronized.h"
#include "session/interfaces/file_system.h"

namespace escrow::fuse {

// What the operations of one mount share: libfuse's user data. Thread-safe.
struct Service {
  Service(session::FileSystem& file_system_in, session::Log& log_in, const MountOptions& options)
      : file_system(file_system_in),
        log(log_in),
        xattrs(options.xattrs),
        root_mask(options.root_mask),
        io(options.io),
        caches_listings(options.cache_listings),
        caches_links(options.cache_links),
        volatile_nodes(options.is_volatile),
        inodes(file_system_in),
        open_files(file_system_in) {}

  bool is_volatile(session::NodeId node) const { return volatile_nodes && volatile_nodes(node); }

  // Writes a failure to the log, each text once.
  void report(const std::string& message) noexcept;

  session::FileSystem& file_system;  // constant
  session::Log& log;                 // constant
  const bool xattrs;                 // constant
  const mode_t root_mask;            // constant
  const IoMode io;                   // constant
  const bool caches_listings;        // constant
  const bool caches_links;           // constant
  const std::function<bool(session::NodeId)> volatile_nodes;  // constant; may be empty
  InodeTable inodes;                 // self-locking
  OpenFiles open_files;              // self-locking
  OperationCounts counts;            // self-locking
  std::atomic<bool> over_io_uring = false;  // a request has come that way
  std::atomic<bool> is_ending = false;      // its threads are waited for: reads that take long are given up
  Helpers helpers;                   // self-locking
  WaitingRings waiting_rings;        // self-locking
  // Files whose size a helper is told wrong once, so that the kernel drops their pages.
  session::Synchronized<std::set<session::NodeId>> odd_sizes;

 private:
  session::Synchronized<std::set<std::string>> reported_;  // self-locking
};

struct Done {};
struct EntryReply {
  session::Attributes attributes;
  bool is_kept = true;  // as of LookupReply
};
// Without a value the name does not exist: the kernel remembers that, too. Without `is_kept` it asks again for whoever
// is next.
struct LookupReply {
  std::optional<session::Attributes> attributes;
  bool is_kept = true;
};
// A file that was opened, to be released when the kernel does not take the reply. Without `counted` opens are not.
struct OpenedReply {
  session::NodeId node;
  bool write = false;
  bool counted = false;
  int backing_id = 0;  // 0: not passed through
};
struct OpenedDirectoryReply {
  session::NodeId node;
};
struct CreatedReply {
  session::Attributes attributes;
  OpenedReply opened;
  bool is_kept = true;  // as of LookupReply
};
struct AttributesReply {
  session::Attributes attributes;
};
struct LinkTargetReply {
  std::string target;
};
// Bytes that stay valid until the reply is sent: the thread's buffer.
struct BytesReply {
  std::span<const std::byte> bytes;
};
struct WrittenReply {
  std::size_t size_bytes;
};
struct OffsetReply {
  std::uint64_t offset;
};
struct StatfsReply {
  struct statvfs values;
};
// The value, or only its size when `capacity` is 0; ERANGE when it does not fit.
struct XattrReply {
  std::string value;
  std::size_t capacity;
};
// A page of a directory, and the nodes it hands to the kernel.
struct DirectoryReply {
  std::span<const std::byte> bytes;
  std::span<const session::NodeId> looked_up;
};

void send(fuse_req_t request, Service& service, Done reply);
void send(fuse_req_t request, Service& service, const EntryReply& reply);
void send(fuse_req_t request, Service& service, const LookupReply& reply);
void send(fuse_req_t request, Service& service, const OpenedReply& reply);
void send(fuse_req_t request, Service& service, const OpenedDirectoryReply& reply);
void send(fuse_req_t request, Service& service, const CreatedReply& reply);
void send(fuse_req_t request, Service& service, const AttributesReply& reply);
void send(fuse_req_t request, Service& service, const LinkTargetReply& reply);
void send(fuse_req_t request, Service& service, const BytesReply& reply);
void send(fuse_req_t request, Service& service, WrittenReply reply);
void send(fuse_req_t request, Service& service, OffsetReply reply);
void send(fuse_req_t request, Service& service, const StatfsReply& reply);
void send(fuse_req_t request, Service& service, const XattrReply& reply);
void send(fuse_req_t request, Service& service, const DirectoryReply& reply);

// The errno of the exception being handled. What is our fault or a failing disk is reported to the log.
int errno_of_current_exception(Service& service, Operation operation) noexcept;

inline Service& service_of(fuse_req_t request) noexcept {
  return *static_cast<Service*>(fuse_req_userdata(request));
}

// The thread that asked. One that waits for the reply cannot end before it: SIGKILL stays pending. One of a foreign pid
// namespace has no number here, and counts as one that waits.
enum class Asker { waits, is_to_end, has_ended };
Asker asker_of(fuse_req_t request);

// `compute` takes the FileSystem; everything that can throw happens in it or before the first byte of a reply. What it
// does is wanted (session/base/still_wanted.h) until the asker or the mount is to end.
template <typename Compute>
void answer(fuse_req_t request, Operation operation, Compute compute) noexcept {
  Service& service = service_of(request);
  service.counts.add(operation);
  const auto begin = std::chrono::steady_clock::now();
  const std::function<bool()> is_wanted = [request, &service] {
    return !service.is_ending && asker_of(request) != Asker::is_to_end;
  };
  const session::WantedWhile wanted(is_wanted);
  try {
    send(request, service, compute(service.file_system));
  } catch (...) {
    fuse_reply_err(request, errno_of_current_exception(service, operation));
  }
  service.counts.add_time(operation, std::chrono::steady_clock::now() - begin);
}

// Opens `node` as open(2) with `flags` does, where opens reach us. `is_new`: it was made by the same call.
OpenedReply opened(fuse_req_t request, Service& service, session::NodeId node, int flags, bool is_new);
// Whether Escrow itself asks, by a helper process: nobody's rights are in question, and nothing is to be changed.
bool is_from_helper(fuse_req_t request) noexcept;
bool is_for_writing(int flags) noexcept;

session::Caller caller_of(fuse_req_t request) noexcept;

// `name` as a component of a path. Throws Error{name_too_long} over 255 bytes, the limit of ext4 and of statfs(2).
std::string_view component(const char* name);

// `size` bytes to make the reply to a READ or READDIR in; they belong to the thread until it replies.
std::span<std::byte> reply_buffer(fuse_req_t request, std::size_t size);

// At least `size` bytes that belong to this thread until it asks again.
std::span<std::byte> thread_buffer(std::size_t size);

}  // namespace escrow::fuse
