// Parses the command line, does what it asks for, and turns every error into one sentence and an exit status.
#pragma once

namespace escrow::daemon {

// The catch site of the command line: throws nothing.
int run_command_line(int argc, char** argv) noexcept;

}  // namespace escrow::daemon
