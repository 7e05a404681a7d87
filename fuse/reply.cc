#include "fuse/reply.h"

#include <fcntl.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>

#include "fuse/attributes.h"
#include "fuse/errno_map.h"
#include "fuse/io_uring.h"
#include "fuse/passthrough.h"
#include "session/base/cross_device.h"
#include "session/base/error.h"

namespace escrow::fuse {
namespace {

constexpr std::size_t kMaxEntryName_bytes = 255;
constexpr std::size_t kMaxReports = 1000;

// Counts a lookup of `node` for the time of a reply, and for good once the kernel has taken the reply.
class PendingLookup {
 public:
  PendingLookup(InodeTable& inodes, session::NodeId node) : inodes_(inodes), node_(node) { inodes.looked_up(node); }
  ~PendingLookup() {
    if (!taken_) inodes_.forget(node_, 1);  // does not throw
  }
  PendingLookup(const PendingLookup&) = delete;
  PendingLookup& operator=(const PendingLookup&) = delete;
  void taken_if(int reply_result) noexcept { taken_ = reply_result == 0; }

 private:
  InodeTable& inodes_;
  session::NodeId node_;
  bool taken_ = false;
};

fuse_file_info file_info_of(const Service& service, const OpenedReply& reply) {
  fuse_file_info file{};
  // As the kernel assumes after ENOSYS to OPEN: what it has cached of the file stays. Passthrough caches nothing.
  file.keep_cache = reply.backing_id == 0 && !service.is_volatile(reply.node);
  return file;
}

}  // namespace

void Service::report(const std::string& message) noexcept {
  try {
    {
      auto reported = reported_.lock();
      if (reported->size() >= kMaxReports || !reported->insert(message).second) return;
    }
    log.write(session::LogLevel::error, message);
  } catch (...) {
    // The request is still answered with EIO; without memory for the message there is no more to do.
  }
}

void send(fuse_req_t request, Service&, Done) { fuse_reply_err(request, 0); }

void send(fuse_req_t request, Service& service, const EntryReply& reply) {
  send(request, service, LookupReply{reply.attributes, reply.is_kept});
}

void send(fuse_req_t request, Service& service, const LookupReply& reply) {
  if (!reply.attributes && !reply.is_kept) {
    fuse_reply_err(request, ENOENT);
    return;
  }
  fuse_entry_param entry{};
  entry.entry_timeout = kForever_s;
  if (!reply.attributes) {
    fuse_reply_entry(request, &entry);
    return;
  }
  entry = entry_of(*reply.attributes, service.io.data);
  if (!reply.is_kept) entry.entry_timeout = 0;
  PendingLookup lookup(service.inodes, reply.attributes->node);
  lookup.taken_if(fuse_reply_entry(request, &entry));
}

void send(fuse_req_t request, Service& service, const OpenedReply& reply) {
  fuse_file_info file = file_info_of(service, reply);
  const PassthroughReply passthrough(file, reply.backing_id);
  if (fuse_reply_open(request, &file) != 0) service.open_files.release(reply.node, reply.write);
}

void send(fuse_req_t request, Service& service, const OpenedDirectoryReply& reply) {
  fuse_file_info file{};
  const bool is_cached = service.caches_listings && !service.is_volatile(reply.node);
  file.keep_cache = is_cached;
  file.cache_readdir = is_cached;
  if (fuse_reply_open(request, &file) != 0) service.file_system.close(reply.node, {.list = true});
}

void send(fuse_req_t request, Service& service, const CreatedReply& reply) {
  session::Attributes attributes = reply.attributes;
  attributes.volatile_bytes = reply.opened.backing_id != 0;
  fuse_entry_param entry = entry_of(attributes, service.io.data);
  if (!reply.is_kept) entry.entry_timeout = 0;
  fuse_file_info file = file_info_of(service, reply.opened);
  PendingLookup lookup(service.inodes, attributes.node);
  const PassthroughReply passthrough(file, reply.opened.backing_id);
  const int result = fuse_reply_create(request, &entry, &file);
  lookup.taken_if(result);
  if (result != 0 && reply.opened.counted) service.open_files.release(attributes.node, reply.opened.write);
}

void send(fuse_req_t request, Service& service, const AttributesReply& reply) {
  struct stat values = stat_of(reply.attributes);
  if (reply.attributes.node == session::kRootNode) values.st_mode &= ~service.root_mask;
  fuse_reply_attr(request, &values, attributes_timeout_s(reply.attributes, service.io.data));
}

void send(fuse_req_t request, Service&, const LinkTargetReply& reply) {
  fuse_reply_readlink(request, reply.target.c_str());
}

void send(fuse_req_t request, Service&, const BytesReply& reply) {
  fuse_reply_buf(request, reinterpret_cast<const char*>(reply.bytes.data()), reply.bytes.size());
}

void send(fuse_req_t request, Service&, WrittenReply reply) { fuse_reply_write(request, reply.size_bytes); }

void send(fuse_req_t request, Service&, OffsetReply reply) {
  fuse_reply_lseek(request, static_cast<off_t>(reply.offset));
}

void send(fuse_req_t request, Service&, const StatfsReply& reply) { fuse_reply_statfs(request, &reply.values); }

void send(fuse_req_t request, Service&, const XattrReply& reply) {
  if (reply.capacity == 0) {
    fuse_reply_xattr(request, reply.value.size());
  } else if (reply.value.size() > reply.capacity) {
    fuse_reply_err(request, ERANGE);
  } else {
    fuse_reply_buf(request, reply.value.data(), reply.value.size());
  }
}

void send(fuse_req_t request, Service& service, const DirectoryReply& reply) {
  const int result =
      fuse_reply_buf(request, reinterpret_cast<const char*>(reply.bytes.data()), reply.bytes.size());
  if (result == 0) return;
  for (const session::NodeId node : reply.looked_up) service.inodes.forget(node, 1);
}

int errno_of_current_exception(Service& service, Operation operation) noexcept {
  try {
    throw;
  } catch (const session::CrossDevice&) {
    return EXDEV;
  } catch (const session::Error& error) {
    const int result = errno_of(error.code());
    if (result == EIO) service.report(std::string(name_of(operation)) + ": " + error.what());
    return result;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  } catch (const std::exception& error) {
    service.report(std::string("answering ") + name_of(operation) + " failed with EIO: " + error.what());
    return EIO;
  } catch (...) {
    service.report(std::string("answering ") + name_of(operation) + " failed with EIO for an unknown reason");
    return EIO;
  }
}

bool is_for_writing(int flags) noexcept { return (flags & O_ACCMODE) != O_RDONLY; }

Asker asker_of(fuse_req_t request) {
  const pid_t thread = fuse_req_ctx(request)->pid;
  if (thread == 0) return Asker::waits;
  if (::kill(thread, 0) != 0 && errno == ESRCH) return Asker::has_ended;
  std::ifstream status("/proc/" + std::to_string(thread) + "/status");
  for (std::string line; std::getline(status, line);) {
    const std::string value = line.substr(std::min(line.find('\t') + 1, line.size()));
    if (line.starts_with("State:") && (value.starts_with("Z") || value.starts_with("X"))) return Asker::has_ended;
    if (line.starts_with("SigPnd:") && (std::strtoull(value.c_str(), nullptr, 16) >> (SIGKILL - 1) & 1) != 0)
      return Asker::is_to_end;
  }
  return Asker::waits;
}

bool is_from_helper(fuse_req_t request) noexcept {
  return service_of(request).helpers.has(fuse_req_ctx(request)->pid);
}

OpenedReply opened(fuse_req_t request, Service& service, session::NodeId node, int flags, bool is_new) {
  OpenedReply reply{node, is_for_writing(flags), true, 0};
  reply.backing_id = service.open_files.open(node, {.read = (flags & O_ACCMODE) != O_WRONLY,
                                                    .write = reply.write,
                                                    .permitted = is_new || is_from_helper(request)});
  if (reply.backing_id == 0 || !reply.write || (flags & O_DSYNC) == 0) return reply;
  // The kernel will sync each write by itself, but it knows nothing of the file's name.
  try {
    service.file_system.sync_file(node);
  } catch (...) {
    service.open_files.release(node, true);
    throw;
  }
  return reply;
}

session::Caller caller_of(fuse_req_t request) noexcept {
  const fuse_ctx* context = fuse_req_ctx(request);
  return {context->uid, context->gid};
}

std::string_view component(const char* name) {
  const std::string_view result(name);
  if (result.size() > kMaxEntryName_bytes) {
    throw session::Error(session::Errc::name_too_long, "a name of more than 255 bytes: file names are at most that");
  }
  return result;
}

std::span<std::byte> reply_buffer(fuse_req_t request, std::size_t size) {
  if (const auto payload = ring_payload(request, size)) return *payload;
  return thread_buffer(size);
}

std::span<std::byte> thread_buffer(std::size_t size) {
  // Not a vector: READ fills it, so zeroing it first would be work for nothing.
  thread_local std::unique_ptr<std::byte[]> buffer;
  thread_local std::size_t capacity = 0;
  if (size > capacity) {
    buffer.reset();
    capacity = 0;
    buffer.reset(new std::byte[size]);
    capacity = size;
  }
  return {buffer.get(), size};
}

}  // namespace escrow::fuse
