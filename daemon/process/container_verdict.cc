#include "daemon/process/container_verdict.h"

#include <signal.h>

#include <algorithm>
#include <array>

namespace escrow::daemon {

using session::Reason;

bool asks_to_end(int signal_number, int its_stop_signal) {
  static constexpr std::array ending = {SIGTERM, SIGINT, SIGQUIT, SIGKILL, SIGABRT};
  return signal_number == its_stop_signal ||
         std::find(ending.begin(), ending.end(), signal_number) != ending.end();
}

Reason judge(const ContainerEnd& end) {
  if (!end.exit_code) return Reason::host_lost;
  if (end.ran_out_of_memory) return Reason::oom;
  if (end.stop_signal != 0) return Reason::cancelled;
  return *end.exit_code == 0 ? Reason::success : Reason::exit_status;
}

}  // namespace escrow::daemon
