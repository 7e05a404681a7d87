#include "daemon/cli/cli.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/cli/commands/commands.h"
#include "daemon/cli/help.h"
#include "daemon/client/remote_sessions.h"
#include "daemon/host/config.h"
#include "daemon/process/exit_status.h"
#include "session/base/error.h"
#include "session/base/repo_path.h"

namespace escrow::daemon {
namespace {

constexpr const char* kExitStatusHelp =
    "The repository is --repo, else $ESCROW_REPO, else the git repository around the current directory. In the mount\n"
    "of a session its repository and the session itself need not be named.\n"
    "With --host, or $ESCROW_HOST, an escrowd is asked for its sessions, over TLS with the token in $ESCROW_TOKEN.\n"
    "A SESSION may be shortened to any unique prefix of its id.\n"
    "\n"
    "Exit status:\n"
    "  0    done\n"
    "  1    refused as things are: no such session or branch, or its state does not allow it\n"
    "  2    the command line is wrong\n"
    "  122  a commit met conflicting changes; they are listed and nothing is lost\n"
    "  123  nothing was committed: the result awaits approval\n"
    "  125  Escrow, the repository or the machine failed\n"
    "  `escrow run` exits with the status of its command, or 122 to 127: see its help.\n"
    "\n"
    "First steps:\n"
    "  escrow --repo data.git init\n"
    "  escrow --repo data.git import ./dataset --message \"first import\"\n"
    "  escrow --repo data.git run -- python3 train.py\n"
    "  escrow --repo data.git log\n";

struct Command {
  std::string_view name;
  void (*add)(CLI::App& app, const GlobalOptions& options, Action& chosen);
};

// In the order of --help.
constexpr Command kCommands[] = {
    {"init", register_init},
    {"import", register_import},
    {"run", register_run},
    {"mount", register_mount},
    {"unmount", register_unmount},
    {"sessions", register_sessions},
    {"status", register_status},
    {"diff", register_diff},
    {"commit", register_commit},
    {"rollback", register_rollback},
    {"approve", register_approve},
    {"reject", register_reject},
    {"discard", register_discard},
    {"savepoint", register_savepoint},
    {"fork", register_fork},
    {"adopt", register_adopt},
    {"mounts", register_mounts},
    {"update", register_update},
    {"resume", register_resume},
    {"export", register_export},
    {"import-session", register_import_session},
    {"resolve", register_resolve},
    {"log", register_log},
    {"audit", register_audit},
    {"mcp", register_mcp},
    {"policy", register_policy},
    {"cache", register_cache},
    {"gc", register_gc},
    {"doctor", register_doctor},
    {"verify", register_verify},
    {"token", register_token},
    {"version", register_version},
};

bool is_command(std::string_view word) {
  return std::ranges::any_of(kCommands, [&](const Command& command) { return command.name == word; });
}

void complain(const std::string& sentence) {
  const std::string line = "escrow: " + sentence + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

// The first word that is neither an option nor the value of --repo or --host; "" for none.
std::string_view first_word(int argc, char** argv) {
  for (int at = 1; at < argc; ++at) {
    const std::string_view word = argv[at];
    if (word == "--repo" || word == "--host") ++at;
    if (!word.starts_with('-')) return word;
  }
  return "";
}

// The options of all commands take longer to make than many a command takes to do.
void add_commands(CLI::App& app, std::string_view word, const GlobalOptions& options, Action& chosen) {
  const bool needs_all = !is_command(word);
  for (const Command& command : kCommands)
    if (needs_all || command.name == word) command.add(app, options, chosen);
}

// Reads the arguments; nullopt when `chosen` is set and to be done.
std::optional<int> parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::Success& request) {
    return app.exit(request, std::cout, std::cerr);
  } catch (const CLI::ParseError& error) {
    if (const std::string_view word = first_word(argc, argv); !word.empty() && !is_command(word)) {
      complain("there is no command " + session::quote_path(word) + "; `escrow --help` lists them");
      return kExitUsage;
    }
    const std::vector<CLI::App*> parsed = app.get_subcommands();
    const std::string command = parsed.empty() ? std::string() : parsed.front()->get_name() + " ";
    complain(std::string(error.what()) + "; `escrow " + command + "--help` lists what it takes");
    return command == "run " ? kExitEscrowFailed : kExitUsage;
  }
}

int run_guarded(int argc, char** argv) {
  CLI::App app("Escrow: a private, writable view of a git repository for a command, committed or rolled back as one.",
               "escrow");
  app.formatter(std::make_shared<HelpFormatter>());
  GlobalOptions options;
  options.arguments.assign(argv, argv + argc);
  Action chosen;
  app.require_subcommand(1);
  app.fallthrough();
  app.set_version_flag("--version", ESCROW_VERSION);
  app.add_option("--repo", options.repository,
                 "The repository: bare, a work tree, a .git directory, or s3://BUCKET/PREFIX")
      ->type_name("DIR");
  app.add_option("--host", options.host, "Ask an escrowd: unix:///PATH or https://NAME[:PORT]; --repo is a name there")
      ->type_name("URL");
  app.add_flag("-v,--verbose", options.verbose, "Log what is being done to stderr");
  app.add_flag_callback("--manual", [&app] {
    std::cout << manual_of(app);
    throw CLI::Success();
  })->group("");  // for the build, not for people
  app.footer(kExitStatusHelp);
  const std::string_view word = first_word(argc, argv);
  add_commands(app, word, options, chosen);
  if (const std::optional<int> status = parse(app, argc, argv)) return *status;
  const bool is_run = word == "run";
  try {
    if (service_host(options).empty()) options.checkouts_from = place_of_the_user(options);
    const int status = chosen();
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      complain("what was to be printed could not be written to standard output");
      return kExitEscrowFailed;
    }
    return status;
  } catch (const session::Error& error) {
    std::fflush(stdout);
    complain(error.what());
    return is_run ? kExitEscrowFailed : exit_status_of(error);
  }
}

}  // namespace

int run_command_line(int argc, char** argv) noexcept {
  try {
    return run_guarded(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "escrow: internal error: %s\n", error.what());
    return kExitEscrowFailed;
  }
}

}  // namespace escrow::daemon
