#include "daemon/import/interruptible_quarantine.h"

namespace escrow::daemon {

namespace {

constexpr const char* kWhat = "the import";

class BreakableSource final : public session::ByteSource {
 public:
  BreakableSource(const session::ByteSource& source, const ShutdownDeadline& stopping)
      : source_(source), stopping_(stopping) {}
  std::uint64_t size() const override { return source_.size(); }
  std::size_t read(std::uint64_t offset, std::span<std::byte> out) const override {
    stopping_.check(kWhat);
    return source_.read(offset, out);
  }

 private:
  const session::ByteSource& source_;
  const ShutdownDeadline& stopping_;
};

}  // namespace

session::ObjectId InterruptibleQuarantine::put_lfs_file(const session::ByteSource& source) {
  return quarantine_.put_lfs_file(BreakableSource(source, stopping_));
}

session::ObjectId InterruptibleQuarantine::put_blob(const session::ByteSource& source) {
  return quarantine_.put_blob(BreakableSource(source, stopping_));
}

session::ObjectId InterruptibleQuarantine::put_tree(const session::Tree& tree) {
  stopping_.check(kWhat);
  return quarantine_.put_tree(tree);
}

session::Tree InterruptibleQuarantine::read_tree(const session::ObjectId& id) const {
  stopping_.check(kWhat);
  return quarantine_.read_tree(id);
}

session::ObjectId InterruptibleQuarantine::put_commit(const session::Commit& commit) {
  stopping_.check(kWhat);
  return quarantine_.put_commit(commit);
}

}  // namespace escrow::daemon
