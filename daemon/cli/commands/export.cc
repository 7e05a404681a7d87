#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "api/json_document.h"
#include "daemon/cli/commands/commands.h"
#include "daemon/client/session_source.h"
#include "daemon/console/text_output.h"
#include "daemon/process/exit_status.h"
#include "daemon/process/file_descriptor.h"
#include "session/base/error.h"
#include "session/base/repo_path.h"
#include "storage/staging/staged_state_file.h"

namespace escrow::daemon {
namespace {

using session::Errc;
using session::Error;

constexpr std::size_t kPieceBytes = std::size_t{256} << 10;
constexpr const char* kStandard = "-";

struct ExportArguments {
  std::string session, file = kStandard;
  bool json = false;
};
struct ImportSessionArguments {
  std::string file = kStandard, branch;
  bool json = false;
};

[[noreturn]] void fail(const std::string& what, const std::string& file, int error) {
  const Errc code = error == ENOSPC ? Errc::no_space : error == ENOENT ? Errc::not_found : Errc::input_output;
  throw Error(code, "cannot " + what + " " + session::quote_path(file) + ": " + std::strerror(error));
}

// Counts what an export holds, for the summary, and checks that it is whole.
class Counted final : public session::StagedParts {
 public:
  void begin(const session::SessionRecord&) override {}
  void removed(const std::string&) override { ++removed_count; }
  void name(const session::StagedName&) override { ++names; }
  void bytes(std::uint64_t, std::span<const std::byte> bytes) override { byte_count += bytes.size(); }
  void left_out(const std::string& path) override {
    if (left_out_count++ == 0) first_left_out = path;
  }
  void end() override {}

  std::uint64_t names = 0, removed_count = 0, byte_count = 0, left_out_count = 0;
  std::string first_left_out;
};

// Beside the file first, so that a name leads to a whole export or to what it led to before.
class Destination {
 public:
  explicit Destination(std::string file) : file_(std::move(file)) {
    struct stat there {};
    is_replaced_ = file_ != kStandard && (::stat(file_.c_str(), &there) != 0 || S_ISREG(there.st_mode));
    if (file_ == kStandard) return;
    path_ = is_replaced_ ? file_ + ".part-" + std::to_string(::getpid()) : file_;
    const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | (is_replaced_ ? O_EXCL : O_TRUNC);
    opened_ = FileDescriptor(::open(path_.c_str(), flags, 0600));
    if (!opened_) fail("write", file_, errno);
  }
  ~Destination() {
    if (is_replaced_ && opened_) ::unlink(path_.c_str());
  }
  Destination(const Destination&) = delete;
  Destination& operator=(const Destination&) = delete;

  void write(std::string_view bytes) const {
    const int to = opened_ ? opened_.get() : STDOUT_FILENO;
    while (!bytes.empty()) {
      const ssize_t done = ::write(to, bytes.data(), bytes.size());
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) fail("write", file_ == kStandard ? "standard output" : file_, errno);
      bytes.remove_prefix(static_cast<std::size_t>(done));
    }
  }
  void finish() {
    if (!is_replaced_) return;
    if (::fsync(opened_.get()) != 0) fail("write", file_, errno);
    if (::rename(path_.c_str(), file_.c_str()) != 0) fail("write", file_, errno);
    is_replaced_ = false;
  }

