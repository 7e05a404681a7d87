// The service of Escrow.
#include "daemon/process/git_variables.h"
#include "daemon/service/escrowd.h"

int main(int argc, char** argv) {
  escrow::daemon::leave_git_variables();
  return escrow::daemon::run_escrowd(argc, argv);
}
