#include "daemon/cli/cli.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
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

void register_commands(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  register_init(app, options, chosen);
  register_import(app, options, chosen);
  register_run(app, options, chosen);
  register_mount(app, options, chosen);
  register_unmount(app, options, chosen);
  register_sessions(app, options, chosen);
  register_status(app, options, chosen);
  register_diff(app, options, chosen);
  register_commit(app, options, chosen);
  register_rollback(app, options, chosen);
  register_approve(app, options, chosen);
  register_reject(app, options, chosen);
  register_discard(app, options, chosen);
  register_savepoint(app, options, chosen);
  register_fork(app, options, chosen);
  register_adopt(app, options, chosen);
  register_mounts(app, options, chosen);
  register_update(app, options, chosen);
  register_resume(app, options, chosen);
  register_export(app, options, chosen);
  register_import_session(app, options, chosen);
  register_resolve(app, options, chosen);
  register_log(app, options, chosen);
  register_audit(app, options, chosen);
  register_mcp(app, options, chosen);
  register_policy(app, options, chosen);
  register_cache(app, options, chosen);
  register_gc(app, options, chosen);
  register_doctor(app, options, chosen);
  register_verify(app, options, chosen);
  register_token(app, options, chosen);
  register_version(app, options, chosen);
}

void complain(const std::string& sentence) {
  const std::string line = "escrow: " + sentence + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

// The first word that is neither an option nor the value of --repo, when no command has that name.
std::optional<std::string> unknown_command(const CLI::App& app, int argc, char** argv) {
  for (int at = 1; at < argc; ++at) {
    const std::string word = argv[at];
    if (word == "--repo" || word == "--host") ++at;
    if (word.starts_with('-')) continue;
    const auto has_that_name = [&](const CLI::App* command) { return command->get_name() == word; };
    if (!app.get_subcommands(has_that_name).empty()) return std::nullopt;
    return word;
  }
  return std::nullopt;
}

// Reads the arguments; nullopt when `chosen` is set and to be done.
std::optional<int> parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::Success& request) {
    return app.exit(request, std::cout, std::cerr);
  } catch (const CLI::ParseError& error) {
    if (const std::optional<std::string> word = unknown_command(app, argc, argv)) {
      complain("there is no command " + session::quote_path(*word) + "; `escrow --help` lists them");
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
  register_commands(app, options, chosen);
  if (const std::optional<int> status = parse(app, argc, argv)) return *status;
  const bool is_run = app.got_subcommand("run");
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
