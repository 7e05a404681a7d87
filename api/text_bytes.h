// Bytes for readers that take text: which are UTF-8, base64 for the others, and the percent-encoding of URLs. Pure
// functions. Sources: RFC 3986, RFC 4648.
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

// A component of a path, or a value of a query, percent-encoded.
std::string percent_encoded(const std::string& bytes);
// Without '%'; throws Problem{malformed_request} where two digits are missing behind one.
std::string percent_decoded(std::string_view text);

}  // namespace escrow::api
