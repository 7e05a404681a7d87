// What import commits: a git tree made elsewhere, of a directory of this machine (`escrow import`) or of an archive
// that a client of the service has sent (archive_import.h).
//
// Content streams into the session's quarantine. Not thread-safe.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "daemon/import/directory_walk.h"
#include "session/transaction/session.h"
#include "session/trees/tree_walk.h"

namespace escrow::daemon {

// Keeps what a walk shows it as git trees.
class DirectoryImport final : public DirectoryVisitor {
 public:
  explicit DirectoryImport(session::Quarantine& quarantine) : quarantine_(quarantine), open_(1) {}

  void leaf(const std::string& path, session::GitMode mode, const session::ByteSource& content) override;
  void lfs_file(const std::string& path, session::GitMode mode, const session::ByteSource& content) override;
  void enter(const std::string& path) override;
  void leave(const std::string& path) override;

  // Of what was walked.
  session::TreeRoot tree();

 private:
  session::TreeRoot put(session::Tree tree);

  session::Quarantine& quarantine_;
  std::vector<session::Tree> open_;  // of the directory that is walked, and of those entered and not left
};

// Commits what `read` puts into the session's quarantine as all that the session shows, whatever its branch has there;
// what the session excludes stays as the branch has it.
// When anything throws, the session is rolled back.
session::CommitOutcome commit_import(session::Session& session, const std::function<session::TreeRoot()>& read,
                                     const std::string& message, const std::string& who);

}  // namespace escrow::daemon
