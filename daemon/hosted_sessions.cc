#include "daemon/hosted_sessions.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "daemon/io_choice.h"
#include "daemon/mountpoint.h"
#include "daemon/session_terms.h"
#include "session/error.h"

namespace escrow::daemon {

using session::Error;
using session::LogLevel;
using session::SessionId;
using namespace std::chrono_literals;

namespace {

constexpr auto kPatience = 10s;
constexpr auto kPause = 10ms;

void add(const fuse::OperationCount& more, std::map<std::string, fuse::OperationCount>& to) {
  fuse::OperationCount& sum = to.try_emplace(more.name, fuse::OperationCount{more.name, 0, {}}).first->second;
  sum.count += more.count;
  sum.times.add(more.times);
}

void add(const fuse::Mount& mount, std::map<std::string, fuse::OperationCount>& to) {
  for (const fuse::OperationCount& more : mount.counts()) add(more, to);
}

void signal(const FileDescriptor& event) {
  const std::uint64_t one = 1;
  // Fails only when it is signalled already, four thousand million times.
  [[maybe_unused]] const ssize_t written = ::write(event.get(), &one, sizeof one);
}

}  // namespace

HostedSessions::HostedSessions(storage::ServiceStore& store, const AllowedRoots& mount_roots, session::Log& log)
    : store_(store), mount_roots_(mount_roots), log_(log), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  reaper_ = std::thread([this] { reap_until_stopped(); });
}

HostedSessions::~HostedSessions() {
  shared_.lock()->stopping = true;
  signal(wake_);
  reaper_.join();
  tidy();
  std::map<SessionId, std::shared_ptr<Hosted>> last;
  shared_.lock()->hosts.swap(last);
  for (auto& [id, hosted] : last) {
    if (hosted->host->has_ended()) continue;
    const std::string warning = hosted->host->leave();
    if (!warning.empty()) log_.write(LogLevel::warning, warning);
  }
}

std::shared_ptr<SessionHost> HostedSessions::find(const SessionId& id) {
  auto held = shared_.lock();
  const auto found = held->hosts.find(id);
  if (found == held->hosts.end()) return nullptr;
  return {found->second, found->second->host.get()};
}

HostedSessions::Traffic HostedSessions::traffic() {
  Traffic traffic;
  std::vector<std::shared_ptr<Hosted>> now;
  {
    auto held = shared_.lock();
    for (const auto& [id, hosted] : held->hosts) {
      now.push_back(hosted);
      add(hosted->host->mount(), traffic.operations);
    }
    for (const auto& [kind, past] : held->past) add(past, traffic.operations);
  }
  traffic.mounts = now.size();
  for (const auto& hosted : now) traffic.staged_bytes += hosted->host->session().overlay().usage().staged_bytes;
  return traffic;
}

void HostedSessions::mount(const ServiceRepositories::Entry& repository, std::unique_ptr<session::Session> session,
                           const std::string& mountpoint, const std::string& mount_options) {
  const session::SessionRecord record = session->record();
  RepositoryContext& context = *repository.context;
  mount_roots_.check(mountpoint, true, "mountpoint");
  SessionHost::Options options;
  options.mount.mountpoint = check_mountpoint(mountpoint, context.repository().git_directory());
  const MountArguments wanted = mounting_of(mount_options.empty() ? store_.terms(record.id).mount_options
                                                                  : mount_options);
  options.mount.allow_other = wanted.allow_other || ::geteuid() == 0;
  options.mount.read_only = record.options.read_only;
  options.mount.xattrs = wanted.opened.xattr == "user";
  options.mount.io_uring = wanted.opened.io_uring != "off";
  options.mount.extra_options = wanted.kernel_options;
  options.mount.extra_options.insert(options.mount.extra_options.end(), {"nosuid", "nodev"});
  IoChoice io = choose_io(wanted.opened, !record.options.policies.empty());
  options.mount.io = io.mode;
  options.io_reason = std::move(io.reason);
  auto hosted = std::make_shared<Hosted>();
  hosted->context = repository.context;
  hosted->host = std::make_unique<SessionHost>(std::move(session), options, context.repository(), context.log());
  std::erase(*unmounted_.lock(), record.id);
  if (!mount_options.empty()) store_.set_mount_options(record.id, mount_options);
  store_.set_mountpoint(record.id, mountpoint);
  shared_.lock()->hosts[record.id] = std::move(hosted);
  signal(wake_);
}

void HostedSessions::take_up(ServiceRepositories& repositories) {
  for (const storage::ServiceStore::SessionFacts& facts : store_.sessions()) {
    if (facts.mountpoint.empty()) continue;
    try {
      const ServiceRepositories::Entry repository = repositories.find(facts.repository);
      const auto record = repository.context->repository().catalog().find(facts.id);
      if (!record || record->state != session::State::open) {
        store_.set_mountpoint(facts.id, "");
        continue;
      }
      clear_dead_mount(facts.mountpoint, "escrow:" + facts.id.text());
      mount(repository, repository.context->sessions().attach(facts.id), facts.mountpoint);
    } catch (const Error& error) {
      log_.write(LogLevel::warning, "session " + facts.id.text() + " is open but could not be mounted on " +
                                        facts.mountpoint + " again: " + error.what());
    }
  }
}

void HostedSessions::wait_until_gone(const ServiceRepositories::Entry& repository, const SessionId& id) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (repository.context->repository().directories().is_held(id) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kPause);
  }
}

void HostedSessions::let_go(const SessionId& id) {
  std::shared_ptr<Hosted> gone;
  {
    auto held = shared_.lock();
    const auto found = held->hosts.find(id);
    if (found == held->hosts.end()) return;
    gone = std::move(found->second);
    add(gone->host->mount(), held->past);
    held->hosts.erase(found);
  }
  unmounted_.lock()->push_back(id);
  // Here, or with the request that still uses it, the host is destroyed.
}

void HostedSessions::tidy() noexcept {
  try {
    auto unmounted = unmounted_.lock();
    if (!unmounted->empty()) store_.clear_mountpoints(*unmounted);
    unmounted->clear();
  } catch (const std::exception& error) {
    log_.write(LogLevel::warning, std::string("the mountpoints of sessions that are unmounted stay noted: ") +
                                      error.what());
  }
}

void HostedSessions::reap_until_stopped() {
  while (true) {
    std::vector<pollfd> watched = {{wake_.get(), POLLIN, 0}};
    std::vector<SessionId> ids;
    {
      auto held = shared_.lock();
      if (held->stopping) return;
      for (const auto& [id, hosted] : held->hosts) {
        watched.push_back({hosted->host->event_fd(), POLLIN, 0});
        ids.push_back(id);
      }
    }
    ::poll(watched.data(), watched.size(), -1);
    std::uint64_t drained = 0;
    [[maybe_unused]] const ssize_t count = ::read(wake_.get(), &drained, sizeof drained);
    for (std::size_t at = 0; at < ids.size(); ++at) {
      if ((watched[at + 1].revents & POLLIN) == 0) continue;
      try {
        let_go(ids[at]);
      } catch (const Error& error) {
        log_.write(LogLevel::warning, "letting go of session " + ids[at].text() + ": " + error.what());
      }
    }
  }
}

}  // namespace escrow::daemon
