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

SessionStack::SessionStack(session::Session& session, session::SessionCatalog& catalog, session::Log& log,
                           const std::optional<session::ContainedLinks::Roots>& roots,
                           std::function<void(const std::vector<session::TracedDenial>&)> trace)
    : session_(session),
      denials_(session.id(), catalog, clock_, log, std::move(trace)),
      policy_(compile_policies(session.record().options.policies)),
      limited_(limited_file_system(session)) {
  const session::SessionOptions options = session.record().options;
  if (options.contained_symlinks && roots) {
    links_ = std::make_unique<session::ContainedLinks>(
        limited(), [this](session::NodeId node) { return session_.overlay().names(node).paths; }, *roots, denials_);
  }
  if (policy_) {
    policed_ = std::make_unique<session::PolicedFileSystem>(contained(), session_.overlay(), options.prefix.text(),
                                                            *policy_, denials_);
  }
}

session::FileSystem& SessionStack::limited() {
  if (limited_) return *limited_;
  return session_.file_system();
}

session::FileSystem& SessionStack::contained() {
  if (links_) return *links_;
  return limited();
}

session::FileSystem& SessionStack::files() {
  if (policed_) return *policed_;
  return contained();
}

}  // namespace escrow::daemon
