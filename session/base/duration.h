// Lengths of time as people write them: "90s", "5m", "1h30m", "500ms", "2d", or plain seconds ("90", "1.5").
// Pure functions.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace escrow::session {

// Throws Error{bad_request} naming `what` (for example "--timeout") unless `text` is a duration above zero.
std::chrono::milliseconds parse_duration(std::string_view text, std::string_view what);

// The same in words a person reads: "1h30m", "1.5s".
std::string format_duration(std::chrono::milliseconds duration);

}  // namespace escrow::session
