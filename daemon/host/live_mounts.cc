#include "daemon/host/live_mounts.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "daemon/host/kept_mounts.h"
#include "daemon/host/session_verbs.h"
#include "session/base/error.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;

namespace {

// The kernel keeps the options of a mount for as long as the mount lives.
void require_shown(const fuse::IoMode& io, const MountEntrySpec& spec) {
  const auto refuse = [&spec](const std::string& why) {
    throw Error(Errc::wrong_state, "the entry '" + session::quote_path(spec.path.text()) +
                                       "' cannot be added to this mount: " + why +
                                       "; unmount the session, and mount it again with the entry");
  };
  const bool reaches_all = io.opens == fuse::Opens::daemon && io.listings == fuse::Opens::daemon;
  if (spec.is_volatile() && !reaches_all)
    refuse("of a host directory, each open has to be asked for (--opens daemon)");
  if (io.data != fuse::Data::writeback) return;
  if (spec.is_volatile()) refuse("the write-back cache would not see what others write there");
  if (spec.limits.write_bytes != 0) refuse("with the write-back cache, a limit of bytes would be told too late");
  if (spec.read_only && !reaches_all) refuse("with the write-back cache, a refusal to write would be told too late");
}

// `fresh`: the one that is opened; the others stay as they are.
std::vector<MountEntry> opened(const KeptMounts& mounts, const std::optional<session::RepoPath>& fresh,
                               const session::Session& session, const storage::Repository& repository,
                               SessionStack& stack) {
  const std::vector<MountEntry> there = stack.entries();
  const SessionStack::Departed departed = stack.departed();
  std::vector<MountEntry> entries;
  for (const MountEntrySpec& spec : mounts.entries) {
    const auto same = std::find_if(there.begin(), there.end(),
                                   [&spec](const MountEntry& entry) { return entry.spec.path == spec.path; });
    if (same != there.end() && spec.path != fresh) {
      entries.push_back({.spec = spec, .files = same->files});
      continue;
    }
    const bool is_open = std::any_of(there.begin(), there.end(), [&spec](const MountEntry& entry) {
      return !spec.cache.empty() && entry.spec.cache == spec.cache;
    });
    if (is_open || (!spec.cache.empty() && departed.caches.contains(spec.cache))) {
      throw Error(Errc::busy, "the cache '" + session::quote_path(spec.cache) +
                                  "' is in use where the session had it; remove it there, let programs close its "
                                  "files, and try again");
    }
    entries.push_back({.spec = spec, .files = open_entry(spec, session, repository, stack.place(), stack.hand())});
  }
  // The repository's own objects stay where they are.
  for (const MountEntry& entry : there)
    if (entry.spec.path.text() == kObjectsInMount) entries.push_back(entry);
  std::vector<session::RepoPath> paths;
  for (const MountEntry& entry : entries) paths.push_back(entry.spec.path);
  session::MountTable::check_paths(paths);
  return entries;
}

void tell_kernel(fuse::Mount& mount, session::Log& log, const std::vector<session::Overlay::Stale>& stale) try {
  if (!mount.is_mounted()) return;
  std::vector<fuse::NameInDirectory> names;
  for (const session::Overlay::Stale& name : stale) names.push_back({name.directory, name.name});
  mount.invalidate(names);
} catch (const Error& error) {
  log.write(session::LogLevel::error,
            std::string("the mount may go on showing entries that were replaced until it is unmounted: ") +
                error.what());
}

// Those that stay go with the next restore, or with the session.
void remove_dropped_caches(const session::Session& session, const storage::Repository& repository,
                           session::Log& log) try {
  repository.caches().remove_dropped(session.directory());
} catch (const Error& error) {
  log.write(session::LogLevel::warning, std::string("caches that a restore dropped take room still: ") + error.what());
}

// Returns one sentence on caches that cannot be shown as they begin anew, or nothing.
std::string show_dropped_caches(const session::Session& session, storage::Repository& repository, SessionStack& stack,
                                fuse::Mount& mount, session::Log& log) try {
  std::vector<MountEntry> entries = stack.entries();
  bool is_changed = false;
  for (MountEntry& entry : entries) {
    const std::string& cache = entry.spec.cache;
    if (cache.empty() || storage::Caches::has(session.directory(), cache)) continue;
    entry.files = open_entry(entry.spec, session, repository, stack.place(), stack.hand(), entry.files.get());
    is_changed = true;
  }
  if (!is_changed) return {};
  tell_kernel(mount, log, stack.replace_entries(std::move(entries)));
  stack.close_departed();
  return {};
} catch (const Error& error) {
  return std::string("the mount goes on showing caches that were dropped, of which nothing is published; unmount the "
                     "session, and mount it again: ") +
         error.what();
}

}  // namespace

