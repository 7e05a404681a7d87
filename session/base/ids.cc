#include "session/base/ids.h"

#include <random>

#include "session/base/hex.h"

namespace escrow::session {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";

}  // namespace

std::optional<ObjectId> ObjectId::from_hex(std::string_view hex) {
  if (hex.size() != 2 * kSize) return std::nullopt;
  Bytes bytes;
  for (std::size_t i = 0; i < kSize; ++i) {
    const int high = hex_value(hex[2 * i]);
    const int low = hex_value(hex[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes[i] = static_cast<std::uint8_t>(high << 4 | low);
  }
  return ObjectId(bytes);
}

std::string ObjectId::hex() const {
  std::string text;
  text.reserve(2 * kSize);
  for (const std::uint8_t byte : bytes_) {
    text += kHexDigits[byte >> 4];
    text += kHexDigits[byte & 15];
  }
  return text;
}

SessionId SessionId::generate() {
  std::random_device device;  // getrandom(2) or RDRAND: ids of concurrent processes do not collide
  std::string text;
  for (std::size_t i = 0; i < kSize; i += 8) {
    std::uint32_t value = device();
    for (int digit = 0; digit < 8; ++digit, value >>= 4) text += kHexDigits[value & 15];
  }
  return SessionId(std::move(text));
}

std::optional<SessionId> SessionId::parse(std::string_view text) {
  if (text.size() != kSize) return std::nullopt;
  for (const char digit : text)
    if (std::string_view(kHexDigits).find(digit) == std::string_view::npos) return std::nullopt;
  return SessionId(std::string(text));
}

}  // namespace escrow::session
