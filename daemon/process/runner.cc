#include "daemon/process/runner.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "daemon/process/cgroup.h"
#include "daemon/process/descendants.h"
#include "daemon/process/supervisor.h"
#include "session/base/error.h"

namespace escrow::daemon {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kRunnerPatience{20'000};
constexpr milliseconds kOverdue{10'000};  // for a supervisor to say how it ended a command

// What cancels a run. SIGHUP and SIGQUIT only where they were not ignored before (nohup(1), background jobs).
sigset_t cancelling_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGINT);
  ::sigaddset(&set, SIGTERM);
  for (const int number : {SIGHUP, SIGQUIT}) {
    struct sigaction action;
    ::sigaction(number, nullptr, &action);
    if (action.sa_handler != SIG_IGN) ::sigaddset(&set, number);
  }
  return set;
}

session::Error no_supervisor(const std::string& what) {
  return session::Error(session::Errc::unavailable, "the process that watches the command could not be started: " +
                                                        what + " failed: " + std::strerror(errno));
}

// The supervisor also blocks what only it waits for.
void block_in_supervisor() {
  sigset_t set = cancelling_signals();
  for (const int number : {SIGCHLD, SIGTSTP, SIGTTOU}) ::sigaddset(&set, number);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
}

}  // namespace

Runner::Runner() {
  block_signals();
  std::optional<std::pair<MessageChannel, MessageChannel>> ends = MessageChannel::pair();
  if (!ends) throw no_supervisor("socketpair");
  // Should the supervisor be killed, its orphans come to us.
  become_subreaper();
  supervisor_ = ::fork();
  if (supervisor_ < 0) throw no_supervisor("fork");
  if (supervisor_ == 0) {
    ends->first.close();
    signals_.reset();
    block_in_supervisor();
    supervise(std::move(ends->second), original_);
  }
  channel_ = std::make_unique<MessageChannel>(std::move(ends->first));
}

Runner::~Runner() {
  channel_.reset();
  if (supervisor_ > 0) {
    while (::waitpid(supervisor_, nullptr, 0) < 0 && errno == EINTR) continue;
  }
  cancel_signal();  // drained, or they would end this process now
  ::signal(SIGPIPE, original_.pipe);
  ::sigprocmask(SIG_SETMASK, &original_.mask, nullptr);
}

void Runner::block_signals() {
  sigset_t set = cancelling_signals();
  ::sigaddset(&set, SIGCHLD);
  sigset_t blocked = set;
  ::sigaddset(&blocked, SIGTTOU);  // a warning may be written while the command has the terminal
  ::sigprocmask(SIG_BLOCK, &blocked, &original_.mask);
  original_.pipe = ::signal(SIGPIPE, SIG_IGN);
  signals_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_) throw no_supervisor("signalfd");
}

int Runner::cancel_signal() {
  signalfd_siginfo event;
  while (::read(signals_.get(), &event, sizeof event) == sizeof event) {
    if (event.ssi_signo == SIGCHLD) continue;
    if (cancel_signal_ == 0) cancel_signal_ = static_cast<int>(event.ssi_signo);
    if (channel_) channel_->send(MessageKind::signal, std::to_string(event.ssi_signo));
  }
  return cancel_signal_;
}

void Runner::make_ready(const CommandSpec& spec) { channel_->send(MessageKind::contain, encode(spec)); }

CommandEnd Runner::run(const CommandSpec& spec, const std::function<void()>& started) {
  if (cancel_signal_ != 0 || cancel_signal() != 0) {
    CommandEnd end;
    end.cause = EndCause::cancelled;
    end.signal_number = cancel_signal_;
    return end;
  }
  if (!channel_->send(MessageKind::start, encode(spec))) return supervisor_lost();
  return await_end(spec, started);
}

CommandEnd Runner::await_end(const CommandSpec& spec, const std::function<void()>& started) {
  for (;;) {
    pollfd descriptors[2] = {{channel_->descriptor(), POLLIN, 0}, {signals_.get(), POLLIN, 0}};
    const int ready = ::poll(descriptors, 2, wait_ms());
    watch_supervisor();
    if (ready <= 0) continue;
    // Read every time: what is left there would end each wait at once.
    if (descriptors[1].revents != 0 && cancel_signal() != 0) set_deadline(spec.grace);
    if (descriptors[0].revents == 0) continue;
    const std::optional<Message> message = channel_->receive();
    if (!message) return supervisor_lost();
    if (message->kind == MessageKind::starting) {
      cgroup_paths_ = decode_texts(message->body);
      if (spec.timeout) set_deadline(*spec.timeout + spec.grace);
    }
    if (message->kind == MessageKind::started && started) started();
    if (message->kind == MessageKind::ended) return decode_command_end(message->body);
  }
}

void Runner::container_is_settled() { channel_->send(MessageKind::settled, {}); }

// The earlier one counts.
void Runner::set_deadline(milliseconds from_now) {
  if (is_given_up_) return;
  const auto deadline = steady_clock::now() + from_now + kOverdue;
  if (!deadline_ || deadline < *deadline_) deadline_ = deadline;
}

int Runner::wait_ms() const {
  if (!deadline_) return -1;
  const auto left = std::chrono::ceil<milliseconds>(*deadline_ - steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

// Ctrl-Z stops it by another signal, and this process with it.
void Runner::watch_supervisor() {
  siginfo_t change{};
  const bool has_stopped = ::waitid(P_PID, static_cast<id_t>(supervisor_), &change, WSTOPPED | WNOHANG) == 0 &&
                           change.si_pid == supervisor_ && change.si_status == SIGSTOP;
  if (has_stopped) ::kill(supervisor_, SIGCONT);
  if (is_given_up_ || !deadline_ || steady_clock::now() < *deadline_) return;
  is_given_up_ = true;
  deadline_.reset();
  ::kill(supervisor_, SIGKILL);
}

CommandEnd Runner::supervisor_lost() {
  while (::waitpid(supervisor_, nullptr, 0) < 0 && errno == EINTR) continue;
  supervisor_ = -1;
  for (const std::string& path : cgroup_paths_) remove_cgroup(path, kRunnerPatience);
  CommandEnd end;
  end.cause = !is_given_up_ ? EndCause::lost : cancel_signal_ != 0 ? EndCause::cancelled : EndCause::timed_out;
  end.signal_number = cancel_signal_;
  end.message = "the process that watched the command was killed";
  end.survivors = end_descendants(kRunnerPatience);
  return end;
}

}  // namespace escrow::daemon
