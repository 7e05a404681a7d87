#include "daemon/runner.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>

#include "daemon/cgroup.h"
#include "daemon/descendants.h"
#include "daemon/supervisor.h"
#include "session/error.h"

namespace escrow::daemon {
namespace {

constexpr std::chrono::milliseconds kPatience{20'000};

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
  const sigset_t set = cancelling_signals();
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
    if (cancel_signal_ == 0) cancel_signal_ = static_cast<int>(event.ssi_signo);
    if (channel_) channel_->send(MessageKind::signal, std::to_string(event.ssi_signo));
  }
  return cancel_signal_;
}

CommandEnd Runner::run(const CommandSpec& spec, const std::function<void()>& started) {
  if (cancel_signal_ != 0 || cancel_signal() != 0) {
    CommandEnd end;
    end.cause = EndCause::cancelled;
    end.signal_number = cancel_signal_;
    return end;
  }
  if (!channel_->send(MessageKind::start, encode(spec))) return supervisor_lost();
  return await_end(started);
}

CommandEnd Runner::await_end(const std::function<void()>& started) {
  for (;;) {
    pollfd descriptors[2] = {{channel_->descriptor(), POLLIN, 0}, {signals_.get(), POLLIN, 0}};
    if (::poll(descriptors, 2, -1) < 0) continue;
    if (descriptors[1].revents != 0) cancel_signal();
    if (descriptors[0].revents == 0) continue;
    const std::optional<Message> message = channel_->receive();
    if (!message) return supervisor_lost();
    if (message->kind == MessageKind::started) {
      cgroup_path_ = message->body;
      if (started) started();
    }
    if (message->kind == MessageKind::ended) return decode_command_end(message->body);
  }
}

CommandEnd Runner::supervisor_lost() {
  while (::waitpid(supervisor_, nullptr, 0) < 0 && errno == EINTR) continue;
  supervisor_ = -1;
  if (!cgroup_path_.empty()) remove_cgroup(cgroup_path_, kPatience);
  CommandEnd end;
  end.cause = EndCause::lost;
  end.message = "the process that watched the command was killed";
  end.survivors = end_descendants(kPatience);
  return end;
}

}  // namespace escrow::daemon
