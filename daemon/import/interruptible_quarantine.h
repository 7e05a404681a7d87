// A session's quarantine that can be filled until the service's shutdown deadline (shutdown_deadline.h). After that
// each put, and each read of a tree, throws Problem{unavailable}, also in the middle of a content.
//
// For putting and reading; publishing is the session's, with its own quarantine. Thread-safe as that is.
#pragma once

#include <memory>
#include <vector>

#include "daemon/process/shutdown_deadline.h"
#include "session/interfaces/object_store.h"

namespace escrow::daemon {

class InterruptibleQuarantine final : public session::Quarantine {
 public:
  // Both must outlive this.
  InterruptibleQuarantine(session::Quarantine& quarantine, const ShutdownDeadline& stopping)
      : quarantine_(quarantine), stopping_(stopping) {}

  session::ObjectId put_blob(const session::ByteSource& source) override;
  session::ObjectId put_lfs_file(const session::ByteSource& source) override;
  session::ObjectId put_tree(const session::Tree& tree) override;
  session::ObjectId put_commit(const session::Commit& commit) override;

  session::Tree read_tree(const session::ObjectId& id) const override;
  session::Commit read_commit(const session::ObjectId& id) const override { return quarantine_.read_commit(id); }
  std::uint64_t blob_size(const session::ObjectId& id) const override { return quarantine_.blob_size(id); }
  std::shared_ptr<const session::ByteSource> open_blob(const session::ObjectId& id) const override {
    return quarantine_.open_blob(id);
  }
  bool contains(const session::ObjectId& id) const override { return quarantine_.contains(id); }
  std::unique_ptr<Published> publish(const session::ObjectId& root) override { return quarantine_.publish(root); }
  void read_through(std::vector<const Quarantine*> others) override { quarantine_.read_through(std::move(others)); }
  bool holds(const session::ObjectId& id) const override { return quarantine_.holds(id); }
  std::uint64_t held_bytes() const override { return quarantine_.held_bytes(); }
  void discard() override { quarantine_.discard(); }

 private:
  session::Quarantine& quarantine_;
  const ShutdownDeadline& stopping_;
};

}  // namespace escrow::daemon
