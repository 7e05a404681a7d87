// One live session in the process that hosts it: the session, its mount, the control socket, and the order in which a
// commit or rollback brings them down.
//
// Thread-safe: requests come from the control socket's threads and from the owner. Verbs exclude one another; the
// first that ends the session decides, and one that arrives later is answered with what became of it. Destroying a
// host whose session has not ended unmounts it and leaves it open and detached.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/control_server.h"
#include "api/protocol.h"
#include "daemon/host/denial_trace.h"
#include "daemon/host/hidden_git.h"
#include "daemon/host/mount_entries.h"
#include "daemon/host/session_git.h"
#include "fuse/mount.h"
#include "session/transaction/session.h"
#include "storage/repository/repository.h"

namespace escrow::daemon {

class SessionHost {
 public:
  struct Options {
    fuse::MountOptions mount;  // `source` is filled in
    std::string io_reason;     // why mount.io is what it is
    std::string visible_root;  // the mount's path as its users see it, where that is not mount.mountpoint
    storage::Caches::Place place{};  // for the session's caches
    // Set when the session belongs to a run: a request to roll back or unmount calls this (and is answered when the
    // run has ended the session), a request to commit is refused.
    std::function<void()> cancel_run;
    std::shared_ptr<DenialTrace> trace;  // may be null
    std::optional<GitTerms> git;         // nullopt: no .git
    GitViewer git_viewer;                // whose .git it shows
  };

  // Mounts and serves from here on, under the session's policies. `repository` and `log` must outlive it.
  SessionHost(std::unique_ptr<session::Session> session, Options options, storage::Repository& repository,
              session::Log& log);
  ~SessionHost();

  session::Session& session();
  const std::string& mountpoint() const;
  api::IoView io() const;
  api::TrafficAnswer traffic() const;
  std::vector<api::MountEntryView> mounts();
  fuse::Mount& mount();
  // For people: which .git the mount hides, and how to see it; or nothing.
  std::string words_about_hidden_git() const;
  // What the mount shows, behind all that guards it.
  session::FileSystem& files();

  // Readable once the session has ended or the mount has gone away, whoever did it.
  int event_fd() const;
  bool has_ended() const;  // committed, rolled back, or sealed for a reviewer
  bool is_mounted() const;  // a copy in another mount namespace does not count once this one is unmounted

  // Before a session whose work is to be kept is taken away. Throws Error{no_space}: nothing has changed.
  void record_if_room_is_short();

  // No byte reaches the session after this returns: new changes are refused, what the kernel holds dirty is written
  // back, then the mount is taken away (detached when something still holds it). Returns a sentence naming the
  // holders, or nothing. Idempotent.
  std::string seal_and_unmount();

  // After seal_and_unmount(), for the run that owns the session.
  session::CommitOutcome finish_commit(const session::CommitRequest& request);
  void finish_rollback(session::Reason reason, std::optional<int> exit_code, const std::string& who, bool keep_result);

  // Takes the mount away and leaves the session open and detached. Returns a sentence naming holders, or nothing.
  std::string leave();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace escrow::daemon
