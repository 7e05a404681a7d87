#include "daemon/service/sessions/session_hosts.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "api/control_client.h"
#include "api/remote_documents.h"
#include "daemon/host/mountpoint.h"
#include "daemon/service/sessions/mount_host.h"
#include "session/base/error.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;
using session::LogLevel;
using session::SessionId;
using namespace std::chrono_literals;

namespace {

constexpr auto kMountPatience = 60'000ms;  // for a repository and a mount to be there
constexpr auto kAnswerPatience = 1'000ms;  // for what nobody waits for in vain: io, counts
constexpr auto kLeavePatience = 20'000ms, kPause = 20ms;
// One that dies sooner would do so again.
constexpr auto kTooSoon = 2s;
constexpr int kAttempts = 3;
constexpr int kLookEvery_ms = 250;  // for a host that cannot be watched

void signal(const FileDescriptor& event) {
  const std::uint64_t one = 1;
  // Fails only when it is signalled already, four thousand million times.
  [[maybe_unused]] const ssize_t written = ::write(event.get(), &one, sizeof one);
}

std::string directory_of(const ServiceRepositories::Entry& repository, const SessionId& id) {
  return repository.context->repository().directories().path_of(id);
}

bool is_held(const ServiceRepositories::Entry& repository, const SessionId& id) {
  return repository.context->repository().directories().is_held(id);
}

// Null while nobody listens.
std::unique_ptr<api::ControlClient> connect(const ServiceRepositories::Entry& repository, const SessionId& id) {
  try {
    return std::make_unique<api::ControlClient>(directory_of(repository, id), id);
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace

class SessionHosts::Mounting {
 public:
  Mounting(SessionHosts& sessions, const std::string& path)
      : sessions_(sessions), at_(sessions.mounting_.lock()->insert(path)) {}
  ~Mounting() { sessions_.mounting_.lock()->erase(at_); }
  Mounting(const Mounting&) = delete;
  Mounting& operator=(const Mounting&) = delete;

 private:
  SessionHosts& sessions_;
  const std::multiset<std::string>::iterator at_;
};

SessionHosts::Mountpoint::~Mountpoint() {
  if (!is_kept_) sessions_.remove_made(path_);
}

void SessionHosts::remove_made(const std::string& mountpoint) noexcept {
  try {
    const auto held = mounting_.lock();
    if (!held->contains(mountpoint)) mount_roots_.remove_made(mountpoint);
  } catch (const std::exception&) {
    // It is below no root any more: it stays.
  }
}

void SessionHosts::Traffic::add(const api::TrafficAnswer& more) {
  cache_hits += more.cache_hits;
  cache_misses += more.cache_misses;
  for (const api::TrafficAnswer::Operation& one : more.operations) {
    api::TrafficAnswer::Operation& sum = operations.try_emplace(one.name).first->second;
    sum.count += one.count;
    sum.seconds += one.seconds;
    sum.within.resize(std::max(sum.within.size(), one.within.size()));
    for (std::size_t at = 0; at < one.within.size(); ++at) sum.within[at] += one.within[at];
  }
}

SessionHosts::SessionHosts(const EscrowdConfig& config, storage::ServiceStore& store, const AllowedRoots& mount_roots,
                           session::Log& log)
    : verbose_(config.verbose),
      store_(store),
      mount_roots_(mount_roots),
      log_(log),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      pool_(kMountHostArgument, log) {
  watcher_ = std::thread([this] { watch_until_stopped(); });
}

SessionHosts::~SessionHosts() {
  shared_.lock()->stopping = true;
  signal(wake_);
  watcher_.join();
  if (::getpid() == 1) ask_all_to_leave();
  tidy();
  for (const auto& [id, hosted] : all()) hosted->mountpoint.keep();
}

// A container's other processes are killed with its first one. They leave on SIGTERM, as `escrow mount` does.
void SessionHosts::ask_all_to_leave() {
  for (const auto& [id, hosted] : all()) {
    if (hosted->process) ::kill(hosted->process->pid, SIGTERM);
    if (hosted->life) ::syscall(SYS_pidfd_send_signal, hosted->life.get(), SIGTERM, nullptr, 0);
  }
  const auto deadline = std::chrono::steady_clock::now() + kLeavePatience;
  for (const auto& [id, hosted] : all()) {
    while (is_held(hosted->repository, id) && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(kPause);
    }
  }
}

std::vector<SessionHosts::Entry> SessionHosts::all() {
  const auto held = shared_.lock();
  return {held->hosts.begin(), held->hosts.end()};
}

std::optional<SessionHosts::Mounted> SessionHosts::find(const SessionId& id) {
  const auto held = shared_.lock();
  const auto found = held->hosts.find(id);
  if (found == held->hosts.end() || found->second->is_forgotten || !found->second->is_met) return std::nullopt;
  return Mounted{.mountpoint = found->second->mountpoint.path(), .io = found->second->io};
}

SessionHosts::Traffic SessionHosts::traffic() {
  for (const auto& [id, hosted] : all()) {
    const auto client = connect(hosted->repository, id);
    if (!client) continue;
    const std::optional<api::Answer> answer = client->ask_within(api::TrafficRequest{}, kAnswerPatience);
    if (!answer || !std::holds_alternative<api::TrafficAnswer>(*answer)) continue;
    const auto held = shared_.lock();
    hosted->seen = std::get<api::TrafficAnswer>(*answer);
  }
  const auto held = shared_.lock();
  Traffic traffic = held->past;
  for (const auto& [id, hosted] : held->hosts) {
    if (!hosted->is_forgotten) ++traffic.mounts;
    traffic.staged_bytes += hosted->seen.staged_bytes;
    traffic.add(hosted->seen);
  }
  return traffic;
}

// ---- Mounting.

// One that died while it waited is found out by the order that it does not answer; one that died later leaves a mount.
HostProcess SessionHosts::start(const ServiceRepositories::Entry& repository, const MountOrder& given,
                                api::IoView& io) {
  const std::string order = encode(given);
  for (int attempt = 1;; ++attempt) {
    HostProcess host = pool_.take(repository.path);
    std::optional<Message> answer;
    if (host.channel.send(MessageKind::order, order)) answer = host.channel.receive_within(kMountPatience);
    if (!answer) {
      pool_.end(std::move(host));
      clear_dead_mount(given.mountpoint, "escrow:" + given.id.text());
      if (attempt < kAttempts) continue;
      throw Error(Errc::unavailable, "the session could not be mounted: its host process has died or does not answer");
    }
    if (answer->kind == MessageKind::refused) {
      pool_.give_back(std::move(host), repository.path);
      throw decode_refusal(answer->body);
    }
    io = decode_io(answer->body);
    return host;
  }
}

void SessionHosts::mount(const ServiceRepositories::Entry& repository, const SessionId& id,
                         const std::string& mountpoint, GitViewer viewer,
                         const std::optional<std::string>& mount_options) {
  const auto hosted = std::shared_ptr<Hosted>(
      new Hosted{.repository = repository, .mountpoint{*this, mountpoint}, .io = {}, .process = {}, .life = {}});
  const Mounting mounting(*this, mountpoint);
  mount_roots_.check(mountpoint, true, "mountpoint");
  std::erase(*unmounted_.lock(), id);
  const auto facts = store_.session(id);
  if (viewer.hand.empty() && facts) viewer.hand = facts->hand;
  const MountOrder order{.repository = repository.path,
                         .verbose = verbose_,
                         .id = id,
                         .mountpoint = mountpoint,
                         .mount_options = mount_options ? *mount_options : store_.terms(id).mount_options,
                         .viewer = std::move(viewer)};
  // First: whoever takes up what a killed service leaves finds the host by it.
  const bool is_noted = facts && facts->mountpoint == mountpoint && facts->hand == order.viewer.hand;
  if (!is_noted) store_.set_mountpoint(id, mountpoint, order.viewer.hand);
  try {
    api::IoView io;
    hosted->process = start(repository, order, io);
    hosted->io = std::move(io);
    hosted->is_met = true;
  } catch (...) {
    if (!is_noted) unmounted_.lock()->push_back(id);
    throw;
  }
  if (mount_options) store_.set_mount_options(id, *mount_options);
  shared_.lock()->hosts[id] = hosted;
  signal(wake_);
}

void SessionHosts::forget(const SessionId& id) {
  {
    const auto held = shared_.lock();
    const auto found = held->hosts.find(id);
    if (found == held->hosts.end()) return;
    found->second->is_forgotten = true;
  }
  unmounted_.lock()->push_back(id);
  tidy();
}

// ---- Of a service before this one.

bool SessionHosts::adopt(const ServiceRepositories::Entry& repository, const SessionId& id,
                         const std::string& mountpoint) {
  if (!is_held(repository, id)) return false;
  const auto hosted = std::shared_ptr<Hosted>(
      new Hosted{.repository = repository, .mountpoint{*this, mountpoint}, .io = {}, .process = {}, .life = {}});
  hosted->since = {};
  meet({id, hosted});
  shared_.lock()->hosts[id] = hosted;
  signal(wake_);
  return true;
}

// One that is about to listen, or is ending, is looked for again.
void SessionHosts::meet(const Entry& entry) {
  const auto& [id, hosted] = entry;
  const auto client = connect(hosted->repository, id);
  if (!client) return;
  const pid_t host = client->host();
  FileDescriptor life(host > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, host, 0)) : -1);
  const std::optional<api::Answer> answer = client->ask_within(api::StatusRequest{}, kAnswerPatience);
  if (!answer || !std::holds_alternative<api::SessionView>(*answer)) return;
  const auto held = shared_.lock();
  hosted->io = std::get<api::SessionView>(*answer).io;
  hosted->life = std::move(life);
  hosted->is_met = true;
}

void SessionHosts::take_up(ServiceRepositories& repositories, const storage::ServiceStore::SessionFacts& facts) {
  const ServiceRepositories::Entry repository = repositories.find(facts.repository);
  if (adopt(repository, facts.id, facts.mountpoint)) return;
  const auto record = repository.context->repository().catalog().find(facts.id);
  if (!record && repository.context->repository().has_directory(facts.id)) return;  // its catalog may come back
  if (!record || record->state != session::State::open) {
    store_.set_mountpoint(facts.id, "", "");
    remove_made(facts.mountpoint);
    return;
  }
  clear_dead_mount(facts.mountpoint, "escrow:" + facts.id.text());
  mount(repository, facts.id, facts.mountpoint, {});
}

void SessionHosts::take_up(ServiceRepositories& repositories) {
  for (const storage::ServiceStore::SessionFacts& facts : store_.mounted()) {
    try {
      take_up(repositories, facts);
    } catch (const Error& error) {
      log_.write(LogLevel::warning, "session " + facts.id.text() + " is open but could not be mounted on " +
                                        facts.mountpoint + " again: " + error.what());
    }
  }
}

// ---- Watching.

void SessionHosts::tidy() noexcept {
  try {
    pool_.reap();
    auto unmounted = unmounted_.lock();
    if (!unmounted->empty()) store_.clear_mountpoints(*unmounted);
    unmounted->clear();
  } catch (const std::exception& error) {
    log_.write(LogLevel::warning, std::string("the mountpoints of sessions that are unmounted stay noted: ") +
                                      error.what());
  }
}

void SessionHosts::gone(const Entry& entry, const api::TrafficAnswer& served) {
  const auto& [id, hosted] = entry;
  auto held = shared_.lock();
  const auto found = held->hosts.find(id);
  if (found != held->hosts.end() && found->second == hosted) held->hosts.erase(found);
  held->past.add(served);
}

void SessionHosts::mount_anew(const Entry& entry) {
  const auto& [id, hosted] = entry;
  const std::string& mountpoint = hosted->mountpoint.path();
  hosted->mountpoint.keep();
  const bool is_too_soon = std::chrono::steady_clock::now() - hosted->since < kTooSoon;
  log_.write(LogLevel::warning, "the process that hosted session " + id.text() + " has died" +
                                    (is_too_soon ? "; it is not mounted again" : "; it is mounted again"));
  clear_dead_mount(mountpoint, "escrow:" + id.text());
  if (!is_too_soon) mount(hosted->repository, id, mountpoint, {});
}

// Its host has something to say, or is gone.
void SessionHosts::look_after(const Entry& entry) {
  const auto& [id, hosted] = entry;
  std::optional<Message> message;
  if (hosted->process) message = hosted->process->channel.receive();
  std::optional<api::TrafficAnswer> served;
  if (message && message->kind == MessageKind::released) {
    served = api::traffic_from_json(message->body);
  }
  gone(entry, served.value_or(hosted->seen));
  if (served) pool_.give_back(*std::exchange(hosted->process, std::nullopt), hosted->repository.path);
  if (hosted->is_forgotten) return;
  session::SessionManager& sessions = hosted->repository.context->sessions();
  if (sessions.status(id).attachment == session::Attachment::lost) return mount_anew(entry);
  unmounted_.lock()->push_back(id);
}

void SessionHosts::watch_until_stopped() {
  while (true) {
    std::vector<pollfd> watched = {{wake_.get(), POLLIN, 0}};
    if (shared_.lock()->stopping) return;
    const std::vector<Entry> entries = all();
    bool is_any_unseen = false;
    for (const auto& [id, hosted] : entries) {
      const int life = hosted->process ? hosted->process->channel.descriptor() : hosted->life.get();
      watched.push_back({life, POLLIN, 0});
      is_any_unseen = is_any_unseen || life < 0;
    }
    ::poll(watched.data(), watched.size(), is_any_unseen ? kLookEvery_ms : -1);
    std::uint64_t drained = 0;
    [[maybe_unused]] const ssize_t count = ::read(wake_.get(), &drained, sizeof drained);
    for (std::size_t at = 0; at < entries.size(); ++at) {
      const auto& [id, hosted] = entries[at];
      const bool is_unseen = watched[at + 1].fd < 0;
      const bool is_there = is_unseen ? is_held(hosted->repository, id) : watched[at + 1].revents == 0;
      if (is_there && !hosted->is_met) meet(entries[at]);
      if (is_there) continue;
      try {
        look_after(entries[at]);
      } catch (const std::exception& error) {
        log_.write(LogLevel::warning, "letting go of session " + id.text() + ": " + error.what());
      }
    }
  }
}

}  // namespace escrow::daemon
