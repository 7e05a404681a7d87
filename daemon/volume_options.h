// The options of a volume, "-o NAME=VALUE": those of POST /v1/sessions with their checks, as text. Pure functions.
#pragma once

#include <map>
#include <string>

#include "daemon/service_sessions.h"

namespace escrow::daemon {

struct VolumeOptions {
  ServiceSessions::Opening opening;
  std::string issuer;  // empty: the service's user
  bool contained_symlinks = true;
};
// Throws api::Problem{unknown_field}, {invalid_value} with one sentence that names the option.
VolumeOptions read_volume_options(const std::map<std::string, std::string>& options);

}  // namespace escrow::daemon
