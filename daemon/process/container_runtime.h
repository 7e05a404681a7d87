// docker or podman, by its own command line: what is asked of it and what its answers mean.
//
// Thread-safe; each call runs the program once or twice. Throws Error{unavailable} with the program's own complaint.
// Sources: docker-image-inspect(1), docker-events(1) and their podman twins; docker's exit statuses 125 to 127.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "daemon/process/program_output.h"
#include "session/base/clock.h"

namespace escrow::daemon {

class ContainerRuntime {
 public:
  // "docker", "podman", or "auto": the first of the two that answers.
  explicit ContainerRuntime(const std::string& wanted);
  // The one of that name, which has answered before; it is not asked now. A program of it that runs at the deadline is
  // killed, and could not do what it was to do.
  static ContainerRuntime known(const std::string& program, std::chrono::steady_clock::time_point deadline);

  const std::string& program() const noexcept { return program_; }
  // It goes on making a container after the program that asked for it was killed.
  bool has_server() const noexcept { return program_ == "docker"; }
  // Podman keeps nothing of `podman stop`: a container that traps the signal and exits with 0 ended by itself. Only a
  // stop signal that cannot be trapped tells them apart.
  bool records_stops() const noexcept { return program_ == "docker"; }

  // Podman tells the number of a container's process in a file (--pidfile), docker the container's id (--cidfile).
  bool writes_process() const noexcept { return program_ != "docker"; }

  struct Image {
    std::string id;      // immutable: what is run
    std::string digest;  // "name@sha256:..." of the manifest where the image came from a registry, else of its id
    std::string user;    // that its containers run as: "", "1000", "1000:1000", "name"
  };
  enum class Pull { never, missing };
  // Throws Error{not_found} for one that is not there.
  Image image(const std::string& name, Pull pull) const;

  // What a file of the image says, at most its first 1 MiB; empty: it is not there. A container is made for it, and
  // never started.
  std::string file_of(const Image& image, const std::string& path) const;

  struct State {
    bool is_running = false;  // paused or not
    bool is_paused = false;
    bool has_started = false;
    bool ran_out_of_memory = false;
    int exit_code = 0;
    std::string image;    // its id
    int stop_signal = 0;  // that it asks to be stopped with; 0: it does not say
    std::string file;     // of --cidfile or --pidfile, as it was started; empty: of neither
  };
  // nullopt: there is no such container.
  std::optional<State> state(const std::string& container) const;

  struct Labelled {
    std::string id;       // 64 hexadecimal digits; a name can be changed
    std::string session;  // the value of its label kSessionLabel
  };
  static constexpr const char* kSessionLabel = "escrow.session";
  // The containers that have the label, those that have ended too; with `session` only those of that value. An image
  // that was made of such a container hands the label on: State::file tells them apart.
  std::vector<Labelled> labelled(const std::string& session = "") const;
  struct Found {
    std::string id;
    State state;
  };
  // The container of a run: it has this label, and was started with this file. nullopt: it was never created, or is
  // gone.
  std::optional<Found> find(const std::string& session, const std::string& file) const;
  struct Event {
    std::string container;  // its id
    std::string action;     // "start"; "kill"; docker's "die" is podman's "died"
    int signal_number = 0;  // of docker's "kill"
  };
  // Tells what happens to the containers with that label (podman: to all), and what has happened since then as far as
  // it is still known: of docker's only starts, stops, kills and ends.
  // Returns when the runtime ends the stream, or `until` (a descriptor) becomes readable.
  void hear_events(const std::string& session, const session::Timestamp& since,
                   const std::function<void(Event)>& hear, int until) const;

  // With its own stop signal, and SIGKILL after `grace`.
  void stop(const std::string& container, std::chrono::milliseconds grace) const;
  // A paused one runs again; anything else stays as it is.
  void unpause(const std::string& container) const;
  // Kills it where it runs, and tries again for a second; also kills what runs in its cgroup though docker knows
  // nothing of it. One that is not there is no error. `container` is its id.
  void remove(const std::string& container) const;
  // Waits until the runtime answers. False: it does not, for that long.
  bool comes_back(std::chrono::milliseconds patience) const;

 private:
  ContainerRuntime() = default;

  ProgramOutput ask(const std::vector<std::string>& arguments) const;

  std::string program_;                                           // constant
  std::chrono::steady_clock::time_point deadline_ = kNoDeadline;  // constant
};

}  // namespace escrow::daemon
