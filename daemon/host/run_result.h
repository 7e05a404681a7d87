// What the end of a command means for its session, what `escrow run` exits with, and what it tells. Pure.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "api/result_json.h"
#include "daemon/process/command_spec.h"
#include "session/interfaces/session_record.h"

namespace escrow::daemon {

// Why the session of a command that ended like this is rolled back; nullopt: it is to be committed.
std::optional<session::Reason> rollback_reason(const CommandEnd& end);

// The status that the session's record keeps: the command's own, 126 or 127 of one that could not be started.
std::optional<int> recorded_status(const CommandEnd& end);

// Of `escrow run`, by the final record: 0, the command's status, 122 to 127.
int exit_code_of_run(const session::SessionRecord& record, const CommandEnd& end);

struct RunSummary {
  const api::RunResult& result;  // with its record
  const CommandEnd& end;
  std::optional<std::chrono::milliseconds> timeout;
};
// One sentence, without "escrow: ".
std::string summary_of(const RunSummary& run);

// What was left out of a commit, by kind, with the first names of each; with `is_verbose` all of them, without none of
// what is ignored. Empty: nothing was left out.
std::string omissions_sentence(const std::vector<session::Omission>& omitted, bool is_verbose);

// Writes the JSON to `path` through a temporary file beside it and rename(2), or straight into what is no regular
// file. Throws Error{unavailable}.
void write_result(const std::string& path, const api::RunResult& result);
// Before anything is started: could write_result() work? Throws Error{bad_request}.
void check_result_path(const std::string& path);

}  // namespace escrow::daemon
