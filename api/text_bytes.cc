#include "api/text_bytes.h"

#include "api/json_values.h"

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

}  // namespace escrow::api
