// The container volumes that escrowd's plugin made, and their mounts: one for each time a container got the volume.
// What became of a mount's session is in the session's record; a mount is kept from before its session exists until
// that has ended. <state>/volumes.db: WAL, synchronous=FULL.
//
// Thread-safe (one connection behind a lock); one process at a time. What a method changed is on disk when it returns.
// Throws Error{no_space}, {damaged_repository}, {newer_state}.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "session/base/ids.h"
#include "session/base/synchronized.h"
#include "session/interfaces/session_record.h"

namespace escrow::storage {

class VolumeStore {
 public:
  // Creates the database when it is missing.
  explicit VolumeStore(const std::string& database_path);
  ~VolumeStore();

  struct Volume {
    std::string name;
    std::map<std::string, std::string> options;  // as they were given
    std::int64_t created_s = 0;                  // since the epoch
  };
  void add(const Volume& volume);
  std::optional<Volume> find(const std::string& name) const;
  std::vector<Volume> list() const;
  void remove(const std::string& name);

  struct Mount {
    session::SessionId session;
    std::string volume{}, repository{};
    std::string mount_id{};  // the runtime's
    std::string path{};      // on this machine
    std::int64_t created_ns = 0;  // since the epoch
    std::string runtime{}, container{};  // whose it is; empty: not known yet
    std::string image{};                 // of the container, with its digest
    std::string shared_with{};           // another container that got the same mount
    int uses = 1;                    // that the runtime has not given back
    bool was_started = false;        // the container, since it has the mount
    int stop_signal = 0;             // by which somebody stopped or killed the container; 0: nobody did
    bool ran_out_of_memory = false;
    bool hides_stops = false;   // its runtime does not tell when somebody stops the container
    bool is_unmounted = false;  // the runtime has given it back
    // How the container ended; `none` as long as that is not known. What comes later changes nothing.
    session::Reason ending = session::Reason::none;
    std::optional<int> exit_code{};
    bool keep_result = false;
    bool has_gap = false;  // its runtime may have forgotten something that happened to the container
  };
  // Adds the mount, or replaces what was known of it.
  void put(const Mount& mount);
  // Oldest first.
  std::vector<Mount> mounts() const;
  std::vector<Mount> mounts_of(const std::string& volume) const;
  void forget(const session::SessionId& session);

  // An event of a runtime that was handled, with all before it. As long as the runtime still knows it, it knows all
  // that came later.
  struct Anchor {
    std::int64_t time_ns = 0;  // since the epoch
    std::string type{}, action{}, subject{};
    bool operator==(const Anchor&) const = default;
  };
  // nullopt: there is none.
  void set_anchor(const std::string& runtime, const std::optional<Anchor>& anchor);
  std::optional<Anchor> anchor(const std::string& runtime) const;

 private:
  struct Connection;
  mutable session::Synchronized<std::unique_ptr<Connection>> connection_;  // self-locking
};

}  // namespace escrow::storage
