// The service of Escrow.
#include "daemon/service/escrowd.h"

int main(int argc, char** argv) { return escrow::daemon::run_escrowd(argc, argv); }
