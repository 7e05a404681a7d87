// A command that sees nothing of the machine but the mount and what a program needs to start (H1): how bubblewrap is
// asked for it.
//
// Reads the machine (which of /bin and /lib are links, /etc/alternatives); changes nothing. Throws Error{unavailable}
// with what to install or turn on, Error{bad_request} for a mountpoint and for more words than fit. Sources: bwrap(1),
// user_namespaces(7); what of /proc is masked are the defaults of the OCI runtime specification (config-linux.md) and
// what else root could read.
#pragma once

#include <string>
#include <vector>

#include "daemon/process/command_spec.h"

namespace escrow::daemon {

// Empty: not installed.
std::string find_bubblewrap();

inline constexpr const char* kSandboxMountpoint = "/sandbox";

// Where a command that does not see this machine's files finds the objects of the repository.
inline constexpr const char* kObjectsInside = "/run/escrow/objects";

// What a confined command finds, for the help.
extern const char* const kConfinementHelp;

struct Confinement {
  std::string mountpoint = kSandboxMountpoint;  // of the session, as the command sees it
  std::string objects;                          // of a repository, for git inside: read-only; empty: none
  bool network = false;                         // the host's; else none but a loopback of its own
};

// Throws unless bubblewrap is installed and the kernel gives user namespaces.
void check_can_confine();
// Throws unless a command can be without a network (network_namespace.h).
void check_can_cut_network();

// Throws unless `path` can be a mountpoint in the sandbox: absolute, plain, and not where the system is.
void check_sandbox_mountpoint(const std::string& path);

// Throws unless a confined command can be started with these words and, beside its usual variables, `given`.
void check_sandbox_command(const std::vector<std::string>& command, const std::vector<std::string>& given);

// The environment a confined command begins with: a search path, HOME, language and terminal.
std::vector<std::string> confined_environment();

// What a command with these limits has to get as a confined one, whose sandbox takes processes, too.
Containment::Limits limits_when_confined(Containment::Limits limits);
// Makes of a command over the mount `spec.working_directory` one that is confined. What is started outside has a fixed
// environment: the command's own exists inside only.
void confine(CommandSpec& spec, const Confinement& confinement);

}  // namespace escrow::daemon
