// A session's quarantine that is filled for as long as the service lets it: once it stops (stopping.h), what puts
// anything there is broken off by Problem{unavailable}, also in the middle of a content.
//
// For putting and reading; publishing is the session's, with its own quarantine. Thread-safe as that is.
#pragma once

#include <memory>
#include <vector>

#include "daemon/stopping.h"
#include "session/object_store.h"

namespace escrow::daemon {

class BreakableQuarantine final : public session::Quarantine {
 public:
  // Both must outlive this.
  BreakableQuarantine(session::Quarantine& quarantine, const Stopping& stopping)
      : quarantine_(quarantine), stopping_(stopping) {}

  session::ObjectId put_blob(const session::ByteSource& source) override;
  session::ObjectId put_tree(const session::Tree& tree) override;
  session::ObjectId put_commit(const session::Commit& commit) override;

  session::Tree read_tree(const session::ObjectId& id) const override { return quarantine_.read_tree(id); }
  session::Commit read_commit(const session::ObjectId& id) const override { return quarantine_.read_commit(id); }
  std::uint64_t blob_size(const session::ObjectId& id) const override { return quarantine_.blob_size(id); }
  std::shared_ptr<const session::ByteSource> open_blob(const session::ObjectId& id) const override {
    return quarantine_.open_blob(id);
  }
  bool contains(const session::ObjectId& id) const override { return quarantine_.contains(id); }
  std::unique_ptr<Published> publish(const session::ObjectId& root) override { return quarantine_.publish(root); }
  void read_through(std::vector<const Quarantine*> others) override { quarantine_.read_through(std::move(others)); }
  bool holds(const session::ObjectId& id) const override { return quarantine_.holds(id); }
  void discard() override { quarantine_.discard(); }

 private:
  session::Quarantine& quarantine_;
  const Stopping& stopping_;
};

}  // namespace escrow::daemon
