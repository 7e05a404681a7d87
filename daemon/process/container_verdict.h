// What the end of a container means, whoever asks: `escrow run --image`, by the runtime's own command line, and
// volumes, by its events. Pure. Source: signal(7).
//
// Exit status 0 is a success only when no process of the container was killed for want of memory, and nobody asked it
// to end before. A signal that asks for something else (SIGHUP to read a configuration again, SIGUSR1, a terminal's new
// size) is the container's own affair: where it ends the container after all, the exit status says so.
#pragma once

#include <optional>

#include "session/interfaces/session_record.h"

namespace escrow::daemon {

struct ContainerEnd {
  std::optional<int> exit_code;  // nullopt: nobody knows
  bool ran_out_of_memory = false;
  int stop_signal = 0;           // by which somebody asked it to end; 0: nobody did
};

// Whether `signal_number`, sent through the runtime, asks a container to end that asks to be stopped with
// `its_stop_signal`; 0: it does not say.
bool asks_to_end(int signal_number, int its_stop_signal);

session::Reason judge(const ContainerEnd& end);

}  // namespace escrow::daemon
