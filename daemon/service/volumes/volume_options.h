// The options of a volume, "-o NAME=VALUE": the fields of a SessionRequest as text, repository and timeout.
#pragma once

#include <map>
#include <string>

#include "daemon/service/sessions/service_sessions.h"

namespace escrow::daemon {

using VolumeOptions = ServiceSessions::OpenRequest;
// Throws api::Problem{unknown_field}, {invalid_value} with one sentence that names the option.
VolumeOptions read_volume_options(const std::map<std::string, std::string>& options);

}  // namespace escrow::daemon
