// Digits of base 16. Pure functions.
#pragma once

namespace escrow::session {

// 0 to 15, of either case; -1: it is no such digit.
constexpr int hex_value(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

}  // namespace escrow::session
