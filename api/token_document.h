// Tokens as escrowd answers them (openapi.yaml), read and shown by the command line. Pure functions; those that read
// throw Error{bad_request} for what is no such document.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "session/base/clock.h"

namespace escrow::api {

struct RemoteToken {
  std::string id, principal, note, created_by, state;
  session::Timestamp created, expires;
};
RemoteToken token_from_json(std::string_view text);
// With the token itself, which was made just now.
std::string to_json(const RemoteToken& token, const std::string& secret);

struct RemoteTokens {
  std::vector<RemoteToken> tokens;
  std::string next;  // empty: this is the last page
};
RemoteTokens tokens_from_json(std::string_view text);
std::string to_json(const std::vector<RemoteToken>& tokens);

}  // namespace escrow::api
