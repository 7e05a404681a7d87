#include "api/token_document.h"

#include "api/json_values.h"
#include "session/base/error.h"

namespace escrow::api {

namespace {

RemoteToken token_from(const Json& json) {
  if (!json.is_object()) throw session::Error(session::Errc::bad_request, "the service's answer is malformed");
  return {.id = get_bytes(json, "token"),
          .principal = get_bytes(json, "principal"),
          .note = get_bytes(json, "note"),
          .created_by = get_bytes(json, "created_by"),
          .state = get_bytes(json, "state"),
          .created = get_time(json, "created"),
          .expires = get_time(json, "expires")};
}

Json json_of(const RemoteToken& token) {
  return {{"token", token.id},
          {"principal", token.principal},
          {"note", token.note},
          {"created_by", token.created_by},
          {"created", to_text(token.created)},
          {"expires", to_text(token.expires)},
          {"state", token.state}};
}

}  // namespace

RemoteToken token_from_json(std::string_view text) { return token_from(parse_object(text)); }

std::string to_json(const RemoteToken& token, const std::string& secret) {
  Json json = json_of(token);
  json["secret"] = secret;
  return dump(json);
}

RemoteTokens tokens_from_json(std::string_view text) {
  const Json json = parse_object(text);
  RemoteTokens page{.tokens = {}, .next = get_bytes(json, "next")};
  for (const Json& token : get_array(json, "tokens")) page.tokens.push_back(token_from(token));
  return page;
}

std::string to_json(const std::vector<RemoteToken>& tokens) {
  Json array = Json::array();
  for (const RemoteToken& token : tokens) array.push_back(json_of(token));
  return dump({{"tokens", std::move(array)}});
}

}  // namespace escrow::api
