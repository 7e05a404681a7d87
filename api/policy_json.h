// A policy as it is written, in JSON:
//
//   {"default": "deny",
//    "rules": [{"effect": "allow", "actions": ["read", "list"], "paths": ["/"]},
//              {"effect": "deny", "actions": ["read", "write"], "paths": ["secrets/", "*.key"]}]}
//
// Strict: anything that is not understood is refused, because a rule that is left out allows too much or too little. A
// pure function. Throws Error{bad_request}: "FILE:LINE:COLUMN: " and the reason.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "session/decorators/access_policy.h"

namespace escrow::api {

inline constexpr std::size_t kMaxPolicy_bytes = std::size_t{1} << 20;

// `file` is what the policy is called in messages.
session::PolicyDocument parse_policy(std::string_view text, const std::string& file);

}  // namespace escrow::api
