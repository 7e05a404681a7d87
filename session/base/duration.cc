#include "session/base/duration.h"

#include <charconv>
#include <cmath>
#include <optional>

#include "session/base/error.h"

namespace escrow::session {
namespace {

using std::chrono::milliseconds;

constexpr double kLongestMs = 10.0 * 365 * 24 * 3600 * 1000;  // ten years

// Milliseconds of one unit; nullopt when `unit` is none.
std::optional<double> milliseconds_per(std::string_view unit) {
  if (unit == "ms") return 1;
  if (unit == "s") return 1000;
  if (unit == "m") return 60.0 * 1000;
  if (unit == "h") return 3600.0 * 1000;
  if (unit == "d") return 24 * 3600.0 * 1000;
  return std::nullopt;
}

bool starts_number(char c) { return (c >= '0' && c <= '9') || c == '.'; }

// Takes a number with an optional unit off the front of `rest`; `alone` says that no unit means seconds.
std::optional<double> take_part(std::string_view& rest, bool alone) {
  std::size_t digits = 0;
  while (digits < rest.size() && starts_number(rest[digits])) ++digits;
  double number = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + digits, number, std::chars_format::fixed);
  if (error != std::errc() || end != rest.data() + digits) return std::nullopt;
  rest.remove_prefix(digits);
  std::size_t letters = 0;
  while (letters < rest.size() && !starts_number(rest[letters])) ++letters;
  const std::string_view unit = rest.substr(0, letters);
  rest.remove_prefix(letters);
  if (unit.empty()) return alone && rest.empty() ? std::optional(number * 1000) : std::nullopt;
  const std::optional<double> factor = milliseconds_per(unit);
  return factor ? std::optional(number * *factor) : std::nullopt;
}

std::optional<double> total_ms(std::string_view text) {
  if (text.empty()) return std::nullopt;
  double total = 0;
  for (bool first = true; !text.empty(); first = false) {
    const std::optional<double> part = take_part(text, first);
    if (!part) return std::nullopt;
    total += *part;
  }
  return total;
}

std::string seconds_text(std::int64_t ms) {
  std::string text = std::to_string(ms / 1000);
  if (ms % 1000 != 0) {
    std::string fraction = std::to_string(1000 + ms % 1000).substr(1);
    while (fraction.back() == '0') fraction.pop_back();
    text += "." + fraction;
  }
  return text + "s";
}

}  // namespace

milliseconds parse_duration(std::string_view text, std::string_view what) {
  const std::optional<double> total = total_ms(text);
  if (!total || std::isnan(*total) || *total > kLongestMs) {
    throw Error(Errc::bad_request, std::string(what) + " \"" + std::string(text) +
                                                         "\" is not a length of time; write for example 90s, 5m, "
                                                         "1h30m, 500ms or a number of seconds");
  }
  if (*total < 1) {
    throw Error(Errc::bad_request, std::string(what) + " \"" + std::string(text) +
                                                         "\" must be at least 1ms; leave it out for no limit");
  }
  return milliseconds(std::llround(*total));
}

std::string format_duration(milliseconds duration) {
  std::int64_t ms = duration.count();
  if (ms < 1000) return std::to_string(ms) + "ms";
  std::string text;
  if (ms >= 3600'000) text += std::to_string(ms / 3600'000) + "h";
  ms %= 3600'000;
  if (ms >= 60'000) text += std::to_string(ms / 60'000) + "m";
  ms %= 60'000;
  if (ms > 0) text += seconds_text(ms);
  return text;
}

}  // namespace escrow::session
