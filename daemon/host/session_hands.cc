#include "daemon/host/session_hands.h"

#include <fstream>
#include <optional>
#include <string_view>

#include "daemon/host/config.h"
#include "session/base/error.h"
#include "session/base/repo_path.h"
#include "storage/disk/durable_file.h"

namespace escrow::daemon {

namespace {

constexpr char kHandsName[] = "/hands";  // one a line, the last one last
constexpr std::string_view kOverApi = " over the API";

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

void write_undurably(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text << std::flush;
  if (!file) throw session::Error(session::Errc::input_output, "cannot write " + path);
}

}  // namespace

std::string hand_of_user(unsigned uid) { return session::quote_path(principal_of(uid)); }

std::string hand_of_command(const std::string& principal) {
  return "a confined command of " + session::quote_path(principal);
}

std::string hand_over_api(const std::string& principal) {
  return session::quote_path(principal) + std::string(kOverApi);
}

bool has_hands(const std::string& session_directory) {
  return !storage::read_if_there(session_directory + kHandsName).value_or("").empty();
}

std::vector<std::string> note_hand(const std::string& session_directory, const std::string& hand, bool is_durable) {
  const std::string path = session_directory + kHandsName;
  const std::string before = storage::read_if_there(path).value_or("");
  std::vector<std::string> others = lines_of(before);
  if (hand.empty() && others.size() == 1 && others.front().ends_with(kOverApi)) return {};
  const std::string noted = hand.empty() ? kUnknownHand : hand;
  std::erase(others, noted);
  std::string text;
  for (const std::string& other : others) text += other + '\n';
  text += noted + '\n';
  if (text != before) is_durable ? storage::write_file_durably(path, text, 0600) : write_undurably(path, text);
  if (hand.empty()) others.push_back(noted);
  return others;
}

void inherit_hands(const std::string& parent_directory, const std::string& fork_directory) {
  const std::optional<std::string> text = storage::read_if_there(parent_directory + kHandsName);
  if (text) storage::write_file_durably(fork_directory + kHandsName, *text, 0600);
}

}  // namespace escrow::daemon
