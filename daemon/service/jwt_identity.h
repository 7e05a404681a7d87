// For which principal a JSON Web Token stands, by the issuers of the configuration (`jwt_issuers`). Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/service/escrowd_config.h"

namespace escrow::daemon {

struct JwtIdentity {
  std::string principal;
  std::int64_t expires_s = 0;
};
// nullopt: none of the issuers has signed it for this service, it is not its time, no rule fits, or it would be root.
std::optional<JwtIdentity> identity_of_jwt(const EscrowdConfig& config, std::string_view token, std::int64_t now_s);

}  // namespace escrow::daemon