 private:
  const std::string file_;
  std::string path_;
  bool is_replaced_ = false;
  FileDescriptor opened_;
};

int export_session(const GlobalOptions& options, const ExportArguments& arguments) {
  if (arguments.file == kStandard && ::isatty(STDOUT_FILENO) == 1)
    throw Error(Errc::bad_request, "an exported session is no text; give a FILE, or send the output somewhere");
  const std::unique_ptr<SessionSource> sessions = session_source(options);
  const session::SessionId id = sessions->resolve(arguments.session);
  Destination to(arguments.file);
  Counted counted;
  storage::StagedStateReader check(counted);
  sessions->export_state(id, [&](std::string_view bytes) {
    check.feed(bytes);
    to.write(bytes);
  });
  check.finish();
  to.finish();
  if (counted.left_out_count > 0)
    tell("Left out, as git refuses the name: " + session::quote_path(counted.first_left_out) +
         (counted.left_out_count > 1 ? " and " + std::to_string(counted.left_out_count - 1) + " more" : "") + ".");
  if (arguments.json && arguments.file != kStandard) {
    print_line(api::JsonObject()
                   .text("session", id.text())
                   .text("file", arguments.file)
                   .number("names", static_cast<std::int64_t>(counted.names))
                   .number("removed", static_cast<std::int64_t>(counted.removed_count))
                   .number("bytes", static_cast<std::int64_t>(counted.byte_count))
                   .number("left_out", static_cast<std::int64_t>(counted.left_out_count))
                   .text());
  } else if (arguments.file != kStandard) {
    tell("Exported session " + id.text() + " to " + session::quote_path(arguments.file) + ": " +
         plural(counted.names, "changed name") + ", " + std::to_string(counted.removed_count) +
         " removed. It stays open.");
  }
  return kExitSuccess;
}

int import_session(const GlobalOptions& options, const ImportSessionArguments& arguments) {
  FileDescriptor opened;
  if (arguments.file != kStandard) {
    opened = FileDescriptor(::open(arguments.file.c_str(), O_RDONLY | O_CLOEXEC));
    if (!opened) fail("read", arguments.file, errno);
  }
  const int from = opened ? opened.get() : STDIN_FILENO;
  const std::unique_ptr<SessionSource> sessions = session_source(options);
  const session::SessionRecord record =
      sessions->import_state(arguments.branch, [&](const std::function<void(std::string_view)>& take) {
        std::vector<char> piece(kPieceBytes);
        for (;;) {
          const ssize_t got = ::read(from, piece.data(), piece.size());
          if (got < 0 && errno == EINTR) continue;
          if (got < 0) fail("read", arguments.file == kStandard ? "standard input" : arguments.file, errno);
          if (got == 0) return;
          take({piece.data(), static_cast<std::size_t>(got)});
        }
      });
  const std::string& id = record.id.text();
  if (arguments.json) {
    print_line(api::JsonObject().text("session", id).text("branch", record.options.branch).text());
    return kExitSuccess;
  }
  print_line(id);
  tell("Session " + id + " is open on branch " + session::quote_path(record.options.branch) + "; `escrow mount DIR "
       "--session " + id + "` mounts it.");
  return kExitSuccess;
}

}  // namespace

void register_export(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  auto arguments = std::make_shared<ExportArguments>();
  CLI::App* command = app.add_subcommand("export", "Write what an open session has staged to a file");
  command->add_option("SESSION", arguments->session, "The session, or a unique prefix of its id")->required();
  command->add_option("FILE", arguments->file, "Where to write it; - or nothing: to standard output");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(
      "Names, modes, extended attributes, links, empty directories and bytes, as they are at one moment: the session\n"
      "may be mounted, and goes on. `escrow import-session` opens it in a repository that has the session's base\n"
      "commit. Savepoints, mount entries and names that git refuses (.git) are left out.\n"
      "\n"
      "Example:\n"
      "  escrow export 3f9c work.escrow\n"
      "  escrow export 3f9c - | ssh there escrow --repo data.git import-session\n");
  command->callback([&options, &chosen, arguments] {
    chosen = [&options, arguments] { return export_session(options, *arguments); };
  });
}

void register_import_session(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  auto arguments = std::make_shared<ImportSessionArguments>();
  CLI::App* command = app.add_subcommand("import-session", "Open a session that was exported");
  command->add_option("FILE", arguments->file, "What `escrow export` wrote; - or nothing: standard input");
  command->add_option("--branch", arguments->branch, "The branch that it is to be committed to, instead of its own");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(
      "The repository must have the commit that the session was opened over. A file that was cut short or altered is\n"
      "refused, and nothing of it stays. Prints the new session's id.\n"
      "\n"
      "Example:\n"
      "  id=$(escrow import-session work.escrow) && escrow mount work --session $id\n");
  command->callback([&options, &chosen, arguments] {
    chosen = [&options, arguments] { return import_session(options, *arguments); };
  });
}

}  // namespace escrow::daemon
