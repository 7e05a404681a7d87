#include "session/transaction/savepoint_rules.h"

#include <algorithm>
#include <cctype>

#include "session/base/error.h"
#include "session/base/repo_path.h"

namespace escrow::session {
namespace {

constexpr std::size_t kLongestName = 64;

bool is_letter_or_digit(char byte) { return std::isalnum(static_cast<unsigned char>(byte)) != 0; }

}  // namespace

void check_savepoint_name(std::string_view name) {
  const auto is_allowed = [](char byte) {
    return is_letter_or_digit(byte) || byte == '.' || byte == '_' || byte == '-';
  };
  if (!name.empty() && name.size() <= kLongestName && is_letter_or_digit(name.front()) &&
      std::all_of(name.begin(), name.end(), is_allowed))
    return;
  throw Error(Errc::bad_request, "a savepoint cannot be called " + quote_path(std::string(name.substr(0, 80))) +
                                          ": its name is 1 to 64 letters, digits, '.', '_' and '-', and begins with a "
                                          "letter or a digit");
}

std::string savepoint_context(const SessionRecord& record) {
  std::string context = record.base ? record.base->hex() : "";
  context += '\0';
  for (const Unresolved& one : record.unresolved) context += one.path + '\0';
  return context;
}

std::string new_savepoint_name(std::string_view prefix, const std::vector<Savepoint>& savepoints) {
  for (int number = 1;; ++number) {
    std::string name = std::string(prefix) + std::to_string(number);
    const bool is_taken = std::any_of(savepoints.begin(), savepoints.end(),
                                      [&](const Savepoint& one) { return one.name == name; });
    if (!is_taken) return name;
  }
}

std::string name_before_restore(const std::vector<Savepoint>& savepoints) {
  return new_savepoint_name("before-restore-", savepoints);
}

}  // namespace escrow::session
