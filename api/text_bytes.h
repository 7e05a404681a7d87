// Bytes for readers that take text: which are UTF-8, and base64 for the others. Pure functions.
#pragma once

#include <string>
#include <string_view>

namespace escrow::api {

// Whether the bytes are UTF-8. Unless they are the last ones of a text, a character that is cut in two at their end is
// taken off first.
bool cut_to_text(std::string& bytes, bool is_end);
std::string base64_of(std::string_view bytes);
// UTF-8 as it is; what is not becomes U+FFFD.
std::string lossy_text(std::string_view bytes);

}  // namespace escrow::api
