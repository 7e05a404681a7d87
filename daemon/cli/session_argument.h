// The argument SESSION of the commands: an id, a unique prefix of one, or nothing in the mount of a session.
//
// Not thread-safe. Throws Error{bad_request} where no session is named and the current directory lies in none's mount,
// and what SessionSource::resolve() throws.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/client/session_source.h"
#include "daemon/host/session_here.h"

namespace escrow::daemon {

inline constexpr std::string_view kSessionAndPaths =
    "The session, and files or directories, as `escrow diff` shows them";

// Adds SESSION to `command`, which may be left out.
void add_session(CLI::App& command, std::string& session);

// The session that `text` names; empty: the one in whose mount the current directory lies, else that of the command
// that this process is of ($ESCROW_SESSION, which `escrow run` sets).
session::SessionId the_session(SessionSource& source, const std::string& text);

// For a command that ends a mount: a process whose working directory is in it would keep it busy.
void leave_the_mount();

// Of a command with `SESSION PATH...`: the words that were given, of which the first may name the session.
struct SessionPaths {
  session::SessionId session;
  std::vector<std::string> paths;  // from the root of the mount, or as they were given beside a SESSION
};

// In the mount of a session the first word names another one only when it is a whole id, or the beginning of one and no
// file is called so; else all are paths of this session, from the current directory.
SessionPaths session_and_paths(SessionSource& source, const std::vector<std::string>& words);

// `path`, absolute or from the current directory, from the root of the mount; "." is the root. Throws
// Error{bad_request} for one outside of the mount. By its words only: it need not exist.
std::string path_in_mount(const SessionHere& here, const std::string& path);

}  // namespace escrow::daemon
