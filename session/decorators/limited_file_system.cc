#include "session/decorators/limited_file_system.h"

#include <algorithm>
#include <limits>
#include <string>
#include <thread>

#include "session/base/error.h"

namespace escrow::session {

namespace {

using std::chrono::steady_clock;

// A count that took long is not made again at once: who needs it waits.
constexpr auto kCountAtMostEvery = std::chrono::milliseconds(100);
constexpr int kPauseTimesCount = 10;
// Of the limit may be lost to staged bytes that nothing needs any more; less than this is not worth the work.
constexpr std::uint64_t kWasteShare = 64, kWasteBytes = std::uint64_t{1} << 20;

std::uint64_t room_below(std::uint64_t limit, std::uint64_t used) {
  if (limit == 0) return std::numeric_limits<std::uint64_t>::max();
  return limit > used ? limit - used : 0;
}

}  // namespace

LimitedFileSystem::LimitedFileSystem(FileSystem& inner, Overlay& overlay, const SessionLimits& limits)
    : ForwardingFileSystem(inner), overlay_(overlay), limits_(limits) {
  if (limits_.staged_bytes > 0) overlay_.limit_waste(std::max(kWasteBytes, limits_.staged_bytes / kWasteShare));
}

void LimitedFileSystem::count(Room& room, bool reclaim) {
  const auto begin = steady_clock::now();
  const Overlay::Held held = overlay_.held(reclaim);
  room.bytes = room_below(limits_.staged_bytes, held.bytes);
  room.names = room_below(limits_.files, held.names);
  const auto end = steady_clock::now();
  room.counted = begin;
  room.next_count = end + std::min<steady_clock::duration>(kCountAtMostEvery, (end - begin) * kPauseTimesCount);
}

// What was removed before the call counts as removed: so a count that began before it does not refuse it.
void LimitedFileSystem::take(std::uint64_t bytes, std::uint64_t names) {
  const auto arrived = steady_clock::now();
  auto room = room_.lock();
  const auto is_full = [&] { return room->bytes < bytes || room->names < names; };
  if (is_full() && room->counted <= arrived) {
    std::this_thread::sleep_until(room->next_count);
    count(*room, false);
    if (is_full()) count(*room, true);
  }
  if (is_full()) {
    const bool is_names = room->names < names;
    throw Error(Errc::quota_exceeded,
                (is_names ? "the session has reached its limit of " + std::to_string(limits_.files) + " files"
                          : "the session would stage more than its limit of " + std::to_string(limits_.staged_bytes) +
                                " bytes") +
                    "; remove some, or open a session with a higher limit");
  }
  room->bytes -= bytes;
  room->names -= names;
}

void LimitedFileSystem::take_growth(NodeId node, std::uint64_t offset, std::uint64_t length) {
  if (limits_.staged_bytes > 0) take(overlay_.growth(node, offset, length), 0);
}

Attributes LimitedFileSystem::change_attributes(NodeId node, const AttributeChange& change) {
  if (change.size_bytes && limits_.staged_bytes > 0) {
    const std::uint64_t size = attributes(node).size_bytes;
    if (*change.size_bytes > size) take(*change.size_bytes - size, 0);
  }
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

Attributes LimitedFileSystem::link(NodeId node, NodeId directory, std::string_view name) {
  take(0, 1);
  return ForwardingFileSystem::link(node, directory, name);
}

// What is written past this file system could not be counted; a file that is open for reading may be opened for writing
// while it is.
std::unique_ptr<RawFile> LimitedFileSystem::open(NodeId node, OpenIntent intent) {
  intent.raw = intent.raw && limits_.staged_bytes == 0;
  return ForwardingFileSystem::open(node, intent);
}

void LimitedFileSystem::write(NodeId node, std::uint64_t offset, std::span<const std::byte> bytes,
                              WriteOrigin origin) {
  take_growth(node, offset, bytes.size());
  ForwardingFileSystem::write(node, offset, bytes, origin);
}

void LimitedFileSystem::allocate(NodeId node, AllocateMode mode, std::uint64_t offset, std::uint64_t length) {
  if (mode != AllocateMode::punch_hole) {
    take_growth(node, offset, length);
  } else if (length > 0) {
    // Only the blocks at both ends of a hole are copied up.
    take_growth(node, offset, 1);
    take_growth(node, offset + length - 1, 1);
  }
  ForwardingFileSystem::allocate(node, mode, offset, length);
}

}  // namespace escrow::session
