// The commands of `escrow`, one file each in this folder.
//
// A register_* function adds its sub-command, options and help to `app`. Parsing does nothing by itself: the
// sub-command's callback stores in `chosen` what is to be done, and cli.cc does it after everything was parsed, inside
// the one catch site. An action returns the exit status (exit_status.h) or throws Error. `options` outlives it.
// Pattern:
//
//   void register_gc(CLI::App& app, const GlobalOptions& options, Action& chosen) {
//     auto arguments = std::make_shared<GcArguments>();
//     CLI::App* command = app.add_subcommand("gc", "Drop what nothing needs");
//     command->add_flag("--json", arguments->json, "Print one JSON object");
//     command->callback([&options, &chosen, arguments] { chosen = [&options, arguments] { return gc(...); }; });
//   }
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "daemon/host/global_options.h"

namespace CLI {
class App;
}

namespace escrow::daemon {

// `words` are the last ones of the command line, as CLI11 gave them to an option that takes several; returns what was
// really typed: "[0-9]" and not "0-9".
std::vector<std::string> words_as_given(const std::vector<std::string>& arguments,
                                        const std::vector<std::string>& words);

// The same where flags may follow them.
std::vector<std::string> words_before_flags(std::vector<std::string> arguments, const std::vector<std::string>& words);

// Those of the options, "--name", that stand in the command's line.
std::vector<std::string> given_options(const CLI::App& command, const std::vector<std::string>& names);

using Action = std::function<int()>;

void register_init(CLI::App& app, const GlobalOptions& options, Action& chosen);
void register_import(CLI::App& app, const GlobalOptions& options, Action& chosen);
void register_run(CLI::App& app, const GlobalOptions& options, Action& chosen);
void register_mount(CLI::App& app, const GlobalOptions& options, Action& chosen);
void register_approve(CLI::App& app, const GlobalOptions& options, Action& chosen);
void register_reject(CLI::App& app, const GlobalOptions& options, Action& chosen);
void register_audit(CLI::App& app, const GlobalOptions& options, Action& chosen);
void register_unmount(CLI::App& app, const GlobalOptions& options, Action& chosen);
void register_sessions(CLI::App& app, const GlobalOptions& options, Action& chosen);
void register_status(CLI::App& app, const GlobalOptions& options, Action& chosen);
void register_diff(CLI::App& app, const GlobalOptions& options, Action& chosen);
void register_commit(CLI::App& app, const GlobalOptions& options, Action& chosen);
void register_rollback(CLI::App& app, const GlobalOptions& options, Action& chosen);
void register_discard(CLI::App& app, const GlobalOptions& options, Action& chosen);
void register_fork(CLI::App& app, const GlobalOptions& options, Action& chosen);
void register_adopt(CLI::App& app, const GlobalOptions& options, Action& chosen);
void register_savepoint(CLI::App& app, const GlobalOptions& options, Action& chosen);
void register_mounts(CLI::App& app, const GlobalOptions& options, Action& chosen);
void register_resume(CLI::App& app, const GlobalOptions& options, Action& chosen);
void register_resolve(CLI::App& app, const GlobalOptions& options, Action& chosen);
void register_update(CLI::App& app, const GlobalOptions& options, Action& chosen);
void register_mcp(CLI::App& app, const GlobalOptions& options, Action& chosen);
void register_log(CLI::App& app, const GlobalOptions& options, Action& chosen);
void register_policy(CLI::App& app, const GlobalOptions& options, Action& chosen);
void register_cache(CLI::App& app, const GlobalOptions& options, Action& chosen);
void register_export(CLI::App& app, const GlobalOptions& options, Action& chosen);
void register_import_session(CLI::App& app, const GlobalOptions& options, Action& chosen);
void register_gc(CLI::App& app, const GlobalOptions& options, Action& chosen);
void register_doctor(CLI::App& app, const GlobalOptions& options, Action& chosen);
void register_token(CLI::App& app, const GlobalOptions& options, Action& chosen);
void register_verify(CLI::App& app, const GlobalOptions& options, Action& chosen);
void register_version(CLI::App& app, const GlobalOptions& options, Action& chosen);

}  // namespace escrow::daemon
