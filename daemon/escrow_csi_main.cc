// The driver of Kubernetes' volumes.
#include "daemon/csi/escrow_csi.h"
#include "daemon/process/git_variables.h"

int main(int argc, char** argv) {
  escrow::daemon::leave_git_variables();
  return escrow::daemon::run_escrow_csi(argc, argv);
}
