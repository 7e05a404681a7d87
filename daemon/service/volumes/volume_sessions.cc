#include "daemon/service/volumes/volume_sessions.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "api/problem.h"
#include "daemon/host/config.h"
#include "daemon/host/mountpoint.h"
#include "daemon/host/session_access.h"
#include "session/base/repo_path.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;
using session::LogLevel;
using session::Reason;
using session::SessionRecord;
using session::State;
using Mount = storage::VolumeStore::Mount;

namespace {

constexpr std::size_t kShownConflicts = 10;

// Whoever may open the plugin's socket is root: the runtimes.
Caller service_caller() {
  return {.principal = principal_of(::geteuid()), .uid = ::geteuid(), .gid = ::getegid(), .has_our_rights = true,
          .is_operator = true};
}

void make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return;
  throw Error(errno == ENOSPC ? Errc::no_space : Errc::unavailable,
              "cannot make the directory " + path + ": " + std::strerror(errno));
}

bool is_over(const SessionRecord& record) {
  return session::is_final(record.state) || record.state == State::awaiting_approval;
}

}  // namespace

// One thread ends a session; the others wait.
class VolumeSessions::SessionTryLock {
 public:
  SessionTryLock(VolumeSessions& sessions, session::SessionId id) : sessions_(sessions), id_(std::move(id)) {
    auto held = sessions_.ending_.lock();
    sessions_.ended_.wait(held.lock(), [&] { return !held->contains(id_); });
    held->insert(id_);
  }
  ~SessionTryLock() {
    sessions_.ending_.lock()->erase(id_);
    sessions_.ended_.notify_all();
  }
  SessionTryLock(const SessionTryLock&) = delete;
  SessionTryLock& operator=(const SessionTryLock&) = delete;

 private:
  VolumeSessions& sessions_;
  const session::SessionId id_;
};

VolumeSessions::VolumeSessions(const EscrowdConfig& config, ServiceRepositories& repositories,
                               ServiceSessions& sessions, storage::ServiceStore& facts, storage::VolumeStore& store,
                               session::Log& log)
    : config_(config),
      repositories_(repositories),
      sessions_(sessions),
      facts_(facts),
      store_(store),
      log_(log),
      directory_(config.state_directory + "/volumes") {
  make_directory(directory_);
}

std::string VolumeSessions::path_of(const session::SessionId& id) const { return directory_ + "/" + id.text(); }

void VolumeSessions::check(const VolumeOptions& options) {
  const ServiceRepositories::Entry repository = repositories_.find(options.repository);
  const session::ReferenceStore& references = repository.context->repository().references();
  const session::SessionOptions checked =
      session_options(sessions_.granted(service_caller(), options), references, "sandbox");
  if (!options.session.branch.empty() && !references.head(checked.branch)) {
    throw Error(Errc::no_branch, "the repository " + repository.name + " has no branch " + checked.branch);
  }
}

void VolumeSessions::open(const Mount& mount, const VolumeOptions& opening) {
  const Caller caller = service_caller();
  const ServiceRepositories::Entry repository = repositories_.find(opening.repository);
  RunOrder order{.id = mount.session};
  order.repository = repository.path;
  order.verbose = config_.verbose;
  order.session = sessions_.granted(caller, opening);
  order.session.trigger = "volume " + mount.volume;
  order.host_mountpoint = mount.path;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::int64_t now_ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  const auto timeout_ms = static_cast<std::int64_t>(opening.timeout_ms);
  const storage::ServiceStore::Terms terms{.lease_ms = 0,
                                           .lease_until_ms = 0,
                                           .deadline_ms = timeout_ms == 0 ? 0 : now_ms + timeout_ms,
                                           .mount_options = {}};
  facts_.add_session({.id = mount.session,
                      .repository = repository.name,
                      .owner = caller.principal,
                      .external_id = {},
                      .request_key = {},
                      .message = opening.session.message,
                      .mountpoint = {},
                      .labels = {{"volume", mount.volume}}},
                     terms);
  try {
    make_directory(mount.path);
    hosts_.start(order);
  } catch (...) {
    repository.context->recover();
    ::rmdir(mount.path.c_str());
    facts_.forget_session(mount.session);
    throw;
  }
}

