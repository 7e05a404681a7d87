#include "session/limited_file_system.h"

#include <algorithm>
#include <limits>
#include <string>

#include "session/error.h"

namespace escrow::session {

namespace {

constexpr auto kCountEvery = std::chrono::milliseconds(100);

std::uint64_t room_below(std::uint64_t limit, std::uint64_t used) {
  if (limit == 0) return std::numeric_limits<std::uint64_t>::max();
  return limit > used ? limit - used : 0;
}

}  // namespace

void LimitedFileSystem::take(std::uint64_t bytes, std::uint64_t files) {
  auto room = room_.lock();
  if (room->bytes < bytes || room->files < files) {
    const auto now = std::chrono::steady_clock::now();
    if (now - room->counted >= kCountEvery) {
      const Overlay::Usage used = overlay_.usage();
      *room = {room_below(limits_.staged_bytes, used.staged_bytes), room_below(limits_.files, used.staged_nodes), now};
    }
    if (room->bytes < bytes || room->files < files) {
      throw Error(Errc::quota_exceeded, room->files < files
                                            ? "the session has reached its limit of " + std::to_string(limits_.files) +
                                                  " files; remove some, or open a session with a higher limit"
                                            : "the session would stage more than its limit of " +
                                                  std::to_string(limits_.staged_bytes) +
                                                  " bytes; remove some, or open a session with a higher limit");
    }
  }
  room->bytes -= bytes;
  room->files -= files;
}

// A file that is not staged yet counts whole from its first change.
std::uint64_t LimitedFileSystem::growth(NodeId node, std::uint64_t end) {
  if (limits_.staged_bytes == 0) return 0;
  const std::uint64_t size = attributes(node).size_bytes;
  if (!overlay_.is_staged(node)) return std::max(size, end);
  return end > size ? end - size : 0;
}

Attributes LimitedFileSystem::change_attributes(NodeId node, const AttributeChange& change) {
  if (change.size_bytes) take(growth(node, *change.size_bytes), 0);
  return ForwardingFileSystem::change_attributes(node, change);
}

Attributes LimitedFileSystem::make_node(NodeId directory, std::string_view name, std::uint32_t mode,
                                        std::uint32_t rdev, const Caller& caller) {
  take(0, 1);
  return ForwardingFileSystem::make_node(directory, name, mode, rdev, caller);
}

Attributes LimitedFileSystem::make_symlink(NodeId directory, std::string_view name, std::string_view target,
                                           const Caller& caller) {
  take(0, 1);
  return ForwardingFileSystem::make_symlink(directory, name, target, caller);
}

// What is written past this file system could not be counted.
std::unique_ptr<RawFile> LimitedFileSystem::open(NodeId node, OpenIntent intent) {
  intent.raw = intent.raw && !intent.write;
  return ForwardingFileSystem::open(node, intent);
}

void LimitedFileSystem::write(NodeId node, std::uint64_t offset, std::span<const std::byte> bytes,
                              WriteOrigin origin) {
  take(growth(node, offset + bytes.size()), 0);
  ForwardingFileSystem::write(node, offset, bytes, origin);
}

void LimitedFileSystem::allocate(NodeId node, AllocateMode mode, std::uint64_t offset, std::uint64_t length) {
  if (mode != AllocateMode::punch_hole) take(growth(node, offset + length), 0);
  ForwardingFileSystem::allocate(node, mode, offset, length);
}

}  // namespace escrow::session
