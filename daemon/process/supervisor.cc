#include "daemon/process/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <functional>
#include <thread>
#include <utility>

#include "daemon/process/container_runtime.h"
#include "daemon/process/fresh_mountpoint.h"
#include "daemon/process/program_output.h"
#include "fuse/place.h"

namespace escrow::daemon {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kKilledPatience{20'000};   // for processes that were killed to be gone
constexpr milliseconds kRuntimePatience{20'000};  // for a runtime that makes a container, restarts or hangs
constexpr milliseconds kRuntimePause{100};

FileDescriptor watch_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGCHLD);
  ::sigaddset(&set, SIGTSTP);
  return FileDescriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

// Only the mount of the session: another run may have the path by now. If no helper process can be started, the next
// command of the repository detaches it.
void detach_if_dead(const std::string& mountpoint, std::optional<dev_t> device) noexcept try {
  if (fuse::device_of(mountpoint) != device || !fuse::is_dead_mount(mountpoint)) return;
  if (::umount2(mountpoint.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0) return;
  run_program({"fusermount3", "-u", "-z", "-q", mountpoint});
} catch (const std::exception&) {
}

class Supervisor {
 public:
  Supervisor(MessageChannel channel, const SignalState& signals)
      : channel_(std::move(channel)), signals_(signals), events_(watch_signals()) {}
  // A process on its way into a cgroup would keep it from being removed with `containment_`.
  ~Supervisor() { await_sent_ahead(); }

  // Returns when the host has everything it needs, or is gone.
  void serve();

 private:
  void contain_early(const CommandSpec& spec);
  void contain();
  void await_sent_ahead();
  bool start(const CommandSpec& spec);
  // One wait; false when the host is gone.
  bool step();
  void take_message(const Message& message);
  void take_events();
  void note_change(int status);
  void note_stop(int stop_signal);
  void suspend_with_group();
  void resume();
  void check_deadlines();
  int wait_ms() const;
  void decide(EndCause cause, int signal_number);
  void send_to_command(int signal_number) const { ::kill(-child_, signal_number); }
  void finish();
  void clean_up_after_host();
  // Again and again until it is done, also where the runtime does not answer; but not for too long.
  void ask_runtime_until(const std::function<bool(const ContainerRuntime&)>& is_done) const;
  void await_container();
  void remove_container() const;
  // A killed host leaves a dead mount and its directory. The container is removed before them: a runtime starts none at
  // a dead mount, but does so in the directory below it.
  void take_away_mountpoint();

  MessageChannel channel_;
  const SignalState& signals_;
  FileDescriptor events_;
  Terminal terminal_;
  CommandSpec spec_;
  std::optional<Containment> containment_;
  std::string contained_for_;  // what containment_ was made for
  pid_t sent_ahead_ = 0;
  std::optional<OutputCapture> output_;
  pid_t child_ = -1;
  bool foreground_ = false;  // the command's group has, or is to have, the terminal
  bool running_ = false;
  std::optional<EndCause> decided_;  // the first cause that is not the command's own end
  int cancel_signal_ = 0;
  CommandEnd end_;
  std::optional<steady_clock::time_point> timeout_at_;
  std::optional<steady_clock::time_point> kill_at_, grace_ends_at_;
};

void Supervisor::serve() {
  std::optional<Message> first = channel_.receive();
  if (first && first->kind == MessageKind::contain) {
    contain_early(decode_command_spec(first->body));
    first = channel_.receive();
  }
  if (!first || first->kind != MessageKind::start) return;
  if (!start(decode_command_spec(first->body))) {
    channel_.send(MessageKind::ended, encode(end_));
    channel_.receive();
    return;
  }
  while (running_) {
    if (!step()) return clean_up_after_host();
  }
  finish();
  // Until the host closes its end: if it is killed now, its mount, directory and container are still ours to take away.
  bool is_settled = false;
  while (const std::optional<Message> message = channel_.receive())
    is_settled = is_settled || message->kind == MessageKind::settled;
  containment_.reset();
  if (!is_settled) remove_container();
  take_away_mountpoint();
}

// While the host opens the session.
void Supervisor::contain_early(const CommandSpec& spec) {
  spec_ = spec;
  contain();
  if (!containment_->failure().empty()) return;
  sent_ahead_ = containment_->send_ahead();
}

// It counts against the limits until it has been waited for.
void Supervisor::await_sent_ahead() {
  if (sent_ahead_ > 0) ::waitpid(std::exchange(sent_ahead_, 0), nullptr, 0);
}

void Supervisor::contain() {
  await_sent_ahead();
  CommandSpec like;
  like.containment = spec_.containment;
  like.limits = spec_.limits;
  like.identity = spec_.identity;
  std::string wanted = encode(like);
  if (containment_ && containment_->can_be_made_early() && contained_for_ == wanted) return;
  containment_.reset();
  containment_.emplace(spec_.containment, spec_.limits, spec_.identity ? spec_.identity->uid : ::geteuid());
  contained_for_ = std::move(wanted);
}

bool Supervisor::start(const CommandSpec& spec) {
  spec_ = spec;
  contain();
  output_.emplace(spec_.output);
  for (const std::string& failure : {containment_->failure(), output_->failure()}) {
    if (failure.empty()) continue;
    end_.message = "the command was not started: " + failure;
    return false;
  }
  foreground_ = terminal_.is_interactive();
  // The command can stop this process as soon as it runs: the host's clock runs from here on, too.
  channel_.send(MessageKind::starting, encode(containment_->cgroup_paths()));
  if (spec_.timeout) timeout_at_ = steady_clock::now() + *spec_.timeout;
  const StartedChild started = start_child(spec_, signals_, *containment_, *output_, terminal_, foreground_);
  output_->command_started();
  if (started.pid < 0) {
    end_ = started.failure;
    // The child may have had the terminal already.
    if (foreground_) ::tcsetpgrp(STDIN_FILENO, ::getpgrp());
    return false;
  }
  child_ = started.pid;  // its group took the terminal before it became the command, which may have handed it on by now
  running_ = true;
  channel_.send(MessageKind::started, {});
  return true;
}

bool Supervisor::step() {
  std::vector<pollfd> descriptors = {{channel_.descriptor(), POLLIN, 0}, {events_.get(), POLLIN, 0}};
  output_->watch(descriptors);
  const int ready = ::poll(descriptors.data(), descriptors.size(), wait_ms());
  if (ready > 0 && descriptors[0].revents != 0) {
    const std::optional<Message> message = channel_.receive();
    if (!message) return false;
    take_message(*message);
  }
  if (ready > 0 && descriptors[1].revents != 0) take_events();
  output_->take();
  if (running_) check_deadlines();
  return true;
}

void Supervisor::take_message(const Message& message) {
  if (message.kind != MessageKind::signal) return;
  const int number = std::stoi(message.body);
  // A command that has ended already, but was not waited for yet, ended first.
  take_events();
  if (!running_) return;
  decide(EndCause::cancelled, number);
}

void Supervisor::decide(EndCause cause, int signal_number) {
  if (!decided_) {
    decided_ = cause;
    cancel_signal_ = signal_number;
    kill_at_ = grace_ends_at_ = steady_clock::now() + spec_.grace;
  }
  send_to_command(signal_number);
  send_to_command(SIGCONT);
}

int Supervisor::wait_ms() const {
  std::optional<steady_clock::time_point> next = kill_at_;
  if (!decided_ && timeout_at_) next = timeout_at_;
  if (!next) return -1;
  const auto left = std::chrono::ceil<milliseconds>(*next - steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

void Supervisor::check_deadlines() {
  const auto now = steady_clock::now();
  if (!decided_ && timeout_at_ && now >= *timeout_at_) decide(EndCause::timed_out, SIGTERM);
  if (kill_at_ && now >= *kill_at_) {
    send_to_command(SIGKILL);
    ::kill(child_, SIGKILL);  // it may have left its group
    kill_at_ = now + milliseconds(1000);
  }
}

void Supervisor::take_events() {
  bool stop_requested = false;
  signalfd_siginfo event;
  while (::read(events_.get(), &event, sizeof event) == sizeof event) {
    if (event.ssi_signo == SIGTSTP) stop_requested = true;
  }
  int status = 0;
  for (;;) {
    const pid_t pid = ::waitpid(-1, &status, WNOHANG | WUNTRACED);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) break;
    if (pid == child_) note_change(status);  // the others are orphans that died
  }
  // Ctrl-Z reached our group and not the command's: it is not in the foreground.
  if (stop_requested && running_) {
    send_to_command(SIGTSTP);
    suspend_with_group();
    resume();
  }
}

void Supervisor::note_change(int status) {
  if (WIFSTOPPED(status)) return note_stop(WSTOPSIG(status));
  running_ = false;
  // A command may have kept us from looking at the clock before.
  if (!decided_ && timeout_at_ && steady_clock::now() >= *timeout_at_) decided_ = EndCause::timed_out;
  if (WIFEXITED(status)) {
    end_.cause = EndCause::exited;
    end_.status = WEXITSTATUS(status);
    end_.command_status = end_.status;
  } else {
    end_.cause = EndCause::signalled;
    end_.signal_number = WTERMSIG(status);
    end_.command_status = 128 + end_.signal_number;
  }
}

void Supervisor::note_stop(int stop_signal) {
  if (!terminal_.is_present()) return;
  if ((stop_signal == SIGTTIN || stop_signal == SIGTTOU) && terminal_.is_ours()) {
    // It was started beside the foreground and wants the terminal, which is ours to give.
    foreground_ = true;
    return resume();
  }
  if (decided_) return send_to_command(SIGCONT);
  if (foreground_) terminal_.take_back_from(child_);
  suspend_with_group();
  resume();
}

// As a whole job, so that the shell that started us sees it stopped. The kernel drops the signal when no shell is
// there to continue us.
void Supervisor::suspend_with_group() {
  sigset_t stop;
  ::sigemptyset(&stop);
  ::sigaddset(&stop, SIGTSTP);
  ::kill(0, SIGTSTP);
  ::sigprocmask(SIG_UNBLOCK, &stop, nullptr);  // stopped here
  ::sigprocmask(SIG_BLOCK, &stop, nullptr);    // continued
}

void Supervisor::resume() {
  if (foreground_ && terminal_.is_ours()) terminal_.give_to(child_);
  send_to_command(SIGCONT);
}

void Supervisor::finish() {
  if (decided_) {
    end_.cause = *decided_;
    end_.signal_number = cancel_signal_;
    if (grace_ends_at_) {
      const auto left = std::chrono::duration_cast<milliseconds>(*grace_ends_at_ - steady_clock::now());
      end_.grace_left = std::max(left, milliseconds(0));
    }
  }
  end_.survivors = containment_->end_all(kKilledPatience);
  if (!decided_ && containment_->ran_out_of_memory()) end_.cause = EndCause::oom;
  end_.ran_out_of_processes = containment_->ran_out_of_processes();
  output_->finish();
  if (foreground_) {
    terminal_.take_back_from(child_);
    terminal_.restore_modes();
  }
  channel_.send(MessageKind::ended, encode(end_));
}

void Supervisor::clean_up_after_host() {
  await_container();
  if (containment_) containment_->end_all(kKilledPatience);
  if (output_) output_->finish();
  containment_.reset();
  if (foreground_) {
    terminal_.take_back_from(child_);
    terminal_.restore_modes();
  }
  remove_container();
  take_away_mountpoint();
}

void Supervisor::ask_runtime_until(const std::function<bool(const ContainerRuntime&)>& is_done) const {
  if (spec_.container.runtime.empty()) return;
  const auto deadline = steady_clock::now() + kRuntimePatience;
  const ContainerRuntime runtime = ContainerRuntime::known(spec_.container.runtime, deadline);
  while (true) {
    try {
      if (is_done(runtime)) return;
    } catch (const std::exception&) {
    }
    if (steady_clock::now() >= deadline) return;
    std::this_thread::sleep_for(kRuntimePause);
  }
}

// A server goes on making a container whose program is killed: the program is killed once the container can be found.
void Supervisor::await_container() {
  ask_runtime_until([this](const ContainerRuntime& runtime) {
    take_events();
    return !running_ || !runtime.has_server() || runtime.find(spec_.container.session, spec_.container.file);
  });
}

// If it stays for all that, the next `escrow run --image` of the repository removes it.
void Supervisor::remove_container() const {
  ask_runtime_until([this](const ContainerRuntime& runtime) {
    const auto found = runtime.find(spec_.container.session, spec_.container.file);
    if (found) runtime.remove(found->id);
    return true;
  });
}

void Supervisor::take_away_mountpoint() {
  if (spec_.mountpoint.empty()) return;
  detach_if_dead(spec_.mountpoint, spec_.device);
  if (spec_.remove_mountpoint) remove_fresh_mountpoint(spec_.mountpoint);
}

}  // namespace

void supervise(MessageChannel channel, const SignalState& signals) {
  ::prctl(PR_SET_NAME, "escrow-run", 0, 0, 0);
  {
    Supervisor supervisor(std::move(channel), signals);
    supervisor.serve();
  }
  ::_exit(0);
}

}  // namespace escrow::daemon
