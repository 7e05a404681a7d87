// The command line of Escrow.
#include "daemon/cli/cli.h"

int main(int argc, char** argv) { return escrow::daemon::run_command_line(argc, argv); }
