// The way of every call on a session's files in the process that hosts it, from the outside in: what its policies
// allow, links that stay inside, its mount table, and of the repository its limits, the write gate, the overlay. A
// mount's requests and the API's take it.
//
// Thread-safe. Destroying it flushes its denials.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/host/git_inside.h"
#include "daemon/host/mount_entries.h"
#include "session/base/clock.h"
#include "session/decorators/access_policy.h"
#include "session/decorators/contained_links.h"
#include "session/decorators/denial_log.h"
#include "session/decorators/limited_file_system.h"
#include "session/decorators/mount_table.h"
#include "session/decorators/policed_file_system.h"
#include "session/transaction/session.h"

namespace escrow::daemon {

class SessionStack {
 public:
  // All must outlive it. `roots`: where its mount is, for a session whose links must not lead out; `entries`: what it
  // shows beside the repository; `git`: of a session that has a .git; `trace` may be empty.
  SessionStack(session::Session& session, storage::Repository& repository, session::Log& log,
               const std::optional<session::ContainedLinks::Roots>& roots,
               const std::vector<MountEntry>& entries, const std::optional<GitTerms>& git,
               std::function<void(const std::vector<session::TracedDenial>&)> trace);

  session::FileSystem& files();
  session::DenialLog& denials() { return denials_; }
  const session::AccessPolicy* policy() const { return policy_.get(); }  // null: none
  std::vector<api::MountEntryView> mounts() const;                        // beside the repository
  std::function<bool(session::NodeId)> volatile_nodes() const;  // for MountOptions
  session::Overlay::Names names(session::NodeId node) const;
  std::vector<session::NodeId> held_files() const;  // that can be written to

 private:
  session::FileSystem& limited();
  session::FileSystem& versioned();
  session::FileSystem& tabled();
  session::FileSystem& contained();

  session::Session& session_;  // constant, as the pointers; self-locking
  const std::vector<MountEntry>& entries_;
  session::SystemClock clock_;
  session::DenialLog denials_;
  const std::unique_ptr<session::AccessPolicy> policy_;
  const std::unique_ptr<session::LimitedFileSystem> limited_;  // null without limits
  const std::unique_ptr<GitInside> git_;                       // null: no .git
  const std::unique_ptr<session::MountTable> table_;           // null: the repository is all there is
  std::unique_ptr<session::ContainedLinks> links_;             // null: links may lead anywhere
  std::unique_ptr<session::PolicedFileSystem> policed_;        // null without a policy
};

}  // namespace escrow::daemon
