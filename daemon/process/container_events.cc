#include "daemon/process/container_events.h"

#include <signal.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <system_error>

#include "daemon/process/container_verdict.h"
#include "session/base/error.h"

namespace escrow::daemon {
namespace {

using Event = ContainerRuntime::Event;

bool is_container_end(const Event& event) { return event.action == "die" || event.action == "died"; }

// Health checks alone are two events each; only these decide.
bool decides(const Event& event) {
  return event.action == "start" || event.action == "stop" || event.action == "kill" || is_container_end(event);
}

// 0: it asks for no end. Podman does not tell the signal: any counts.
int end_asked_by(const Event& event, int its_stop_signal) {
  if (event.action == "stop") return SIGTERM;
  if (event.action != "kill") return 0;
  if (event.signal_number == 0) return SIGTERM;
  return asks_to_end(event.signal_number, its_stop_signal) ? event.signal_number : 0;
}

}  // namespace

ContainerEvents::ContainerEvents(const ContainerRuntime& runtime, const std::string& session,
                                 const session::Timestamp& since)
    : stopping_(::eventfd(0, EFD_CLOEXEC)) {
  const auto listen = [this, &runtime, session, since] {
    try {
      runtime.hear_events(session, since, [this](Event event) {
        if (!decides(event)) return;
        stream_.lock()->events.push_back(std::move(event));
        changed_.notify_all();
      }, stopping_.get());
    } catch (const session::Error&) {
      // The stream has ended.
    }
    stream_.lock()->has_ended = true;
    changed_.notify_all();
  };
  try {
    if (stopping_) thread_ = std::thread(listen);
  } catch (const std::system_error&) {
    // As where the stream ends at once.
  }
  if (!thread_.joinable()) stream_.lock()->has_ended = true;
}

ContainerEvents::~ContainerEvents() {
  if (!thread_.joinable()) return;
  ::eventfd_write(stopping_.get(), 1);
  thread_.join();
}

ContainerEvents::Heard ContainerEvents::until_end(const std::string& container, int its_stop_signal,
                                                  std::chrono::milliseconds patience) {
  auto stream = stream_.lock();
  const auto has = [&](auto is_one) {
    return std::any_of(stream->events.begin(), stream->events.end(),
                       [&](const Event& event) { return event.container == container && is_one(event); });
  };
  changed_.wait_for(stream.lock(), patience, [&] { return stream->has_ended || has(is_container_end); });
  Heard heard;
  heard.is_whole = has([](const Event& event) { return event.action == "start"; }) && has(is_container_end);
  for (const Event& event : stream->events) {
    if (event.container != container || heard.stop_signal != 0) continue;
    heard.stop_signal = end_asked_by(event, its_stop_signal);
  }
  return heard;
}

}  // namespace escrow::daemon
