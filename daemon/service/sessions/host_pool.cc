#include "daemon/service/sessions/host_pool.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "daemon/process/file_descriptor.h"
#include "session/base/error.h"

namespace escrow::daemon {

using namespace std::chrono_literals;

namespace {

constexpr std::size_t kReady = 2;   // of the repository that was used last
constexpr std::size_t kMostWaiting = 64;  // that wait at once
constexpr auto kIdle = 10s;         // how long more than `kReady` of them wait
constexpr auto kLookAtHostsEvery = 2s;
constexpr int kEndPatience_ms = 5'000;  // for one that was killed, whom its mount may keep

}  // namespace

HostPool::HostPool(const char* argument, session::Log& log)
    : argument_(argument), log_(log), keeper_([this] { keep_ready_until_stopped(); }) {}

HostPool::~HostPool() {
  shared_.lock()->stopping = true;
  changed_.notify_all();
  keeper_.join();
}

HostProcess HostPool::start() {
  HostProcess started = HostProcess::start(argument_);
  shared_.lock()->children.insert(started.pid);
  return started;
}

HostProcess HostPool::take(const std::string& repository) {
  {
    auto shared = shared_.lock();
    const auto fits = [&](const Waiting& one) { return one.repository == repository; };
    // The one that came last: what it used is in the processor's caches still.
    const auto found = std::find_if(shared->waiting.rbegin(), shared->waiting.rend(), fits);
    const bool is_there = found != shared->waiting.rend();
    std::optional<HostProcess> taken;
    if (is_there) {
      const auto at = std::next(found).base();
      taken = std::move(at->process);
      shared->waiting.erase(at);
    }
    if (static_cast<std::size_t>(std::count_if(shared->waiting.begin(), shared->waiting.end(), fits)) < kReady) {
      shared->wanted = repository;
      changed_.notify_all();
    }
    if (taken) return *std::move(taken);
  }
  return start();
}

void HostPool::give_back(HostProcess host, const std::string& repository) {
  auto shared = shared_.lock();
  if (shared->stopping || shared->waiting.size() >= kMostWaiting) return;  // its channel goes, and with it the process
  shared->waiting.push_back({std::move(host), repository, std::chrono::steady_clock::now()});
}

void HostPool::end(HostProcess host) noexcept {
  FileDescriptor life;
  {
    const auto shared = shared_.lock();
    if (!shared->children.contains(host.pid)) return;
    // Ours until it is reaped, so the number is nobody else's.
    life = FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, host.pid, 0)));
    ::kill(host.pid, SIGKILL);
  }
  pollfd ended{life.get(), POLLIN, 0};
  if (life.get() >= 0) ::poll(&ended, 1, kEndPatience_ms);
}

void HostPool::reap() noexcept {
  auto shared = shared_.lock();
  std::erase_if(shared->children, [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) != 0; });
}

void HostPool::start_ahead(const std::string& repository) noexcept {
  try {
    HostProcess started = start();
    started.channel.send(MessageKind::prepare, repository);
    give_back(std::move(started), repository);
  } catch (const std::exception& failure) {
    log_.write(session::LogLevel::warning, failure.what());
  }
}

void HostPool::keep_ready_until_stopped() {
  while (true) {
    std::string wanted;
    std::list<Waiting> too_many;  // their channels are closed without the lock
    {
      auto shared = shared_.lock();
      changed_.wait_for(shared.lock(), kLookAtHostsEvery, [&] { return shared->stopping || !shared->wanted.empty(); });
      if (shared->stopping) return;
      wanted = std::exchange(shared->wanted, {});
      const auto now = std::chrono::steady_clock::now();
      while (shared->waiting.size() > kReady && now - shared->waiting.front().since > kIdle) {
        too_many.splice(too_many.end(), shared->waiting, shared->waiting.begin());
      }
    }
    if (!wanted.empty()) start_ahead(wanted);
  }
}

}  // namespace escrow::daemon
