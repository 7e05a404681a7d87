// What escrowd asks a container runtime, over its Docker-compatible API: what has happened since some time, and what
// there is. Docker's own, and that of `podman system service`.
//
// Thread-safe; a request waits for the one of its kind before (events, containers), and for its answer at most
// kPatience. Throws Error{unavailable} naming the socket.
// Sources: Docker Engine API v1.41; podman-system-service(1).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace escrow::api {

class ContainerApi {
 public:
  static constexpr std::chrono::milliseconds kPatience{5'000};

  // "unix:///PATH"
  explicit ContainerApi(const std::string& host);
  ~ContainerApi();

  struct Event {
    std::int64_t time_ns = 0;  // since the epoch, by the machine's clock
    std::string type, action;  // "container", "die"
    std::string subject;       // the id of a container, the name of a volume
    std::map<std::string, std::string> attributes;
  };
  // Throws unless it answers.
  void ping();
  // Whether a mount of a volume is an event of its own that names the container: docker's are.
  bool tells_of_mounts();

  // Whether it keeps any: podman may be set to keep none. Podman looks at all containers for it, and so answers only
  // while it does not wait for us.
  bool keeps_events();
  // All that the runtime still knows of, oldest first: docker keeps the newest 256, podman has a log.
  std::vector<Event> events_since(std::int64_t since_ns);

  struct Container {
    bool is_running = false;
    pid_t process = 0;                // its first, while it runs
    std::int64_t started_ns = 0;      // the last time, since the epoch; 0: never
    std::optional<int> exit_code;     // of that time, once it has ended
    bool ran_out_of_memory = false;
    std::vector<std::string> volumes;  // names
    int stop_signal = 0;       // that it asks to be stopped with; 0: the runtime's own
    bool hides_stops = false;  // nobody is told when it is stopped, and it can make of that what it likes
    std::string image;         // its id, "sha256:..."; the name that it was made with may be another's by now
  };
  // nullopt: there is no such container. Answered when nobody starts or ends it, be it that they wait for us.
  std::optional<Container> container(const std::string& id);
  // Whether containers outlive a restart of the runtime, so that an end that nobody was told of is the container's own.
  bool keeps_containers();
  // The id of its image, "sha256:..."; empty: there is no such container. Docker answers at once.
  std::string image_of(const std::string& container);
  // "name@sha256:..." of the manifest where the image came from a registry, else `name` with the id.
  std::string image_digest(const std::string& id, const std::string& name);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// As a runtime writes a signal: "9", "SIGKILL" or "KILL"; 0: none of them.
int signal_number(std::string_view text);

}  // namespace escrow::api
