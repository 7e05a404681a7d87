// The .git directory of a session (session_git.h): a decorator over the session's files that makes it when a program
// first looks for it, so that a session in which nobody does costs nothing.
//
// HEAD is the session's branch at its base, the other branches are refs/remotes/origin/*, and the objects of the
// repository are borrowed (objects/info/alternates), so git writes nothing there. The index, which reads every tree of
// the base, is made when it is first looked for: it says that the work tree is the base's, with the times that the
// mount shows. The directory answers to its name and is not listed at the root, so that copies and listings of the
// session are of the work tree; one that the session removed does not come back while it is mounted.
//
// Thread-safe. A lookup that makes it waits at the write gate like any change. What cannot be made is not there, and
// the log says why. Sources: gitrepository-layout(5), git-config(1), git-pack-refs(1).
#pragma once

#include <atomic>
#include <string>
#include <variant>

#include "daemon/host/session_git.h"
#include "session/base/synchronized.h"
#include "session/interfaces/forwarding_file_system.h"

namespace escrow::daemon {

class GitInside final : public session::ForwardingFileSystem {
 public:
  // `inner` is what guards the session's files; all must outlive it. `hand`: for whom the mount is (hidden_git.h). One
  // that was made for another stays as it is.
  GitInside(session::FileSystem& inner, session::Session& session, const storage::Repository& repository,
            session::Log& log, GitTerms terms, std::string hand);

  std::optional<session::Attributes> lookup(session::NodeId directory, std::string_view name) override;
  std::optional<session::Attributes> own_lookup(session::NodeId directory, std::string_view name) override;
  void unlink(session::NodeId directory, std::string_view name) override;
  void remove_directory(session::NodeId directory, std::string_view name) override;
  void rename(session::NodeId directory, std::string_view name, session::NodeId new_directory,
              std::string_view new_name, session::RenameMode mode) override;
  void list(session::NodeId directory, std::uint64_t cookie,
            const std::function<bool(const session::FileSystem::Entry&)>& visit) override;

 private:
  using Inner = ForwardingFileSystem;

  bool is_own(session::NodeId directory) const { return directory.value == own_.load(); }
  void be_ready_for(session::NodeId directory, std::string_view name);
  void make_directory();
  void make_index();
  bool adopt();
  void forget(session::NodeId directory, std::string_view name);
  session::FileSystem& files();

  session::Session& session_;              // constant; self-locking
  const storage::Repository& repository_;  // constant; self-locking
  session::Log& log_;                      // constant; self-locking
  const GitTerms terms_;
  const std::string hand_;
  session::Synchronized<std::monostate> making_;  // one makes it; no lock is taken before it, and it waits at the gate
  std::atomic<std::uint64_t> own_ = 0;    // the node of the directory; 0: it is not known
  std::atomic<bool> is_removed_ = false, is_index_removed_ = false;  // by the session
};

}  // namespace escrow::daemon
