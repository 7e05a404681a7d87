#include "daemon/service_leases.h"

#include <chrono>

#include "api/problem.h"

namespace escrow::daemon {

using session::LogLevel;
using session::Reason;

namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(250);

std::int64_t milliseconds(const session::Timestamp& time) { return time.seconds * 1000 + time.nanoseconds / 1'000'000; }

}  // namespace

ServiceLeases::ServiceLeases(storage::ServiceStore& store, ServiceSessions& sessions, session::Clock& clock,
                             session::Log& log)
    : store_(store), sessions_(sessions), clock_(clock), log_(log), stopping_(false) {
  store_.renew_all_leases(milliseconds(clock_.now()));
  thread_ = std::thread([this] { run(); });
}

ServiceLeases::~ServiceLeases() {
  *stopping_.lock() = true;
  changed_.notify_all();
  thread_.join();
}

void ServiceLeases::run() {
  while (true) {
    {
      auto stopping = stopping_.lock();
      if (changed_.wait_for(stopping.lock(), kLookEvery, [&] { return *stopping; })) return;
    }
    try {
      end_overdue();
    } catch (const std::exception& failure) {
      log_.write(LogLevel::warning, std::string("looking for leases that have run out: ") + failure.what());
    }
  }
}

void ServiceLeases::end_overdue() {
  for (const auto& [id, is_lease] : store_.overdue(milliseconds(clock_.now()))) {
    try {
      if (sessions_.expire(id, is_lease ? Reason::lease_expired : Reason::timed_out)) {
        const char* why = is_lease ? ": its lease has run out" : ": its time is over";
        log_.write(LogLevel::info, "session " + id.text() + why);
      }
    } catch (const api::Problem& problem) {
      if (problem.problem() != api::ProblemCode::busy) throw;
    } catch (const session::Error& error) {
      log_.write(LogLevel::warning,
                 "session " + id.text() + " is overdue and could not be rolled back: " + error.what());
    }
  }
}

}  // namespace escrow::daemon
