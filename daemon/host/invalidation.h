// Made before a verb changes a session that is mounted; its end tells the kernel what changed, whether the verb
// succeeded or not. A kernel that cannot be told shows the change late, and the log says so. Throws nothing.
#pragma once

#include "fuse/mount.h"
#include "session/base/log.h"
#include "session/transaction/session.h"

namespace escrow::daemon {

class Invalidation {
 public:
  // All must outlive it.
  Invalidation(session::Session& session, fuse::Mount& mount, session::Log& log)
      : session_(session), mount_(mount), log_(log) {}
  ~Invalidation();
  Invalidation(const Invalidation&) = delete;
  Invalidation& operator=(const Invalidation&) = delete;

 private:
  session::Session& session_;
  fuse::Mount& mount_;
  session::Log& log_;
};

}  // namespace escrow::daemon
