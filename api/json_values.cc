#include "api/json_values.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>

#include "session/base/error.h"

namespace escrow::api {

using session::Errc;
using session::Error;

namespace {

constexpr std::string_view kBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

[[noreturn]] void refuse_field(const std::string& name, const std::string& expected) {
  throw Error(Errc::bad_request, "the request's \"" + name + "\" is not " + expected);
}

const Json* find(const Json& object, const std::string& name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// Length of the well-formed sequence at `at`, 0 when there is none (Unicode 15, table 3-7).
std::size_t sequence_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t index) {
    return index < text.size() ? static_cast<unsigned char>(text[index]) : 0u;
  };
  const auto continues = [&](std::size_t from, std::size_t count) {
    for (std::size_t index = from; index < from + count; ++index) {
      if ((byte(at + index) & 0xC0u) != 0x80u) return false;
    }
    return true;
  };
  const unsigned first = byte(at), second = byte(at + 1);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return continues(1, 1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool overlong = first == 0xE0 && second < 0xA0;
    const bool surrogate = first == 0xED && second > 0x9F;
    return continues(1, 2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool overlong = first == 0xF0 && second < 0x90;
    const bool beyond = first == 0xF4 && second > 0x8F;
    return continues(1, 3) && !overlong && !beyond ? 4 : 0;
  }
  return 0;
}

}  // namespace

bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = sequence_length(text, at);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

std::string to_base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - at);
    std::uint32_t group = 0;
    for (std::size_t index = 0; index < 3; ++index) {
      group = group << 8 | (index < count ? static_cast<unsigned char>(bytes[at + index]) : 0u);
    }
    for (std::size_t index = 0; index < 4; ++index) {
      out += index <= count ? kBase64[group >> (18 - 6 * index) & 63u] : '=';
    }
  }
  return out;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::string out;
  out.reserve(text.size() / 4 * 3);
  for (std::size_t at = 0; at < text.size(); at += 4) {
    std::size_t padding = 0;
    std::uint32_t group = 0;
    for (std::size_t index = 0; index < 4; ++index) {
      const char letter = text[at + index];
      if (letter == '=' && at + 4 == text.size() && index >= 2) {
        ++padding;
        group <<= 6;
        continue;
      }
      const std::size_t value = kBase64.find(letter);
      if (value == std::string_view::npos || padding != 0) return std::nullopt;
      group = group << 6 | static_cast<std::uint32_t>(value);
    }
    for (std::size_t index = 0; index < 3 - padding; ++index) {
      out += static_cast<char>(group >> (16 - 8 * index) & 255u);
    }
  }
  return out;
}

std::string to_text(const session::Timestamp& time) {
  const std::time_t seconds = time.seconds;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 80> buffer;
  std::snprintf(buffer.data(), buffer.size(), "%04d-%02d-%02dT%02d:%02d:%02d.%09uZ", parts.tm_year + 1900,
                parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                static_cast<unsigned>(time.nanoseconds % 1'000'000'000u));
  return buffer.data();
}

void set_bytes(Json& object, const std::string& name, std::string_view bytes) {
  object[name] = std::string(bytes);
  if (!is_utf8(bytes)) object[name + kExactSuffix] = to_base64(bytes);
}

void set_texts(Json& object, const std::string& name, const std::vector<std::string>& values) {
  object[name] = values;
  if (std::all_of(values.begin(), values.end(), is_utf8)) return;
  Json& exact = object[name + kExactSuffix] = Json::array();
  for (const std::string& value : values) exact.push_back(to_base64(value));
}

void set_id(Json& object, const std::string& name, const std::optional<session::ObjectId>& id) {
  object[name] = id ? Json(id->hex()) : Json(nullptr);
}

std::string get_bytes(const Json& object, const std::string& name) {
  if (const Json* exact = find(object, name + kExactSuffix)) {
    if (!exact->is_string()) refuse_field(name + kExactSuffix, "a string");
    std::optional<std::string> bytes = from_base64(exact->get_ref<const std::string&>());
    if (!bytes) refuse_field(name + kExactSuffix, "base64 (RFC 4648)");
    return *std::move(bytes);
  }
  const Json* text = find(object, name);
  if (text == nullptr) return {};
  if (!text->is_string()) refuse_field(name, "a string");
  return text->get<std::string>();
}

bool get_bool(const Json& object, const std::string& name) {
  const Json* value = find(object, name);
  if (value == nullptr) return false;
  if (!value->is_boolean()) refuse_field(name, "true or false");
  return value->get<bool>();
}

std::uint64_t get_count(const Json& object, const std::string& name) {
  const Json* value = find(object, name);
  if (value == nullptr) return 0;
  if (!value->is_number_unsigned()) refuse_field(name, "a whole number of at least 0");
  return value->get<std::uint64_t>();
}

std::optional<std::int64_t> get_integer(const Json& object, const std::string& name) {
  const Json* value = find(object, name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_integer()) refuse_field(name, "a whole number");
  return value->get<std::int64_t>();
}

std::optional<session::ObjectId> get_id(const Json& object, const std::string& name) {
  const Json* value = find(object, name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse_field(name, "an object id");
  std::optional<session::ObjectId> id = session::ObjectId::from_hex(value->get_ref<const std::string&>());
  if (!id) refuse_field(name, "an object id");
  return id;
}

std::optional<session::SessionId> get_session(const Json& object, const std::string& name) {
  const std::string text = get_bytes(object, name);
  if (text.empty()) return std::nullopt;
  std::optional<session::SessionId> id = session::SessionId::parse(text);
  if (!id) refuse_field(name, "a session id");
  return id;
}

session::Timestamp get_time(const Json& object, const std::string& name) {
  const Json* value = find(object, name);
  if (value == nullptr) return {};
  std::tm parts{};
  unsigned nanoseconds = 0;
  const std::string text = value->is_string() ? value->get<std::string>() : std::string();
  if (std::sscanf(text.c_str(), "%5d-%2d-%2dT%2d:%2d:%2d.%9uZ", &parts.tm_year, &parts.tm_mon, &parts.tm_mday,
                  &parts.tm_hour, &parts.tm_min, &parts.tm_sec, &nanoseconds) != 7) {
    refuse_field(name, "a time such as 2026-11-21T04:14:00.000000000Z");
  }
  parts.tm_year -= 1900;
  parts.tm_mon -= 1;
  return {.seconds = timegm(&parts), .nanoseconds = nanoseconds};
}

const Json& get_array(const Json& object, const std::string& name) {
  static const Json empty = Json::array();
  const Json* value = find(object, name);
  if (value == nullptr) return empty;
  if (!value->is_array()) refuse_field(name, "an array");
  return *value;
}

std::string dump(const Json& document) { return document.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json parse_object(std::string_view text) {
  Json document = Json::parse(text.begin(), text.end(), nullptr, false);
  if (!document.is_object()) throw Error(Errc::bad_request, "the request is not one JSON object");
  return document;
}

}  // namespace escrow::api
