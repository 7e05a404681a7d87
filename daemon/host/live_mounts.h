// The mount table of a session that is mounted, changed while programs use it (`escrow mounts`, and of caches by a
// restore): first what is kept with the session, then what the mount shows, then what its kernel remembers.
//
// Everything is opened and copied before anything changes; a failure leaves the session the table that it had. One at a
// time, which the caller sees to; otherwise thread-safe. Throws Error{bad_request}, {exists}, {not_found},
// {wrong_state} for what this mount cannot show, {busy}, and what keep_mounts() throws.
#pragma once

#include <functional>

#include "api/protocol.h"
#include "daemon/host/session_stack.h"
#include "fuse/mount.h"
#include "session/base/log.h"
#include "session/transaction/session.h"
#include "storage/repository/repository.h"

namespace escrow::daemon {

// What a session has, mounted nowhere: the same without a mount.
api::MountsAnswer change_kept_mounts(const session::Session& session, storage::Repository& repository,
                                     const api::MountsRequest& request);

api::MountsAnswer change_live_mounts(const session::Session& session, storage::Repository& repository,
                                     SessionStack& stack, fuse::Mount& mount, session::Log& log,
                                     const api::MountsRequest& request);

// change_savepoints() of a session that is mounted nowhere, and of one that is. Caches that a restore drops
// (storage::Caches::drop_changes()) begin anew in the mount, too, also when the restore fails after that; if they
// cannot, the warning or the log says so. Of the older ones those go that nobody has open any more, behind `is_cut`.
api::SavepointsAnswer change_kept_savepoints(session::Session& session, storage::Repository& repository,
                                             session::Log& log, const api::SavepointRequest& request);

api::SavepointsAnswer change_live_savepoints(session::Session& session, storage::Repository& repository,
                                             SessionStack& stack, fuse::Mount& mount, session::Log& log,
                                             const api::SavepointRequest& request,
                                             const std::function<void()>& is_cut);

}  // namespace escrow::daemon
