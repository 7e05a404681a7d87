// A command in a container over a session's mount: what becomes of a CommandSpec, and how it really ended.
//
// The runtime's own command line is the process that `escrow run` watches; the container is not below it, so its end is
// asked of the runtime, and what still runs is taken away. It is known by its id, found through the label
// escrow.session and the file that it was started with: names can be changed. A stop from outside is a cancellation
// whatever the container makes of the signal; where the runtime's events were not all heard, exit status 0 is doubtful,
// and the result kept. Not thread-safe. Throws Error{bad_request}, {not_found} and {unavailable}
// before anything is opened. Sources: docker-run(1), podman-run(1).
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/process/command_spec.h"
#include "daemon/process/container_events.h"
#include "daemon/process/container_runtime.h"
#include "daemon/process/memory_watch.h"
#include "session/base/clock.h"

namespace escrow::daemon {

struct ContainerOptions {
  std::string image;
  std::string runtime = "auto";
  std::string pull = "missing";
  std::string mountpoint;                    // in the container
  std::string network;                       // "none", "host"; empty: the runtime's default
  std::vector<std::string> runtime_arguments;
  std::optional<uid_t> uid;  // whom the command runs as; else as the image says
  std::optional<gid_t> gid;
};

class Container {
 public:
  // Finds the runtime and the image, and pulls it where that is asked for.
  explicit Container(const ContainerOptions& options);

  // Goes into the audit record.
  const std::string& image_digest() const noexcept { return image_.digest; }
  // Who its command runs as, and so whose the repository's files should be.
  uid_t uid() const noexcept { return uid_; }
  gid_t gid() const noexcept { return gid_; }

  struct View {
    std::string session;
    std::string host_mountpoint;
    std::string directory;  // of the session
    bool read_only = false;
    std::string objects;  // of a repository, for git inside: read-only; empty: none
    Containment::Limits limits;            // of the container; the runtime keeps them
    std::vector<std::string> environment;  // of the command
  };
  // Makes of a command (which may be empty: the image's own) one in a container; also says how the supervisor finds the
  // container of a host that was killed.
  void wrap(CommandSpec& spec, const View& view);
  // Once the runtime's program has ended: corrects `end` to how the container ended, and removes it, whatever the end
  // is. One that still runs has what is left of its time of grace, or where nobody has told it to end yet, all of it; a
  // runtime that does not answer has `grace` to come back. Returns a warning: why the container stays; empty: it is
  // gone.
  std::string settle(CommandEnd& end, std::chrono::milliseconds grace) const;
  // Removes the containers of earlier runs that have ended without them. `directory_of` says where the directory of a
  // session was that has ended, and nothing of any other; `session` is a label that anybody may have written. Returns a
  // warning: why some stay; empty: none does.
  std::string sweep(const std::function<std::optional<std::string>(const std::string& session)>& directory_of) const;

 private:
  std::optional<ContainerRuntime::Found> find() const;
  void correct(CommandEnd& end, std::chrono::milliseconds grace) const;
  void take_user(const std::string& user);
  void take_end(const ContainerRuntime::Found& container, CommandEnd& end) const;
  void check_image(const ContainerRuntime::State& state) const;

  const ContainerOptions options_;  // constant, as what follows up to gid_
  const ContainerRuntime runtime_;
  const ContainerRuntime::Image image_;
  uid_t uid_ = 0;
  gid_t gid_ = 0;
  std::string session_, directory_;  // empty until wrap()
  std::unique_ptr<ContainerEvents> events_;  // null until wrap(), as memory_
  std::unique_ptr<MemoryWatch> memory_;
};

}  // namespace escrow::daemon