bool VolumeSessions::is_hosted(const Mount& mount) {
  return repositories_.find(mount.repository).context->repository().directories().is_held(mount.session);
}

void VolumeSessions::finish(const Mount& mount) {
  const ServiceRepositories::Entry repository = repositories_.find(mount.repository);
  RepositoryContext& context = *repository.context;
  std::optional<SessionRecord> record = context.repository().catalog().find(mount.session);
  if (record && !is_over(*record) && !is_hosted(mount)) {
    context.recover();
    record = context.repository().catalog().find(mount.session);
  }
  if (!record && context.repository().has_directory(mount.session)) {
    throw Error(Errc::unavailable, "the repository's catalog does not know it; put back the catalog that does");
  }
  if (!record || is_over(*record)) return;
  const auto facts = facts_.session(mount.session);
  SessionAccess(context, mount.session.text(), "escrowd")
      .finish({.reason = mount.ending,
               .exit_code = mount.exit_code,
               .message = facts ? facts->message : std::string(),
               .keep_result = mount.keep_result,
               .image = mount.image,
               .trigger_id = mount.container,
               .only_if_seen = true});
  warn_of_end(mount, context);
}

// Docker has been told that the container ended well, and nobody of its user's has been told anything else.
void VolumeSessions::warn_of_end(const Mount& mount, RepositoryContext& context) {
  const std::optional<SessionRecord> record = context.repository().catalog().find(mount.session);
  const bool is_unseen = record && record->state == State::rolled_back && record->reason == Reason::not_started;
  if (is_unseen && mount.ending == Reason::success) {
    log_.write(LogLevel::warning,
               "session " + mount.session.text() + " of the volume " + mount.volume +
                   " is rolled back, though the container " + mount.container +
                   " ended with 0: the container did not see the session. Its runtime has other mounts than escrowd, "
                   "and what the container wrote is in the runtime's directory " + mount.path +
                   "; run escrowd in the runtime's mount namespace");
  }
  if (!record || record->state != State::commit_failed) return;
  std::string paths;
  for (std::size_t at = 0; at < std::min(record->conflicts.size(), kShownConflicts); ++at) {
    paths += (at == 0 ? " " : ", ") + session::quote_path(record->conflicts[at]);
  }
  if (record->conflicts.size() > kShownConflicts) paths += " ...";
  log_.write(LogLevel::warning, "session " + mount.session.text() + " of the volume " + mount.volume +
                                    " was not committed, though its container ended with 0: it conflicts with what "
                                    "others committed at" + paths + "; its result is kept as refs/sessions/" +
                                    mount.session.text());
}

// Docker has copied what an image has at the volume's place, or nobody waited for the answer to Mount. One whose host
// was killed meanwhile was not ended by us, and is audited as any that ends so.
void VolumeSessions::forget_unused(const Mount& mount) {
  if (!mount.container.empty() || mount.ending != Reason::not_started) return;
  storage::Repository& repository = repositories_.find(mount.repository).context->repository();
  const std::optional<SessionRecord> record = repository.catalog().find(mount.session);
  if (record && (record->state != State::rolled_back || record->reason != Reason::not_started)) return;
  repository.forget(mount.session);
  facts_.forget_session(mount.session);
}

void VolumeSessions::forget(const Mount& mount) {
  clear_dead_mount(mount.path, "escrow:" + mount.session.text());
  if (::rmdir(mount.path.c_str()) != 0 && errno != ENOENT) {
    log_.write(LogLevel::warning, "the mountpoint " + mount.path + " stays: " + std::strerror(errno));
  }
  store_.forget(mount.session);
}

bool VolumeSessions::end(const Mount& mount) {
  const SessionTryLock turn(*this, mount.session);
  bool is_noted = false;
  for (const Mount& other : store_.mounts()) is_noted = is_noted || other.session == mount.session;
  if (!is_noted) return true;
  try {
    finish(mount);
    forget_unused(mount);
    forget(mount);
    return true;
  } catch (const Error& error) {
    log_.write(LogLevel::warning, "session " + mount.session.text() + " of the volume " + mount.volume +
                                      " could not be ended and stays as it is; it is tried again: " + error.what());
    return false;
  }
}

}  // namespace escrow::daemon
