#include "api/refusal.h"

#include <array>
#include <cstdint>
#include <cstdio>
#include <random>

#include "api/json_values.h"

namespace escrow::api {
namespace {

constexpr std::size_t kMostOfPath_bytes = 200, kMostOfDetail_bytes = 1000;

std::string make_request_id() {
  std::random_device source;
  std::array<char, 17> text;
  std::snprintf(text.data(), text.size(), "%08x%08x", source(), source());
  return text.data();
}

// As JSON has it, in quotes and with nothing but ASCII: no line of the log is made by who is refused.
std::string printable(std::string_view text, std::size_t most) {
  const bool is_cut = text.size() > most;
  return Json(std::string(text.substr(0, most))).dump(-1, ' ', true, Json::error_handler_t::replace) +
         (is_cut ? "..." : "");
}

}  // namespace

void note_refusal(HttpResponse& response, std::string_view method, std::string_view target, std::string_view who,
                  session::Log& log) noexcept {
  if (response.status < 400 || response.content_type != "application/problem+json") return;
  try {
    const std::string id = make_request_id();
    Json document = Json::parse(response.body);
    document["request_id"] = id;
    const std::string detail = document.value("detail", std::string());
    log.write(response.status < 500 ? session::LogLevel::warning : session::LogLevel::error,
              "request " + id + " of " + std::string(who) + ": " + printable(method, kMostOfPath_bytes) + " " +
                  printable(target.substr(0, target.find('?')), kMostOfPath_bytes) + ": " +
                  std::to_string(response.status) + " " + document.value("code", std::string()) + ": " +
                  printable(detail, kMostOfDetail_bytes));
    response.body = dump(document) + "\n";
    response.headers.emplace_back(kRequestIdHeader, id);
  } catch (...) {
    // Without its id it is an answer all the same.
  }
}

void note_dropped(std::string_view method, std::string_view target, std::string_view who, session::Log& log) {
  log.write(session::LogLevel::warning,
            "a request of " + std::string(who) + " was dropped before it began, because its client has gone: " +
                printable(method, kMostOfPath_bytes) + " " +
                printable(target.substr(0, target.find('?')), kMostOfPath_bytes));
}

}  // namespace escrow::api
