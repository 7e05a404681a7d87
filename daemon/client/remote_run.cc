#include "daemon/client/remote_run.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "daemon/host/run_conclusion.h"
#include "daemon/host/run_result.h"
#include "daemon/process/command_spec.h"
#include "daemon/process/exit_status.h"
#include "daemon/process/output_capture.h"
#include "session/base/error.h"

namespace escrow::daemon {
namespace {

using session::Reason;

constexpr int kPaceMs = 100;  // of what the command writes
// How long a service may be away: it is restarted, or upgraded.
constexpr auto kPatience = std::chrono::seconds(30);
constexpr auto kPause = std::chrono::milliseconds(100);
constexpr int kSignalled = 128;
constexpr unsigned kFirstFailure = 500, kUnavailable = 503;  // of HTTP's statuses

volatile sig_atomic_t asked_to_end = 0;

// While it lives what cancels a run (runner.cc) is only noted, and SIGPIPE is ignored: see pass_on().
class NotedSignals {
 public:
  NotedSignals() {
    asked_to_end = 0;
    struct sigaction note {};
    note.sa_handler = [](int number) { asked_to_end = number; };
    note.sa_flags = SA_RESTART;
    for (std::size_t at = 0; at < kNumbers.size(); ++at) {
      if (kNumbers[at] == SIGPIPE) note.sa_handler = SIG_IGN;
      ::sigaction(kNumbers[at], &note, &before_[at]);
      const bool is_optional = kNumbers[at] == SIGHUP || kNumbers[at] == SIGQUIT;  // nohup(1), background jobs
      if (is_optional && before_[at].sa_handler == SIG_IGN) ::sigaction(kNumbers[at], &before_[at], nullptr);
    }
  }
  ~NotedSignals() {
    for (std::size_t at = 0; at < kNumbers.size(); ++at) ::sigaction(kNumbers[at], &before_[at], nullptr);
  }
  NotedSignals(const NotedSignals&) = delete;
  NotedSignals& operator=(const NotedSignals&) = delete;

 private:
  static constexpr std::array<int, 5> kNumbers = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};
  std::array<struct sigaction, 5> before_{};
};

// Who reads our output may be gone: the run goes on, as that of a command that ignores it.
void pass_on(int descriptor, const std::string& bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t count = ::write(descriptor, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno != EINTR) return;
    if (count > 0) done += static_cast<std::size_t>(count);
  }
}

// Asks about a run that is there. It goes on while its service is restarted, and so does who waits for it: what looks
// like a restart is that nobody answers, or that one who does says it cannot now. Any other failure is said at once.
class RunClient {
 public:
  RunClient(ServiceClient& client, const std::string& run) : client_(client), run_(run), path_("/v1/runs/" + run) {}

  // `target` is behind the run's path. Throws Error{unavailable} when the service has not come back in time.
  std::string get(const std::string& target) {
    return through_restarts([&] { return client_.ask("GET", path_ + target); });
  }
  void cancel() {
    through_restarts([&] { return client_.ask("POST", path_ + "/cancel", api::JsonObject().text()); });
  }

 private:
  using Answer = api::HttpClient::Answer;

  template <typename Ask>
  std::string through_restarts(Ask ask) {
    for (const auto deadline = std::chrono::steady_clock::now() + kPatience;;) {
      std::string why;
      std::optional<Answer> answer;
      try {
        answer = ask();
      } catch (const session::Error& error) {
        if (error.code() != session::Errc::unavailable) throw;
        why = error.what();
      }
      if (answer && !api::is_refused(*answer)) return std::move(answer->body);
      if (answer) why = why_not_now(*answer);
      if (std::chrono::steady_clock::now() > deadline) give_up(why);
      std::this_thread::sleep_for(kPause);
    }
  }

  // Throws unless it is answered so while the service stops or starts.
  std::string why_not_now(const Answer& answer) const {
    const api::Problem problem = problem_of(answer);
    const bool may_come_back = answer.status == kUnavailable && problem.kind().retryable;
    if (may_come_back) return problem.what();
    if (answer.status >= kFirstFailure) give_up(problem.what());
    throw api::Problem(problem);
  }

  api::Problem problem_of(const Answer& answer) const {
    try {
      return api::problem_of(answer);
    } catch (const session::Error& error) {
      give_up(error.what());
    }
  }

  [[noreturn]] void give_up(const std::string& why) const {
    throw session::Error(session::Errc::unavailable, why + "; the run goes on there, and `escrow status " + run_ +
                                                         "` tells how it ended once the service is well");
  }

  ServiceClient& client_;
  const std::string run_, path_;
};

