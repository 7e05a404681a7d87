// The command line of Escrow.
#include "daemon/cli/cli.h"
#include "daemon/process/git_variables.h"

int main(int argc, char** argv) {
  escrow::daemon::leave_git_variables();
  return escrow::daemon::run_command_line(argc, argv);
}
