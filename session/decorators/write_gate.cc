#include "session/decorators/write_gate.h"

#include <utility>

#include "session/base/error.h"

namespace escrow::session {
namespace {

void refuse_unless(bool allowed) {
  if (!allowed) throw Error(Errc::read_only, "the session takes no more changes: it is sealed or read-only");
}

}  // namespace

// Held for the whole of a mutating call. Throws Error{read_only} when the gate does not let it in.
class WriteGate::Pass {
 public:
  explicit Pass(WriteGate& gate, WriteOrigin origin = WriteOrigin::call) : gate_(gate), origin_(origin) {
    auto traffic = gate_.traffic_.lock();
    const auto may_go_on = [&] {
      return traffic->pauses == 0 && (traffic->holds == 0 || origin == WriteOrigin::page_cache);
    };
    std::shared_ptr<void> waiting;
    if (!may_go_on() && traffic->begin_to_wait) {
      const Waiting begin_to_wait = traffic->begin_to_wait;
      traffic.lock().unlock();
      waiting = begin_to_wait();
      traffic.lock().lock();
    }
    gate_.changed_.wait(traffic.lock(), may_go_on);
    const bool allowed = traffic->position == Position::open ||
                         (traffic->position == Position::draining && origin == WriteOrigin::page_cache);
    refuse_unless(allowed);
    ++count(*traffic);
  }
  ~Pass() {
    {
      auto traffic = gate_.traffic_.lock();
      if (--count(*traffic) != 0) return;
    }
    gate_.changed_.notify_all();
  }
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

 private:
  std::uint64_t& count(Traffic& traffic) const {
    return origin_ == WriteOrigin::call ? traffic.calls : traffic.write_backs;
  }

  WriteGate& gate_;
  const WriteOrigin origin_;
};

WriteGate::Hold::Hold(WriteGate& gate) : gate_(gate) {
  auto traffic = gate_.traffic_.lock();
  ++traffic->holds;
  gate_.changed_.wait(traffic.lock(), [&] { return traffic->calls == 0; });
}

WriteGate::Hold::~Hold() {
  --gate_.traffic_.lock()->holds;
  gate_.changed_.notify_all();
}

WriteGate::Pause::Pause(WriteGate& gate) : gate_(gate) {
  auto traffic = gate_.traffic_.lock();
  ++traffic->pauses;
  gate_.changed_.wait(traffic.lock(), [&] { return traffic->calls == 0 && traffic->write_backs == 0; });
}

WriteGate::Pause::~Pause() {
  --gate_.traffic_.lock()->pauses;
  gate_.changed_.notify_all();
}

void WriteGate::when_waiting(Waiting begin_to_wait) { traffic_.lock()->begin_to_wait = std::move(begin_to_wait); }

void WriteGate::count_late_pages_as_lost() {
  std::map<NodeId, LostBytes> late;
  late.swap(traffic_.lock()->late);
  for (const auto& [node, lost] : late) {
    for (const auto& [begin, end] : lost.ranges()) ForwardingFileSystem::pages_lost(node, begin, end - begin);
  }
}

void WriteGate::move_to(Position position) {
  {
    auto traffic = traffic_.lock();
    traffic->position = position;
    changed_.notify_all();
    changed_.wait(traffic.lock(), [&] {
      // Another thread may have moved the gate on; then its wait is the one that counts.
      if (traffic->position != position || position == Position::open) return true;
      return traffic->calls == 0 && (position == Position::draining || traffic->write_backs == 0);
    });
  }
  // Those of now on are told at once.
  if (position == Position::open) count_late_pages_as_lost();
}

WriteGate::Position WriteGate::position() const { return traffic_.lock()->position; }

bool WriteGate::holds_calls_back() const {
  const auto traffic = traffic_.lock();
  return traffic->holds > 0 || traffic->pauses > 0;
}

// What changes something needs a pass.

Attributes WriteGate::change_attributes(NodeId node, const AttributeChange& change) {
  const Pass pass(*this, change.origin);
  return ForwardingFileSystem::change_attributes(node, change);
}

Attributes WriteGate::make_node(NodeId directory, std::string_view name, std::uint32_t mode, std::uint32_t rdev,
                                const Caller& caller) {
  const Pass pass(*this);
  return ForwardingFileSystem::make_node(directory, name, mode, rdev, caller);
}

Attributes WriteGate::make_symlink(NodeId directory, std::string_view name, std::string_view target,
                                   const Caller& caller) {
  const Pass pass(*this);
  return ForwardingFileSystem::make_symlink(directory, name, target, caller);
}

Attributes WriteGate::link(NodeId node, NodeId directory, std::string_view name) {
  const Pass pass(*this);
  return ForwardingFileSystem::link(node, directory, name);
}

void WriteGate::unlink(NodeId directory, std::string_view name) {
  const Pass pass(*this);
  ForwardingFileSystem::unlink(directory, name);
}

void WriteGate::remove_directory(NodeId directory, std::string_view name) {
  const Pass pass(*this);
  ForwardingFileSystem::remove_directory(directory, name);
}

void WriteGate::rename(NodeId directory, std::string_view name, NodeId new_directory, std::string_view new_name,
                       RenameMode mode) {
  const Pass pass(*this);
  ForwardingFileSystem::rename(directory, name, new_directory, new_name, mode);
}

std::unique_ptr<RawFile> WriteGate::open(NodeId node, OpenIntent intent) {
  if (!intent.write) return ForwardingFileSystem::open(node, intent);
  // To be open changes nothing: the writes that follow wait. Only a file of its own can be written past this gate.
  if (!intent.raw) {
    refuse_unless(position() == Position::open);
    return ForwardingFileSystem::open(node, intent);
  }
  const Pass pass(*this);
  return ForwardingFileSystem::open(node, intent);
}

void WriteGate::write(NodeId node, std::uint64_t offset, std::span<const std::byte> bytes, WriteOrigin origin) {
  const Pass pass(*this, origin);
  ForwardingFileSystem::write(node, offset, bytes, origin);
}

// What comes after the seal is not the session's, unless it goes on.
void WriteGate::pages_lost(NodeId node, std::uint64_t offset, std::uint64_t size_bytes) {
  {
    auto traffic = traffic_.lock();
    if (traffic->position == Position::sealed) {
      traffic->late[node].add(offset, offset + size_bytes);
      return;
    }
  }
  ForwardingFileSystem::pages_lost(node, offset, size_bytes);
}

void WriteGate::allocate(NodeId node, AllocateMode mode, std::uint64_t offset, std::uint64_t length) {
  const Pass pass(*this);
  ForwardingFileSystem::allocate(node, mode, offset, length);
}

void WriteGate::set_xattr(NodeId node, std::string_view name, std::string_view value, XattrMode mode) {
  const Pass pass(*this);
  ForwardingFileSystem::set_xattr(node, name, value, mode);
}

void WriteGate::remove_xattr(NodeId node, std::string_view name) {
  const Pass pass(*this);
  ForwardingFileSystem::remove_xattr(node, name);
}

}  // namespace escrow::session
