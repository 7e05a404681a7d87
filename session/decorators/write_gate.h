// Decides whether a session's file system may still change: the seal of the design, section 5.
//
// A decorator over a FileSystem. `open` passes everything on; `draining` refuses new mutating calls with
// Error{read_only} but lets the kernel write back pages that are already dirty; `sealed` refuses those too. A change
// of state returns only when no call that the new state refuses is still under way, so that not one byte lands after
// move_to(sealed) has returned; calls that keep coming cannot delay it. A read-only session is one whose gate was
// sealed before it was mounted. Where a session may stay open, calls are not refused but held back. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "session/base/synchronized.h"
#include "session/interfaces/forwarding_file_system.h"
#include "session/overlay/lost_bytes.h"

namespace escrow::session {

class WriteGate final : public ForwardingFileSystem {
 public:
  enum class Position { open, draining, sealed };

  // `inner` must outlive the gate.
  WriteGate(FileSystem& inner, Position position) : ForwardingFileSystem(inner), traffic_(Traffic{position}) {}

  void move_to(Position position);
  Position position() const;
  // Whether a mutating call would have to wait now, for who can say so instead.
  bool holds_calls_back() const;

  // While it lives, mutating calls wait; those under way have ended when it is there. The kernel may go on writing
  // pages back. It must not outlive the gate.
  class Hold {
   public:
    explicit Hold(WriteGate& gate);
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    WriteGate& gate_;
  };

  // The same, and write-backs wait, too: nothing changes but what the session changes itself (update, discard), or
  // nothing at all until it is known what became of a commit.
  class Pause {
   public:
    explicit Pause(WriteGate& gate);
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    WriteGate& gate_;
  };

  // Called whenever a call is going to wait, outside the gate's lock; what it returns lives until the call goes on.
  // Whoever serves calls may need another thread meanwhile.
  using Waiting = std::function<std::shared_ptr<void>()>;
  void when_waiting(Waiting begin_to_wait);

  // Write-backs that were refused after the seal are lost to a session that stays open: what it shows is told so, by
  // move_to(open), too.
  void count_late_pages_as_lost();

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
  void pages_lost(NodeId node, std::uint64_t offset, std::uint64_t size_bytes) override;
  void allocate(NodeId node, AllocateMode mode, std::uint64_t offset, std::uint64_t length) override;
  void set_xattr(NodeId node, std::string_view name, std::string_view value, XattrMode mode) override;
  void remove_xattr(NodeId node, std::string_view name) override;

 private:
  struct Traffic {
    Position position;
    int holds = 0, pauses = 0;
    Waiting begin_to_wait;
    std::map<NodeId, LostBytes> late;
    std::uint64_t calls = 0;        // mutating calls under way, without ...
    std::uint64_t write_backs = 0;  // ... the kernel's page write-backs, which draining lets through
  };
  class Pass;

  mutable Synchronized<Traffic> traffic_;
  std::condition_variable changed_;    // a call ended, or a pause did; waits under the lock of traffic_
};

}  // namespace escrow::session