// What one stream of the run has got since the last time.
class Follower {
 public:
  using PassOn = std::function<void(const std::string& bytes)>;
  Follower(RunClient& client, const std::string& stream, PassOn pass_on)
      : client_(client), target_("/output?stream=" + stream + "&offset="), pass_on_(std::move(pass_on)) {}

  void take() {
    for (;;) {
      const std::string bytes = client_.get(target_ + std::to_string(offset_));
      if (bytes.empty()) return;
      offset_ += bytes.size();
      pass_on_(bytes);
    }
  }

 private:
  RunClient& client_;
  const std::string target_;
  const PassOn pass_on_;
  std::uint64_t offset_ = 0;
};

std::vector<Follower> followers(RunClient& client, DenialTrace* trace) {
  std::vector<Follower> all;
  for (const int descriptor : {STDOUT_FILENO, STDERR_FILENO}) {
    all.emplace_back(client, kOutputNames.at(static_cast<std::size_t>(descriptor) - 1),
                     [descriptor](const std::string& bytes) { pass_on(descriptor, bytes); });
  }
  if (trace) all.emplace_back(client, kTraceName, [trace](const std::string& lines) { trace->write(lines); });
  return all;
}

CommandEnd not_started(int status, const std::string& program) {
  CommandEnd end{.cause = EndCause::failed, .command_status = std::nullopt, .message = {}, .survivors = {}};
  const std::string command = "the command \"" + program + "\" ";
  if (status == kExitNotFound) {
    end.cause = EndCause::not_found;
    end.message = command + "was not found";
  } else if (status == kExitCannotRun) {
    end.cause = EndCause::could_not_run;
    end.message = command + "could not be run";
  } else {
    end.message = command + "could not be started";
  }
  return end;
}

// As the record of its session tells how the command ended.
CommandEnd end_of(const session::SessionRecord& record, const std::string& program, int sent_signal) {
  CommandEnd end{.cause = EndCause::exited, .command_status = record.exit_code, .message = {}, .survivors = {}};
  const int status = record.exit_code.value_or(0);
  switch (record.reason) {
    case Reason::signal:
      end.cause = EndCause::signalled;
      end.signal_number = status - kSignalled;
      break;
    case Reason::cancelled:
      end.cause = EndCause::cancelled;
      end.signal_number = sent_signal != 0 ? sent_signal : SIGTERM;
      break;
    case Reason::timed_out:
      end.cause = EndCause::timed_out;
      break;
    case Reason::oom:
      end.cause = EndCause::oom;
      break;
    case Reason::not_started:
      end = not_started(status, program);
      break;
    case Reason::host_lost:
      end.cause = EndCause::lost;
      end.message = "the process that hosted it was killed";
      break;
    default:
      end.status = status;
      break;
  }
  return end;
}

}  // namespace

RemoteRunEnd run_remotely(ServiceClient& client, const api::JsonObject& order, const RemoteRunSettings& settings) {
  const NotedSignals signals;
  api::RemoteRun run = api::run_from_json(client.post("/v1/runs", order));
  RunClient there(client, run.id);
  std::vector<Follower> streams = followers(there, settings.trace);
  int sent_signal = 0;
  while (true) {
    // Also of a run that has ended: a short command may have, before the answer to its start was made.
    for (Follower& stream : streams) stream.take();
    if (run.has_ended) break;
    if (asked_to_end != 0 && sent_signal == 0) {
      sent_signal = asked_to_end;
      there.cancel();
    }
    run = api::run_from_json(there.get("/wait?timeout_ms=" + std::to_string(kPaceMs)));
  }
  if (!run.session) {
    throw session::Error(session::Errc::unavailable, "run " + run.id + " has ended there, and how cannot be read: its "
                                                     "repository cannot be used, or the record of its session is gone");
  }
  const session::SessionRecord& record = run.session->view.record;
  RemoteRunEnd end;
  end.result.record = record;
  end.result.command_status = record.exit_code;
  end.result.counts = record.counts.value_or(session::ChangeCounts{});
  std::string lines;
  Follower(there, kOmittedName, [&](const std::string& bytes) { lines += bytes; }).take();
  auto [omitted, more] = api::omissions_from_lines(lines);
  end.result.omitted = std::move(omitted);
  if (more > 0) end.warnings.push_back(std::to_string(more) + " more things were left out than the service names");
  for (const std::string& path_of_conflict : record.conflicts)
    end.result.conflicts.push_back({.path = path_of_conflict, .ours = {}, .theirs = {}});
  const CommandEnd how = end_of(record, settings.program, sent_signal);
  end.result.exit_code = exit_code_of_run(record, how);
  end.result.summary = summary_of({end.result, how, settings.timeout});
  if (run.is_truncated[0] || run.is_truncated[1]) {
    end.warnings.emplace_back("the command wrote more than the service keeps");
  }
  return end;
}

}  // namespace escrow::daemon
