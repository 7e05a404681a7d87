// The driver of Kubernetes' volumes.
#include "daemon/csi/escrow_csi.h"

int main(int argc, char** argv) { return escrow::daemon::run_escrow_csi(argc, argv); }
