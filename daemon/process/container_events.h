// The events of a run's container, heard from before it is created until it has ended. Docker keeps the newest 256
// events of everything, and none over a restart; so only a stream that has both the start of the container and its end
// proves that there was no stop in between.
//
// Has a thread and a process of the runtime's program of its own. Thread-safe. Throws nothing: what could not be heard
// is missing. Sources: docker-events(1), podman-events(1).
#pragma once

#include <chrono>
#include <condition_variable>
#include <string>
#include <thread>
#include <vector>

#include "daemon/process/container_runtime.h"
#include "daemon/process/file_descriptor.h"
#include "session/base/clock.h"
#include "session/base/synchronized.h"

namespace escrow::daemon {

class ContainerEvents {
 public:
  // Of the containers labelled with this session. `runtime` must outlive this.
  ContainerEvents(const ContainerRuntime& runtime, const std::string& session, const session::Timestamp& since);
  ~ContainerEvents();
  ContainerEvents(const ContainerEvents&) = delete;
  ContainerEvents& operator=(const ContainerEvents&) = delete;

  struct Heard {
    bool is_whole = false;  // from the container's start to its end
    int stop_signal = 0;    // by which somebody asked it to end through the runtime; 0: nobody did that was heard
  };
  // Of a container that has ended, by its id; waits for the event of its end as long as the stream goes on, at most
  // `patience`. `its_stop_signal` is what it asks to be stopped with, 0: it does not say.
  Heard until_end(const std::string& container, int its_stop_signal, std::chrono::milliseconds patience);

 private:
  struct Stream {
    std::vector<ContainerRuntime::Event> events;
    bool has_ended = false;
  };

  const FileDescriptor stopping_;  // an eventfd
  session::Synchronized<Stream> stream_;
  std::condition_variable changed_;  // with stream_
  std::thread thread_;
};

}  // namespace escrow::daemon
