#include "daemon/process/child_process.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "daemon/process/file_descriptor.h"
#include "daemon/process/hardening.h"
#include "daemon/process/network_namespace.h"
#include "daemon/process/run_view.h"
#include "fuse/place.h"

namespace escrow::daemon {
namespace {

enum class Stage : int { limits, output, view, directory, mount, network, identity, hardening, execute };

// What the child tells when it cannot go on; nothing at all when exec closed the pipe.
struct Report {
  Stage stage;
  int error;
};

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

int take_identity(const CommandSpec::Identity& identity) {
  if (::setgroups(identity.groups.size(), identity.groups.data()) != 0) return errno;
  if (::setresgid(identity.gid, identity.gid, identity.gid) != 0) return errno;
  if (::setresuid(identity.uid, identity.uid, identity.uid) != 0) return errno;
  return 0;
}

// SIGINT and SIGTERM are how a run is cancelled: the command hears them even if Escrow was started with them ignored,
// as shells do for background jobs.
void restore_signals(const SignalState& signals, bool wrapped) {
  for (const int number : {SIGINT, SIGTERM}) ::signal(number, wrapped ? SIG_IGN : SIG_DFL);
  ::signal(SIGTSTP, SIG_DFL);
  ::signal(SIGPIPE, signals.pipe);
  ::sigprocmask(SIG_SETMASK, &signals.mask, nullptr);
}

[[noreturn]] void become_command(const CommandSpec& spec, const SignalState& signals, const Containment& containment,
                                 const OutputCapture& output, const Terminal& terminal, bool foreground,
                                 pid_t supervisor, int report_fd) {
  const auto give_up = [&](Stage stage, int error) {
    const Report report{stage, error};
    const ssize_t written = ::write(report_fd, &report, sizeof report);
    ::_exit(written < 0 ? 126 : 125);
  };
  ::setpgid(0, 0);
  if (foreground) terminal.give_to(::getpid());
  if (const int error = containment.enter()) give_up(Stage::limits, error);
  std::vector<char*> arguments = pointers(spec.arguments);
  std::vector<char*> environment = pointers(spec.environment);
  if (const int error = output.enter()) give_up(Stage::output, error);
  ::umask(spec.umask);
  if (!spec.seen_at.empty()) {
    if (const int error = enter_view(spec.mountpoint, spec.seen_at)) give_up(Stage::view, error);
  }
  // Before the identity changes: a mount in a private directory can still be reached.
  if (::chdir(spec.working_directory.c_str()) != 0) give_up(Stage::directory, errno);
  // Another mount may have come on top since the session's own was made.
  if (spec.device && spec.working_directory == (spec.seen_at.empty() ? spec.mountpoint : spec.seen_at)) {
    const std::optional<dev_t> device = fuse::device_of(".");
    if (device != spec.device) give_up(Stage::mount, device ? 0 : errno);
  }
  // While it may: another user's namespace would need the right to make one.
  if (spec.without_network) {
    if (const int error = leave_network()) give_up(Stage::network, error);
  }
  const Trust trust = spec.hardened ? Trust::hostile : spec.identity ? Trust::another_user : Trust::caller;
  if (trust != Trust::caller) {
    if (const int error = forbid_typing_into_the_terminal(trust)) give_up(Stage::hardening, error);
  }
  if (spec.identity) {
    if (const int error = take_identity(*spec.identity)) give_up(Stage::identity, error);
  }
  if (spec.without_network && ::geteuid() == 0) {
    if (const int error = give_up_ways_back()) give_up(Stage::network, error);
  }
  // A change of identity clears it, so it comes after; the parent may have died before.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (::getppid() != supervisor) ::_exit(125);
  restore_signals(signals, spec.wrapped);
  if (trust != Trust::caller) {
    if (const int error = leave_callers_things(spec.data)) give_up(Stage::hardening, error);
  }
  environ = environment.data();
  ::execvp(arguments[0], arguments.data());
  give_up(Stage::execute, errno);
  ::_exit(125);
}

CommandEnd failure_of(const Report& report, const CommandSpec& spec) {
  const std::string command = "\"" + spec.arguments[0] + "\"";
  const std::string reason = std::strerror(report.error);
  CommandEnd end;
  switch (report.stage) {
    case Stage::limits:
      end.message = "the memory and the processes of the command could not be limited: " + reason;
      break;
    case Stage::output:
      end.message = "the output of the command could not be kept: " + reason;
      break;
    case Stage::view:
      end.message = "the command could not be given the session at " + spec.seen_at +
                    ", in a mount namespace of its own: " + reason;
      break;
    case Stage::directory:
      end.message = "the mount " + spec.working_directory + " could not be entered: " + reason;
      break;
    case Stage::mount:
      end.message = "the command was not started: " + spec.working_directory + " does not lead to the session's mount" +
                    (report.error == 0 ? ", as if something else had been mounted over it" : ": " + reason);
      break;
    case Stage::network:
      end.message = "the command could not be cut off from the network: " + reason;
      break;
    case Stage::identity:
      end.message = "the user and group of --uid and --gid could not be taken on: " + reason +
                    "; only root may run a command as another user";
      break;
    case Stage::hardening:
      end.message = "the command could not be kept from what is its caller's: " + reason;
      break;
    case Stage::execute:
      end.cause = report.error == ENOENT ? EndCause::not_found : EndCause::could_not_run;
      end.message = report.error == ENOENT ? "the command " + command + " was not found"
                                           : "the command " + command + " could not be run: " + reason;
      break;
  }
  return end;
}

StartedChild not_started(const std::string& what) {
  StartedChild result;
  result.failure.message = what + ": " + std::strerror(errno);
  return result;
}

}  // namespace

StartedChild start_child(const CommandSpec& spec, const SignalState& signals, const Containment& containment,
                         const OutputCapture& output, const Terminal& terminal, bool foreground) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return not_started("no pipe could be made for the command");
  FileDescriptor reader(ends[0]);
  FileDescriptor writer(ends[1]);
  const pid_t supervisor = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return not_started("no process could be made for the command");
  if (pid == 0) become_command(spec, signals, containment, output, terminal, foreground, supervisor, writer.get());
  ::setpgid(pid, pid);  // here too: whoever comes first
  writer.reset();
  Report report;
  ssize_t length;
  do {
    length = ::read(reader.get(), &report, sizeof report);
  } while (length < 0 && errno == EINTR);
  StartedChild result;
  if (length == sizeof report) {
    ::waitpid(pid, nullptr, 0);
    result.failure = failure_of(report, spec);
  } else {
    result.pid = pid;
  }
  return result;
}

}  // namespace escrow::daemon
