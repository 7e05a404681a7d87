// The attributes of a pod's inline volume (volumeAttributes): the fields of a SessionRequest as text, repository and
// timeout. Whoever writes pods reads no file of the node by them: policies and further mounts are not among them. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "daemon/host/session_request.h"

namespace escrow::daemon {

struct VolumeAttributes {
  std::string repository;
  SessionRequest session;
  std::uint64_t timeout_ms = 0;  // 0: none
};

// Without what the kubelet adds ("csi.storage.k8s.io/...").
std::map<std::string, std::string> own_attributes(const std::map<std::string, std::string>& attributes);
// Throws Error{bad_request}, one sentence that names the attribute.
VolumeAttributes read_volume_attributes(const std::map<std::string, std::string>& attributes);

}  // namespace escrow::daemon
