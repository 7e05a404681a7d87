// The way of every call on a session's files in the process that hosts it, from the outside in: what its policies
// allow, links that stay inside, what hides the .git of others, its mount table, and of the repository its limits, the
// record of what is read, the write gate, the overlay. A mount's requests and the API's take it.
//
// Thread-safe. Destroying it flushes its denials.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/host/git_inside.h"
#include "daemon/host/hidden_git.h"
#include "daemon/host/mount_entries.h"
#include "session/base/clock.h"
#include "session/base/synchronized.h"
#include "session/decorators/access_policy.h"
#include "session/decorators/contained_links.h"
#include "session/decorators/denial_log.h"
#include "session/decorators/limited_file_system.h"
#include "session/decorators/mount_table.h"
#include "session/decorators/policed_file_system.h"
#include "session/decorators/read_set_file_system.h"
#include "session/transaction/session.h"

namespace escrow::daemon {

class SessionStack {
 public:
  // All must outlive it. `roots`: where its mount is, for a session whose links must not lead out; `entries`: what it
  // shows beside the repository, with its sources open; `place`: of its mount; `git`: of a session that has a .git;
  // `viewer`: for whom it is; nullopt: no program sees it, and then no .git is hidden, nor made; `trace` may be
  // empty.
  SessionStack(session::Session& session, storage::Repository& repository, session::Log& log,
               const std::optional<session::ContainedLinks::Roots>& roots,
               std::vector<MountEntry> entries, storage::Caches::Place place, const std::optional<GitTerms>& git,
               const std::optional<GitViewer>& viewer,
               std::function<void(const std::vector<session::TracedDenial>&)> trace);

  session::FileSystem& files();
  session::DenialLog& denials() { return denials_; }
  const session::AccessPolicy* policy() const { return policy_.get(); }  // null: none
  std::vector<api::MountEntryView> mounts() const;                        // beside the repository
  std::vector<MountEntry> entries() const;
  storage::Caches::Place place() const { return place_; }
  const std::optional<std::string>& hand() const { return hand_; }  // as Caches::open() wants it
  // Makes these the whole table: see MountTable::replace().
  std::vector<session::Overlay::Stale> replace_entries(std::vector<MountEntry> entries);
  // Also lets go of entries that have left and of which nothing is open.
  void close_departed();
  // The copies (MountEntrySpec::content) and caches of entries that have left, and of which something is open still.
  struct Departed {
    std::set<std::string> contents, caches;
  };
  Departed departed();
  std::function<bool(session::NodeId)> volatile_nodes() const;  // for MountOptions
  session::Overlay::Names names(session::NodeId node) const;
  std::vector<session::NodeId> held_files() const;  // that can be written to
  std::string words_about_hidden_git() const;       // describe_hidden_git()

 private:
  session::FileSystem& recorded();
  session::FileSystem& limited();
  session::FileSystem& versioned();
  session::FileSystem& tabled();
  session::FileSystem& without_git_of_others();
  session::FileSystem& contained();

  session::Session& session_;  // constant, as the next and the pointers; self-locking
  const storage::Caches::Place place_;
  const std::optional<std::string> hand_;
  struct Left {
    std::weak_ptr<session::EntryFileSystem> files;
    std::string content, cache;
  };
  struct Entries {
    std::vector<MountEntry> there;
    std::vector<Left> left;
  };
  session::SharedSynchronized<Entries> entries_;  // a leaf
  session::SystemClock clock_;
  session::DenialLog denials_;
  const std::unique_ptr<session::AccessPolicy> policy_;
  const std::unique_ptr<session::ReadSetFileSystem> recorded_;  // null: what is read does not matter
  const std::unique_ptr<session::LimitedFileSystem> limited_;  // null without limits
  const std::unique_ptr<GitInside> git_;                       // null: no .git
  const std::unique_ptr<session::MountTable> table_;
  const std::unique_ptr<HiddenGit> hidden_;                    // null: nothing is hidden
  std::unique_ptr<session::ContainedLinks> links_;             // null: links may lead anywhere
  std::unique_ptr<session::PolicedFileSystem> policed_;        // null without a policy
};

}  // namespace escrow::daemon
