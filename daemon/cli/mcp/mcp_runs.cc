// The tool that runs a command: in an open session, which stays open, or in a session of its own, as `escrow run`.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "api/json_document.h"
#include "api/text_bytes.h"
#include "daemon/cli/mcp/mcp_sessions.h"
#include "daemon/host/config.h"
#include "daemon/host/run_result.h"
#include "daemon/host/session_run.h"
#include "session/base/error.h"

namespace escrow::daemon {

using api::JsonObject;
using api::McpAnswer;
using api::RequestFields;
using session::Errc;
using session::Error;
using session::SessionRecord;

namespace {

constexpr std::uint64_t kUsualTimeout_s = 600, kMostTimeout_s = 86'400;
constexpr std::uint64_t kUsualOutputBytes = 4'000, kMostOutputBytes = 100'000;
constexpr std::uint64_t kMostKeptBytes = 64 << 20;  // of each stream, while the command runs

// Where the output is while the command runs; gone with this object.
class OutputDirectory {
 public:
  OutputDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "escrow-mcp-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw Error(Errc::unavailable, "cannot make the directory " + name);
    path_ = name;
  }
  ~OutputDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  OutputDirectory(const OutputDirectory&) = delete;
  OutputDirectory& operator=(const OutputDirectory&) = delete;

  const std::string& path() const { return path_; }

  struct Tail {
    std::string text;
    std::uint64_t size_bytes = 0;
    bool has_more = false;  // was written than was kept
  };
  Tail tail(const std::string& name, std::uint64_t most_bytes) const {
    Tail tail;
    const std::string path = path_ + "/" + name;
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    if (!file) return tail;
    tail.size_bytes = static_cast<std::uint64_t>(file.tellg());
    const std::uint64_t taken = std::min(most_bytes, tail.size_bytes);
    file.seekg(static_cast<std::streamoff>(tail.size_bytes - taken));
    tail.text.resize(taken);
    file.read(tail.text.data(), static_cast<std::streamsize>(taken));
    struct stat about {};
    tail.has_more = ::stat(path.c_str(), &about) == 0 && (about.st_mode & 0777) == 0400;
    return tail;
  }

 private:
  std::string path_;
};

struct Wanted {
  std::vector<std::string> command, environment;
  std::uint64_t timeout_s = kUsualTimeout_s, output_bytes = kUsualOutputBytes;
  std::string message;
};

Wanted wanted_run(RequestFields& fields) {
  Wanted wanted;
  const std::optional<std::string> line = fields.text("command");
  const std::optional<std::vector<std::string>> words = fields.texts("argv");
  if (line.has_value() == words.has_value()) {
    fields.refuse("command", "is missing, or given with \"argv\": give a shell's line, or a program and its arguments");
  }
  wanted.command = words ? *words : std::vector<std::string>{"sh", "-c", *line};
  if (wanted.command.empty() || wanted.command.front().empty()) fields.refuse("argv", "names no program");
  for (const std::string& word : wanted.command) {
    if (word.find('\0') != std::string::npos) fields.refuse(words ? "argv" : "command", "has a NUL byte");
  }
  for (const auto& [name, value] : fields.text_map("env")) {
    const bool fits = !name.empty() && name.find('=') == std::string::npos && name.find('\0') == std::string::npos &&
                      value.find('\0') == std::string::npos;
    if (!fits) fields.refuse("env", "has a name that is empty or has a '=', or a NUL byte");
    wanted.environment.push_back(name + "=" + value);
  }
  wanted.timeout_s = fields.number("timeout_s", 1, kMostTimeout_s).value_or(kUsualTimeout_s);
  wanted.output_bytes = fields.number("output_bytes", 0, kMostOutputBytes).value_or(kUsualOutputBytes);
  wanted.message = fields.text("message").value_or("");
  return wanted;
}

std::string how_it_ended(const CommandEnd& end, std::uint64_t timeout_s) {
  switch (end.cause) {
    case EndCause::exited:
      return "exited with status " + std::to_string(end.status);
    case EndCause::signalled:
      return "was killed by signal " + std::to_string(end.signal_number);
    case EndCause::cancelled:
      return "was cancelled";
    case EndCause::timed_out:
      return "was ended after " + std::to_string(timeout_s) + " s (timeout_s)";
    case EndCause::oom:
      return "used up the memory that it may use";
    case EndCause::not_found:
    case EndCause::could_not_run:
    case EndCause::failed:
    case EndCause::lost:
      return end.message.empty() ? "could not be run" : "could not be run: " + end.message;
  }
  return {};
}

}  // namespace

McpAnswer mcp_run_command(const McpSettings& settings, RequestFields& fields) {
  const Wanted wanted = wanted_run(fields);
  std::optional<session::SessionId> within;
  const std::optional<std::string> session = fields.text("session");
  SessionRequest request;
  if (session) {
    McpSessions sessions(settings);
    within = sessions.find(fields).id;
  } else {
    request = mcp_request(settings, fields);
  }
  fields.refuse_others();
  const OutputDirectory output;
  std::vector<std::string> said;
  SessionRun::Settings run_settings;
  run_settings.repository = settings.repository;
  run_settings.session_options = [&](const session::ReferenceStore& references) {
    return session_options(request, references, "sandbox");
  };
  run_settings.create_branch = request.branch.empty();
  run_settings.within = within;
  run_settings.view = within ? SessionRequest() : request;
  run_settings.command = wanted.command;
  run_settings.environment = wanted.environment;
  run_settings.identity = identity_of(request.uid.value_or(::getuid()), request.gid.value_or(::getgid()));
  run_settings.timeout = std::chrono::seconds(wanted.timeout_s);
  run_settings.output = {.directory = output.path(), .most_bytes = kMostKeptBytes};
  run_settings.message = wanted.message;
  run_settings.who = current_principal();
  run_settings.confined = true;
  run_settings.network = settings.network;
  run_settings.say = [&](const std::string& sentence) { said.push_back(sentence); };
  SessionRun run(std::move(run_settings));
  run.execute();
  const api::RunResult& result = run.result();
  const SessionRecord& record = *result.record;
  JsonObject document;
  document.text("session", record.id.text()).text("command", how_it_ended(run.end(), wanted.timeout_s));
  if (result.command_status) document.number("exit_code", static_cast<std::uint64_t>(*result.command_status));
  document.text("state", name_of(record.state));
  if (record.reason != session::Reason::none) document.text("reason", name_of(record.reason));
  if (!within) document.counts("counts", result.counts);
  if (record.commit) document.id("commit", record.commit);
  if (record.result) document.id("result", record.result);
  if (!result.conflicts.empty()) document.conflicts("conflicts", result.conflicts);
  if (!result.omitted.empty()) document.omissions("left_out_of_the_commit", result.omitted);
  if (!result.error.empty()) document.text("error", result.error);
  if (!said.empty()) document.texts("warnings", said);
  McpAnswer answer;
  for (const char* name : {"stdout", "stderr"}) {
    OutputDirectory::Tail tail = output.tail(name, wanted.output_bytes);
    document.number(std::string(name) + "_bytes", tail.size_bytes);
    if (tail.has_more) document.flag(std::string(name) + "_has_more_than_was_kept", true);
    if (tail.text.empty()) continue;
    const bool is_tail = tail.text.size() < tail.size_bytes;
    answer.texts.push_back(std::string(name) + (is_tail ? " (its last bytes):\n" : ":\n") + api::lossy_text(tail.text));
  }
  run.tidy();
  answer.document = document.text();
  answer.is_error = !result.error.empty();
  return answer;
}

}  // namespace escrow::daemon
