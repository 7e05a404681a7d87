#include "daemon/service/sessions/service_leases.h"

#include <algorithm>
#include <set>
#include <string>

#include "api/problem.h"

namespace escrow::daemon {

using session::LogLevel;
using session::Reason;
using session::SessionId;
using namespace std::chrono_literals;

namespace {

constexpr auto kLookEvery = 250ms;
constexpr unsigned kWorkers = 8;
constexpr auto kFirstPause = 1000ms, kLongestPause = 30'000ms;

}  // namespace

ServiceLeases::ServiceLeases(storage::ServiceStore& store, ServiceSessions& sessions, ServiceTime& time,
                             session::Log& log)
    : store_(store), sessions_(sessions), time_(time), log_(log) {
  store_.renew_all_leases(time_.lease_now_ms());
  threads_.emplace_back([this] { look_until_stopped(); });
  for (unsigned number = 0; number < kWorkers; ++number) threads_.emplace_back([this] { work_until_stopped(); });
}

ServiceLeases::~ServiceLeases() {
  shared_.lock()->stopping = true;
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ServiceLeases::look_until_stopped() {
  while (true) {
    {
      auto shared = shared_.lock();
      if (changed_.wait_for(shared.lock(), kLookEvery, [&] { return shared->stopping; })) return;
    }
    try {
      look();
    } catch (const std::exception& failure) {
      log_.write(LogLevel::warning, std::string("looking for leases that have run out: ") + failure.what());
    }
  }
}

// The lock is held while the store is asked, so that none that a worker has ended meanwhile is found once more.
void ServiceLeases::look() {
  auto shared = shared_.lock();
  const auto now = std::chrono::steady_clock::now();
  std::set<SessionId> overdue;
  time_.tick();
  for (const Overdue& found : store_.overdue(time_.lease_now_ms(), time_.now_ms())) {
    overdue.insert(found.id);
    Trial& trial = shared->trials[found.id];
    if (trial.is_taken || now < trial.next) continue;
    trial.is_taken = true;
    shared->queue.push_back(found);
  }
  std::erase_if(shared->trials,
                [&](const auto& one) { return !one.second.is_taken && !overdue.contains(one.first); });
  if (!shared->queue.empty()) changed_.notify_all();
}

void ServiceLeases::work_until_stopped() {
  while (true) {
    std::optional<Overdue> overdue;
    {
      auto shared = shared_.lock();
      changed_.wait(shared.lock(), [&] { return shared->stopping || !shared->queue.empty(); });
      if (shared->stopping) return;
      overdue = shared->queue.front();
      shared->queue.pop_front();
    }
    const Outcome outcome = end(*overdue);
    auto shared = shared_.lock();
    if (outcome == Outcome::ended) {
      shared->trials.erase(overdue->id);
    } else {
      put_down(shared->trials[overdue->id], outcome);
    }
  }
}

void ServiceLeases::put_down(Trial& trial, Outcome outcome) {
  trial.is_taken = false;
  if (outcome != Outcome::failed) return;
  trial.pause = std::clamp<std::chrono::milliseconds>(trial.pause * 2, kFirstPause, kLongestPause);
  trial.next = std::chrono::steady_clock::now() + trial.pause;
}

ServiceLeases::Outcome ServiceLeases::end(const Overdue& overdue) {
  const auto& [id, is_lease] = overdue;
  try {
    if (!sessions_.expire(id, is_lease ? Reason::lease_expired : Reason::timed_out)) return Outcome::not_now;
    const char* why = is_lease ? ": its lease has run out" : ": its time is over";
    log_.write(LogLevel::info, "session " + id.text() + why);
    return Outcome::ended;
  } catch (const api::Problem& problem) {
    if (problem.problem() == api::ProblemCode::busy) return Outcome::not_now;
    return fail(id, problem);
  } catch (const std::exception& failure) {
    return fail(id, failure);
  }
}

ServiceLeases::Outcome ServiceLeases::fail(const SessionId& id, const std::exception& failure) {
  log_.write(LogLevel::warning, "session " + id.text() + " is overdue and could not be rolled back, which is tried "
                                "again: " + failure.what());
  return Outcome::failed;
}

}  // namespace escrow::daemon
