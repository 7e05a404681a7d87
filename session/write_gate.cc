#include "session/write_gate.h"

#include "session/error.h"

namespace escrow::session {

// Held for the whole of a mutating call. Throws Error{read_only} when the gate does not let it in.
class WriteGate::Pass {
 public:
  explicit Pass(WriteGate& gate, WriteOrigin origin = WriteOrigin::call) : gate_(gate), origin_(origin) {
    auto traffic = gate_.traffic_.lock();
    gate_.changed_.wait(traffic.lock(), [&] { return traffic->pauses == 0; });
    const bool allowed = traffic->position == Position::open ||
                         (traffic->position == Position::draining && origin == WriteOrigin::page_cache);
    if (!allowed) throw Error(Errc::read_only, "the session takes no more changes: it is sealed or read-only");
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

WriteGate::Pause::Pause(WriteGate& gate) : gate_(gate) {
  auto traffic = gate_.traffic_.lock();
  ++traffic->pauses;
  gate_.changed_.wait(traffic.lock(), [&] { return traffic->calls == 0 && traffic->write_backs == 0; });
}

WriteGate::Pause::~Pause() {
  --gate_.traffic_.lock()->pauses;
  gate_.changed_.notify_all();
}

void WriteGate::move_to(Position position) {
  auto traffic = traffic_.lock();
  traffic->position = position;
  changed_.notify_all();
  changed_.wait(traffic.lock(), [&] {
    // Another thread may have moved the gate on; then its wait is the one that counts.
    if (traffic->position != position || position == Position::open) return true;
    return traffic->calls == 0 && (position == Position::draining || traffic->write_backs == 0);
  });
}

WriteGate::Position WriteGate::position() const { return traffic_.lock()->position; }

// What changes something needs a pass.

Attributes WriteGate::change_attributes(NodeId node, const AttributeChange& change) {
  const Pass pass(*this);
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
  const Pass pass(*this);
  return ForwardingFileSystem::open(node, intent);
}

void WriteGate::write(NodeId node, std::uint64_t offset, std::span<const std::byte> bytes, WriteOrigin origin) {
  const Pass pass(*this, origin);
  ForwardingFileSystem::write(node, offset, bytes, origin);
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
