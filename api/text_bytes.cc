#include "api/text_bytes.h"

#include <cctype>

#include "api/json_values.h"
#include "api/problem.h"
#include "session/base/hex.h"

namespace escrow::api {

bool cut_to_text(std::string& bytes, bool is_end) {
  if (is_utf8(bytes)) return true;
  // A character has at most four bytes.
  for (std::size_t cut = 1; !is_end && cut <= 3 && cut < bytes.size(); ++cut) {
    if (!is_utf8(std::string_view(bytes).substr(0, bytes.size() - cut))) continue;
    bytes.resize(bytes.size() - cut);
    return true;
  }
  return false;
}

std::string base64_of(std::string_view bytes) { return to_base64(bytes); }

std::string lossy_text(std::string_view bytes) {
  return Json::parse(dump(Json(std::string(bytes)))).get<std::string>();
}

std::string percent_encoded(const std::string& bytes) {
  static constexpr std::string_view kDigits = "0123456789ABCDEF", kPlain = "-._~";
  std::string text;
  for (const char letter : bytes) {
    const auto byte = static_cast<unsigned char>(letter);
    if ((byte < 0x80 && std::isalnum(byte) != 0) || kPlain.find(letter) != std::string_view::npos) {
      text += letter;
      continue;
    }
    text += '%';
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '%') {
      out += text[at];
      continue;
    }
    const int high = at + 2 < text.size() ? session::hex_value(text[at + 1]) : -1;
    const int low = at + 2 < text.size() ? session::hex_value(text[at + 2]) : -1;
    if (high < 0 || low < 0) {
      throw Problem(ProblemCode::malformed_request, "'" + std::string(text) + "' has a '%' without two digits");
    }
    out += static_cast<char>(high * 16 + low);
    at += 2;
  }
  return out;
}

}  // namespace escrow::api
