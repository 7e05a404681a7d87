// The container runtimes of this machine, asked what has happened to the containers that use volumes. What they say is
// noted with the mounts it concerns; nothing of the runtimes' is kept here that an escrowd after this one would need.
//
// Asking again is always right: events come from the oldest open mount on, and each means the same every time. So there
// is no connection to keep, and after a restart of either side nothing is missed that the runtime still knows. That it
// has forgotten something shows in an answer without the anchor, the newest event of the answer before.
// Thread-safe. Throws what the store throws; a runtime that does not answer is an obstacle, not an error.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api/container_api.h"
#include "daemon/process/memory_watch.h"
#include "session/base/log.h"
#include "session/base/synchronized.h"
#include "storage/database/volume_store.h"

namespace escrow::daemon {

class ContainerWatch {
 public:
  // Both must outlive this. `runtimes` are sockets, "unix:///PATH".
  ContainerWatch(const std::vector<std::string>& runtimes, storage::VolumeStore& store, session::Log& log);

  // What has happened until now is noted.
  void catch_up();
  // Before the first mount: remembers each runtime's newest event, from which on a gap shows.
  void begin();
  // Containers that are not known yet, or have just been started, are looked at, which may have to wait for who works
  // on them. True: there is more to catch up with.
  bool meet_strangers();
  // Asks each runtime whether it keeps events, until it has said yes. May have to wait for one that waits for us.
  void ask_for_events();
  // Throws Error{unavailable} with every obstacle when no runtime answers, or those that do keep no events.
  void require_runtime();
  // Whether a mount's id of that runtime stands for one container alone.
  bool has_exact_ids(const std::string& runtime);
  // Whether the runtimes have told all until the last time they were asked, and it is known of every container that was
  // started since then what it uses.
  bool knows_all(std::int64_t since_ns);

  enum class Presence { running, ended, gone, unknown };
  struct Found {
    Presence presence = Presence::unknown;  // also where its runtime does not answer
    // Once it has ended by itself with this mount, though nobody told: of a container that outlived its runtime.
    std::optional<int> exit_code{};
    bool ran_out_of_memory = false;
  };
  // Of the container of a mount, now.
  Found look(const storage::VolumeStore::Mount& mount);

  // Changes what is noted of an open mount; nothing happens when it is gone.
  void change(const session::SessionId& session, const std::function<void(storage::VolumeStore::Mount&)>& edit);

 private:
  struct Runtime {
    std::string host;
    std::unique_ptr<api::ContainerApi> api;
    std::int64_t seen_ns = 0;
    // The newest event that was handled, and the one that is stored; nullopt: there is none.
    std::optional<storage::VolumeStore::Anchor> anchor, stored_anchor;
    std::size_t anchor_lag = 0;  // events that were handled since the anchor was stored
    std::map<std::string, api::ContainerApi::Container> known;  // containers that were looked at
    std::map<std::string, std::int64_t> strangers;  // that were not; since when
    std::set<std::string> unwatched;  // containers that have started, and whose memory is to be watched
    std::map<std::string, std::unique_ptr<MemoryWatch>> memory;  // null: it had ended before
    std::optional<bool> keeps_events;  // nullopt: it has not said yet
    bool has_answered = false;      // ever; one that is not there has not
    bool keeps_containers = false;  // as it said when it answered first
    std::string obstacle;       // to its last answer
  };
  using Mounts = std::vector<storage::VolumeStore::Mount>;
  void catch_up(Runtime& runtime, Mounts& mounts);
  void note_gaps(const std::vector<api::ContainerApi::Event>& events, Runtime& runtime, Mounts& mounts);
  void move_anchor(const std::vector<api::ContainerApi::Event>& events, Runtime& runtime);
  void handle(const api::ContainerApi::Event& event, Runtime& runtime, Mounts& mounts);
  static bool ran_out_of_memory(const std::string& container, Runtime& runtime);
  bool is_stop(const api::ContainerApi::Event& kill, Runtime& runtime);
  void warn(const storage::VolumeStore::Mount& mount);
  void find_image(const api::ContainerApi::Event& event, Runtime& runtime, storage::VolumeStore::Mount& mount);

  storage::VolumeStore& store_;  // constant references, self-locking
  session::Log& log_;
  session::Synchronized<std::vector<Runtime>> runtimes_;  // held while mounts are changed, too
};

}  // namespace escrow::daemon
