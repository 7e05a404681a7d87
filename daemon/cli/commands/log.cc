#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <sstream>

#include "api/json_document.h"
#include "daemon/cli/commands/commands.h"
#include "daemon/client/session_source.h"
#include "daemon/console/text_output.h"
#include "daemon/process/exit_status.h"
#include "session/base/repo_path.h"

namespace escrow::daemon {
namespace {

struct LogArguments {
  std::string branch, path;
  std::uint64_t limit = 0;
  bool json = false;
};

constexpr std::string_view kTrailerPrefix = "Escrow-";

std::string printable(std::string_view text) {
  std::string out;
  for (const char letter : text) {
    const unsigned char byte = static_cast<unsigned char>(letter);
    if (letter == '\n' || letter == '\t' || (byte >= 0x20 && byte != 0x7f))
      out += letter;
    else
      out += '?';
  }
  return out;
}

// The message without the audit record, which git finds in its last paragraph: other lines there are its author's. A
// line that begins with a blank goes on with the one before (git-interpret-trailers(1)).
std::string body_of(const storage::LogEntry& entry) {
  std::string text = entry.commit.message;
  const auto is_ours = [](const auto& trailer) { return trailer.first.starts_with(kTrailerPrefix); };
  const std::size_t paragraph = text.rfind("\n\n", text.find_last_not_of('\n'));
  if (paragraph != std::string::npos && std::any_of(entry.trailers.begin(), entry.trailers.end(), is_ours)) {
    std::istringstream lines(text.substr(paragraph));
    text.resize(paragraph);
    bool is_audit = false;
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with(' ') && !line.starts_with('\t')) is_audit = line.starts_with(kTrailerPrefix);
      if (!is_audit) text += line + '\n';
    }
  }
  text.erase(text.find_last_not_of('\n') + 1);
  return text;
}

void print_log_entry(const storage::LogEntry& entry) {
  const session::Signature& author = entry.commit.author;
  std::vector<std::vector<std::string>> rows = {
      {"commit", entry.id.hex()},
      {"  author:", printable(author.name) + " <" + printable(author.email) + ">"},
      {"  date:", human_time(author.time_s, author.offset_minutes)}};
  for (const auto& [name, value] : entry.trailers) {
    if (!name.starts_with(kTrailerPrefix)) continue;
    std::string label = name.substr(kTrailerPrefix.size());
    for (char& letter : label) letter = letter == '-' ? ' ' : static_cast<char>(std::tolower(letter));
    rows.push_back({"  " + label + (entry.is_claimed ? " (claimed):" : ":"), printable(value)});
  }
  print_line(rows[0][0] + " " + rows[0][1]);
  rows.erase(rows.begin());
  print(table(rows));
  print("\n");
  const std::string body = printable(body_of(entry));
  for (std::size_t at = 0; at <= body.size();) {
    const std::size_t end = std::min(body.find('\n', at), body.size());
    print_line(end == at ? "" : "    " + body.substr(at, end - at));
    at = end + 1;
  }
  print("\n");
}

api::JsonObject json_entry(const storage::LogEntry& entry) {
  const session::Signature& author = entry.commit.author;
  api::JsonObject audit;
  for (const auto& [name, value] : entry.trailers) {
    if (name.starts_with(kTrailerPrefix)) audit.text(name, value);
  }
  api::JsonObject json;
  json.id("commit", entry.id)
      .text("author", author.name)
      .text("email", author.email)
      .time("date", {.seconds = author.time_s, .nanoseconds = 0})
      .text("message", body_of(entry))
      .object("audit", std::move(audit))
      .flag("claimed", entry.is_claimed);
  return json;
}

int log(const GlobalOptions& options, const LogArguments& arguments) {
  const std::unique_ptr<SessionSource> source = session_source(options);
  const std::string path = session::RepoPath::parse(arguments.path, "PATH").text();
  std::uint64_t shown = 0;
  source->log(arguments.branch, path, [&](const storage::LogEntry& entry) {
    if (arguments.json)
      print((shown == 0 ? "[" : ",\n") + json_entry(entry).text());
    else
      print_log_entry(entry);
    ++shown;
    return arguments.limit == 0 || shown < arguments.limit;
  });
  if (arguments.json) print(shown == 0 ? "[]\n" : "]\n");
  return kExitSuccess;
}

}  // namespace

void register_log(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  auto arguments = std::make_shared<LogArguments>();
  CLI::App* command = app.add_subcommand("log", "Show a branch's commits with their audit record");
  command->add_option("PATH", arguments->path, "Only commits that changed this file or directory");
  command->add_option("--branch", arguments->branch, "The branch (default: the repository's HEAD)")->type_name("B");
  command->add_option("-n,--limit", arguments->limit, "At most so many")->type_name("N");
  command->add_flag("--json", arguments->json, "Print a JSON array");
  command->footer(
      "The record is part of each commit's message, so that plain `git log` shows it too. \"(claimed)\" marks one\n"
      "that this repository's catalog does not confirm: anybody who can push can have written it, or the session's\n"
      "record is on another machine or older than escrow.auditRetention.\n"
      "\n"
      "Examples:\n"
      "  escrow log -n 5\n"
      "  escrow log --branch experiments models/v2 --json\n");
  command->callback(
      [&options, &chosen, arguments] { chosen = [&options, arguments] { return log(options, *arguments); }; });
}

}  // namespace escrow::daemon
