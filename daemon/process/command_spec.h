// What a run executes, and how it ended: the messages between the process that hosts a session and the supervisor of
// its command. Plain values.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/process/containment.h"

namespace escrow::daemon {

inline constexpr std::chrono::milliseconds kDefaultGrace{10'000};

struct CommandSpec {
  std::vector<std::string> arguments;    // not empty; the first is looked for in the environment's PATH
  std::vector<std::string> environment;  // "NAME=value"
  std::string working_directory;
  // Set only where they differ from the caller's.
  struct Identity {
    uid_t uid = 0;
    gid_t gid = 0;
    std::vector<gid_t> groups;
  };
  std::optional<Identity> identity;
  // The program that is started runs the command and ignores SIGINT and SIGTERM, which are for the command.
  bool wrapped = false;
  // Its only network is a loopback of its own; see network_namespace.h.
  bool without_network = false;
  // The command is hostile: see hardening.h, also for what `data` is. One with another identity is always kept from
  // what is its caller's.
  bool hardened = false;
  std::vector<std::string> data;
  mode_t umask = 022;
  std::optional<std::chrono::milliseconds> timeout;
  std::chrono::milliseconds grace = kDefaultGrace;  // between the first signal and SIGKILL
  Containment::Method containment = Containment::Method::cgroup_if_possible;
  Containment::Limits limits{};  // of all its processes together
  // Where its output is kept (output_capture.h); without a directory the command has the caller's.
  struct Output {
    std::string directory;
    std::uint64_t most_bytes = 0;  // of each stream
  } output;
  // The supervisor of a killed host unmounts the session here, and removes the directory if it was made for the run. A
  // command that has its working directory here is started only on that mount.
  std::string mountpoint;
  std::optional<dev_t> device;  // of the mount there
  std::string seen_at;  // where the command sees it, in a view of its own (run_view.h); empty: at its mountpoint
  bool remove_mountpoint = false;
  // The command's container is not below the supervisor, and the one of a killed host removes it:
  // ContainerRuntime::find(). Without a runtime there is none.
  struct Container {
    std::string runtime, session, file;
  } container;
};

// What decided the run; of several the first in time.
enum class EndCause {
  exited,         // by itself; `status`
  signalled,      // died of `signal_number`, which nobody sent through Escrow
  cancelled,      // `signal_number` was sent to the run
  timed_out,
  not_found,      // no such program
  could_not_run,  // found, but not to be executed
  failed,         // Escrow could not prepare it
  lost,           // its supervisor was killed, and it with it
  oom,            // the kernel killed in it: it used up memory_bytes
};

struct CommandEnd {
  EndCause cause = EndCause::failed;
  int status = 0;
  int signal_number = 0;
  std::optional<int> command_status;  // of the command itself, 128+n for signal n; nullopt: it did not run
  std::string message;           // of not_found, could_not_run and failed: a sentence
  std::vector<pid_t> survivors;  // processes that could not be ended
  std::chrono::milliseconds grace_left{0};  // of its time of grace, when it had ended
  bool ran_out_of_processes = false;  // it was refused one, whatever it made of that
  bool keep_result = false;           // asked for or not: the command may have succeeded
};

// A compact form for a socket between two processes of one program.
std::string encode(const CommandSpec& spec);
std::string encode(const CommandEnd& end);
std::string encode(const std::vector<std::string>& texts);
CommandSpec decode_command_spec(std::string_view bytes);
CommandEnd decode_command_end(std::string_view bytes);
std::vector<std::string> decode_texts(std::string_view bytes);

}  // namespace escrow::daemon