api::MountsAnswer change_kept_mounts(const session::Session& session, storage::Repository& repository,
                                     const api::MountsRequest& request) {
  KeptMounts mounts = kept_mounts(session.directory());
  if (request.verb != api::MountsVerb::list) {
    change_mounts(mounts, request);
    mounts = keep_mounts(session.directory(), std::move(mounts), session.record().options, repository);
  }
  return {views_of(mounts.entries, nullptr)};
}

api::MountsAnswer change_live_mounts(const session::Session& session, storage::Repository& repository,
                                     SessionStack& stack, fuse::Mount& mount, session::Log& log,
                                     const api::MountsRequest& request) {
  if (request.verb == api::MountsVerb::list) return {stack.mounts()};
  const session::SessionOptions options = session.record().options;
  const KeptMounts before = kept_mounts(session.directory());
  KeptMounts wanted = before;
  change_mounts(wanted, request);
  std::optional<session::RepoPath> fresh;
  if (request.verb != api::MountsVerb::remove) {
    require_shown(mount.io(), wanted.entries.back());
    fresh = wanted.entries.back().path;
  }
  std::set<std::string> in_use = stack.departed().contents;
  for (const MountEntrySpec& spec : before.entries) in_use.insert(spec.content);
  wanted = keep_mounts(session.directory(), std::move(wanted), options, repository, in_use);
  std::vector<session::Overlay::Stale> stale;
  try {
    stale = stack.replace_entries(opened(wanted, fresh, session, repository, stack));
  } catch (...) {
    keep_mounts(session.directory(), before, options, repository, stack.departed().contents);
    throw;
  }
  tell_kernel(mount, log, stale);
  stack.close_departed();
  try {
    leave_other_caches(session, wanted, repository);
  } catch (const Error& error) {
    log.write(session::LogLevel::warning, std::string("a cache that was taken out of the session is still refused to "
                                                      "others; mount the session again to let it go: ") +
                                              error.what());
  }
  note_mounts(session.directory(), stack.mounts());
  return {stack.mounts()};
}

api::SavepointsAnswer change_kept_savepoints(session::Session& session, storage::Repository& repository,
                                             session::Log& log, const api::SavepointRequest& request) {
  api::SavepointsAnswer answer = change_savepoints(session, request);
  if (request.verb == api::SavepointVerb::restore) remove_dropped_caches(session, repository, log);
  return answer;
}

api::SavepointsAnswer change_live_savepoints(session::Session& session, storage::Repository& repository,
                                             SessionStack& stack, fuse::Mount& mount, session::Log& log,
                                             const api::SavepointRequest& request,
                                             const std::function<void()>& is_cut) {
  if (request.verb != api::SavepointVerb::restore) return change_savepoints(session, request, is_cut);
  const auto show_caches = [&] {
    is_cut();
    return show_dropped_caches(session, repository, stack, mount, log);
  };
  try {
    api::SavepointsAnswer answer = change_savepoints(session, request);
    const std::string failed = show_caches();
    if (!failed.empty()) answer.warning += (answer.warning.empty() ? "" : "; ") + failed;
    remove_dropped_caches(session, repository, log);
    return answer;
  } catch (const Error&) {
    const std::string failed = show_caches();
    if (!failed.empty()) log.write(session::LogLevel::error, failed);
    throw;
  }
}

}  // namespace escrow::daemon
