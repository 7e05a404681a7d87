// What the events of a container runtime mean for a volume's mount: whose it is, and how its container ended. Pure.
//
// As container_verdict.h has it, and beside that: no other container had the same mount, and the runtime would have
// told of a stop, or the container could not have trapped it; and the runtime has forgotten no event in between. An
// event that comes again changes nothing, and neither does one that is older than the mount. Source: Docker Engine API
// v1.41 (GET /events).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/container_api.h"
#include "storage/database/volume_store.h"

namespace escrow::daemon {

// Whether `mount` changed.
bool apply_event(const api::ContainerApi::Event& event, const std::string& runtime,
                 storage::VolumeStore::Mount& mount);

// Whether it says that a container is started, or has ended.
bool is_start(const api::ContainerApi::Event& event);
bool is_end(const api::ContainerApi::Event& event);

// `container` has the mount's volume, since `time_ns`.
bool give_to_container(const std::string& container, const std::string& runtime, std::int64_t time_ns,
                       storage::VolumeStore::Mount& mount);

// The runtime knows only `events`, oldest first, and has forgotten what was before: notes it, unless these have the
// start of the mount's container. Of a mount whose container is not known any runtime may have forgotten the start: it
// has not if it knows an event from before the mount. Whether `mount` changed.
bool note_gap(const std::vector<api::ContainerApi::Event>& events, const std::string& runtime,
              storage::VolumeStore::Mount& mount);

// As the runtime has it of the container itself, when the event was missed: a stop can have been missed, too.
void end_as_found(std::optional<int> exit_code, bool ran_out_of_memory, storage::VolumeStore::Mount& mount);

// Not by an exit status: nobody used the mount, or nobody knows.
void end_without_verdict(session::Reason reason, bool keep_result, storage::VolumeStore::Mount& mount);

}  // namespace escrow::daemon
