// What a refused request leaves behind: an id, which its answer has, and one line of the log that begins with it.
#pragma once

#include <string>
#include <string_view>

#include "api/http_message.h"
#include "session/base/log.h"

namespace escrow::api {

// The header of an answer that has an id; the problem's document has it as "request_id".
inline constexpr const char* kRequestIdHeader = "X-Request-Id";

// Does nothing to an answer that is no problem (problem.h). The line names `who`, the method, the path without its
// query, the status, the code and the detail; what does not print in it is escaped. Thread-safe as the log is.
void note_refusal(HttpResponse& response, std::string_view method, std::string_view target, std::string_view who,
                  session::Log& log) noexcept;

// A request that waited until its client had gone.
void note_dropped(std::string_view method, std::string_view target, std::string_view who, session::Log& log);

}  // namespace escrow::api
