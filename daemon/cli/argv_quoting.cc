#include <CLI/CLI.hpp>
#include <algorithm>

#include "daemon/cli/commands/commands.h"

namespace escrow::daemon {
namespace {

// As CLI::Option::_add_result does it (CLI11 2.1 to 2.3).
std::vector<std::string> taken_apart(const std::string& word) {
  if (word.size() < 2 || word.front() != '[' || word.back() != ']') return {word};
  std::vector<std::string> parts = CLI::detail::split_up(word.substr(1, word.size() - 2), ',');
  std::erase(parts, std::string());
  return parts;
}

}  // namespace

std::vector<std::string> words_as_given(const std::vector<std::string>& arguments,
                                        const std::vector<std::string>& words) {
  std::vector<std::string> given;
  auto unexplained = words.rbegin();
  for (auto word = arguments.rbegin(); word != arguments.rend() && unexplained != words.rend(); ++word) {
    std::vector<std::string> parts = taken_apart(*word);
    const auto left = static_cast<std::size_t>(words.rend() - unexplained);
    if (parts.size() > left || !std::equal(parts.rbegin(), parts.rend(), unexplained)) parts = {*word};
    if (parts.size() == 1 && parts.front() == *word && *unexplained != *word) return words;  // not a list after all
    unexplained += static_cast<std::ptrdiff_t>(parts.size());
    given.push_back(*word);
  }
  std::reverse(given.begin(), given.end());
  return given;
}

std::vector<std::string> words_before_flags(std::vector<std::string> arguments, const std::vector<std::string>& words) {
  while (!arguments.empty() && (arguments.back() == "-v" || arguments.back().starts_with("--"))) arguments.pop_back();
  return words_as_given(arguments, words);
}

std::vector<std::string> given_options(const CLI::App& command, const std::vector<std::string>& names) {
  std::vector<std::string> given;
  for (const std::string& name : names)
    if (command.get_option(name)->count() > 0) given.push_back(name);
  return given;
}

}  // namespace escrow::daemon
