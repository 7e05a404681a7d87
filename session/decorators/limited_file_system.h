// Keeps what a session stages below its limits: the call that would go beyond them fails with Error{quota_exceeded}
// (EDQUOT). A decorator over a FileSystem.
//
// Bytes are those that the staging area takes of the disk, with what was removed and is not given back yet, and the
// holes of files; files are names, so each hard link is one. Both are counted anew only when what may have been added
// since the last count could reach a limit; at a limit a call may wait a tenth of a second for that. Calls under way at
// once are each counted for themselves before they are carried out, so that together they stay below. Thread-safe.
#pragma once

#include <chrono>

#include "session/base/synchronized.h"
#include "session/interfaces/forwarding_file_system.h"
#include "session/interfaces/session_record.h"
#include "session/overlay/overlay.h"

namespace escrow::session {

class LimitedFileSystem final : public ForwardingFileSystem {
 public:
  // `inner` shows `overlay`; both must outlive it.
  LimitedFileSystem(FileSystem& inner, Overlay& overlay, const SessionLimits& limits);

  Attributes change_attributes(NodeId node, const AttributeChange& change) override;
  Attributes make_node(NodeId directory, std::string_view name, std::uint32_t mode, std::uint32_t rdev,
                       const Caller& caller) override;
  Attributes make_symlink(NodeId directory, std::string_view name, std::string_view target,
                          const Caller& caller) override;
  Attributes link(NodeId node, NodeId directory, std::string_view name) override;
  std::unique_ptr<RawFile> open(NodeId node, OpenIntent intent) override;
  void write(NodeId node, std::uint64_t offset, std::span<const std::byte> bytes, WriteOrigin origin) override;
  void allocate(NodeId node, AllocateMode mode, std::uint64_t offset, std::uint64_t length) override;

 private:
  struct Room {
    std::uint64_t bytes = 0, names = 0;  // that may be added before the next count
    std::chrono::steady_clock::time_point counted, next_count;  // when it began; not before
  };
  void count(Room& room, bool reclaim);
  // Throws unless so much more may be staged.
  void take(std::uint64_t bytes, std::uint64_t names);
  // The same of bytes that are about to be written.
  void take_growth(NodeId node, std::uint64_t offset, std::uint64_t length);

  Overlay& overlay_;            // constant
  const SessionLimits limits_;  // constant
  Synchronized<Room> room_;     // held while what is staged is counted
};

}  // namespace escrow::session
