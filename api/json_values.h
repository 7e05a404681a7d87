// How values that JSON has no word for are written: bytes, ids, times. Only for the .cc files of api/.
//
// Reading throws Error{bad_request} naming the member; nothing here lets a nlohmann exception out.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "session/base/clock.h"
#include "session/base/ids.h"

namespace escrow::api {

using Json = nlohmann::ordered_json;

bool is_utf8(std::string_view text);
std::string to_base64(std::string_view bytes);
std::optional<std::string> from_base64(std::string_view text);

// "2026-11-21T04:14:00.000000000Z" (RFC 3339).
std::string to_text(const session::Timestamp& time);

// JSON cannot hold bytes that are not UTF-8. The member `path` shows them as U+FFFD; `path_base64` has the bytes.
inline constexpr const char* kExactSuffix = "_base64";

// `object[name]`, and `object[name_base64]` where the bytes are not UTF-8.
void set_bytes(Json& object, const std::string& name, std::string_view bytes);
// The same for an array of them: `object[name_base64]` has all, where one is not UTF-8.
void set_texts(Json& object, const std::string& name, const std::vector<std::string>& values);
void set_id(Json& object, const std::string& name, const std::optional<session::ObjectId>& id);

// A missing member is the default value; one of the wrong type is refused.
std::string get_bytes(const Json& object, const std::string& name);
bool get_bool(const Json& object, const std::string& name);
std::uint64_t get_count(const Json& object, const std::string& name);
std::optional<std::int64_t> get_integer(const Json& object, const std::string& name);
std::optional<session::ObjectId> get_id(const Json& object, const std::string& name);
std::optional<session::SessionId> get_session(const Json& object, const std::string& name);
session::Timestamp get_time(const Json& object, const std::string& name);
// An array, empty when missing.
const Json& get_array(const Json& object, const std::string& name);

// The whole document; names bad bytes with U+FFFD rather than throwing.
std::string dump(const Json& document);
// Throws Error{bad_request} unless `text` is one JSON object.
Json parse_object(std::string_view text);

}  // namespace escrow::api
