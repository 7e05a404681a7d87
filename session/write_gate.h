// Decides whether a session's file system may still change: the seal of the design, section 5.
//
// A decorator over a FileSystem. `open` passes everything on; `draining` refuses new mutating calls with
// Error{read_only} but lets the kernel write back pages that are already dirty; `sealed` refuses those too. A change
// of state returns only when no call that the new state refuses is still under way, so that not one byte lands after
// move_to(sealed) has returned; calls that keep coming cannot delay it. A read-only session is one whose gate was
// sealed before it was mounted. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>

#include "session/forwarding_file_system.h"
#include "session/synchronized.h"

namespace escrow::session {

class WriteGate final : public ForwardingFileSystem {
 public:
  enum class Position { open, draining, sealed };

  // `inner` must outlive the gate.
  WriteGate(FileSystem& inner, Position position) : ForwardingFileSystem(inner), traffic_(Traffic{position}) {}

  void move_to(Position position);
  Position position() const;

  // While it lives, mutating calls wait; those under way have ended when pause() returns.
  // For changes the session makes itself (update, discard). One at a time; it must not outlive the gate.
  class Pause {
   public:
    explicit Pause(WriteGate& gate);
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    WriteGate& gate_;
  };

  // What changes something needs a pass.
  Attributes change_attributes(NodeId node, const AttributeChange& change) override;
  Attributes make_node(NodeId directory, std::string_view name, std::uint32_t mode, std::uint32_t rdev,
                       const Caller& caller) override;
  Attributes make_symlink(NodeId directory, std::string_view name, std::string_view target,
                          const Caller& caller) override;
  Attributes link(NodeId node, NodeId directory, std::string_view name) override;
  void unlink(NodeId directory, std::string_view name) override;
  void remove_directory(NodeId directory, std::string_view name) override;
  void rename(NodeId directory, std::string_view name, NodeId new_directory, std::string_view new_name,
              RenameMode mode) override;
  std::unique_ptr<RawFile> open(NodeId node, OpenIntent intent) override;
  void write(NodeId node, std::uint64_t offset, std::span<const std::byte> bytes, WriteOrigin origin) override;
  void allocate(NodeId node, AllocateMode mode, std::uint64_t offset, std::uint64_t length) override;
  void set_xattr(NodeId node, std::string_view name, std::string_view value, XattrMode mode) override;
  void remove_xattr(NodeId node, std::string_view name) override;

 private:
  struct Traffic {
    Position position;
    int pauses = 0;
    std::uint64_t calls = 0;        // mutating calls under way, without ...
    std::uint64_t write_backs = 0;  // ... the kernel's page write-backs, which draining lets through
  };
  class Pass;

  mutable Synchronized<Traffic> traffic_;
  std::condition_variable changed_;    // a call ended, or a pause did; waits under the lock of traffic_
};

}  // namespace escrow::session
