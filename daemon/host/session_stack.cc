#include "daemon/host/session_stack.h"

#include <utility>

#include "daemon/host/policy_files.h"

namespace escrow::daemon {

namespace {

std::unique_ptr<session::LimitedFileSystem> limited_file_system(session::Session& session) {
  const session::SessionLimits& limits = session.record().options.limits;
  if (limits.staged_bytes == 0 && limits.files == 0) return nullptr;
  return std::make_unique<session::LimitedFileSystem>(session.file_system(), session.overlay(), limits);
}

}  // namespace

SessionStack::SessionStack(session::Session& session, storage::Repository& repository, session::Log& log,
                           const std::optional<session::ContainedLinks::Roots>& roots,
                           const std::vector<MountEntry>& entries, const std::optional<GitTerms>& git,
                           std::function<void(const std::vector<session::TracedDenial>&)> trace)
    : session_(session),
      entries_(entries),
      denials_(session.id(), repository.catalog(), clock_, log, std::move(trace)),
      policy_(compile_policies(session.record().options.policies)),
      limited_(limited_file_system(session)),
      git_(git ? std::make_unique<GitInside>(limited(), session, repository, log, *git) : nullptr),
      table_(make_mount_table(entries, versioned(), session, repository.caches())) {
  const session::SessionOptions options = session.record().options;
  if (options.contained_symlinks && roots) {
    links_ = std::make_unique<session::ContainedLinks>(
        tabled(), [this](session::NodeId node) { return names(node).paths; }, *roots, denials_);
  }
  if (policy_) {
    policed_ = std::make_unique<session::PolicedFileSystem>(
        contained(), [this](session::NodeId node) { return names(node); }, options.prefix.text(), *policy_, denials_);
  }
}

session::FileSystem& SessionStack::limited() {
  if (limited_) return *limited_;
  return session_.file_system();
}

session::FileSystem& SessionStack::versioned() {
  if (git_) return *git_;
  return limited();
}

session::FileSystem& SessionStack::tabled() {
  if (table_) return *table_;
  return versioned();
}

session::FileSystem& SessionStack::contained() {
  if (links_) return *links_;
  return tabled();
}

session::Overlay::Names SessionStack::names(session::NodeId node) const {
  return table_ ? table_->names(node) : session_.overlay().names(node);
}

std::vector<api::MountEntryView> SessionStack::mounts() const { return views_of(entries_, table_.get()); }

std::function<bool(session::NodeId)> SessionStack::volatile_nodes() const {
  if (!table_) return {};
  return [this](session::NodeId node) { return table_->is_volatile(node); };
}

std::vector<session::NodeId> SessionStack::held_files() const {
  std::vector<session::NodeId> held = session_.overlay().held_files();
  if (!table_) return held;
  const std::vector<session::NodeId> beside = table_->held_files();
  held.insert(held.end(), beside.begin(), beside.end());
  return held;
}

session::FileSystem& SessionStack::files() {
  if (policed_) return *policed_;
  return contained();
}

}  // namespace escrow::daemon
