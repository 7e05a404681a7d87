// The documents of the Docker volume plugin protocol, which podman speaks as well. Pure functions. What a runtime sends
// beyond what is known here is ignored. Source: docs.docker.com/engine/extend/plugins_volume.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "session/base/clock.h"

namespace escrow::api {

struct VolumeRequest {
  std::string name;      // of the volume; empty where the request has none
  std::string mount_id;  // of Mount and Unmount
  std::map<std::string, std::string> options;  // of Create
};
// Throws Problem for what is no such document.
VolumeRequest read_volume_request(std::string_view body);

struct VolumeView {
  std::string name, mountpoint;  // of its newest mount; empty: it has none
  session::Timestamp created;
};
std::string volume_activation_json();
std::string volume_capabilities_json();
std::string volume_done_json();
std::string volume_json(const VolumeView& volume);
std::string volumes_json(const std::vector<VolumeView>& volumes);
std::string volume_mountpoint_json(const std::string& mountpoint);
// Why nothing was done: one sentence.
std::string volume_refusal_json(const std::string& why);

}  // namespace escrow::api
