// What became of a run, as `escrow run --result FILE` writes it: one JSON object. Names of files follow protocol.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/mount_view.h"
#include "session/interfaces/session_record.h"
#include "session/overlay/overlay.h"
#include "session/trees/reconcile.h"
#include "session/trees/tree_changes.h"

namespace escrow::api {

struct RunResult {
  // nullopt: Escrow failed before a session was opened, and only `error` says more.
  std::optional<session::SessionRecord> record;
  std::optional<int> command_status;  // of the command, 128+n when signal n killed it; nullopt: it did not run
  int exit_code = 0;                  // of `escrow run`
  session::ChangeCounts counts;
  std::vector<session::Conflict> conflicts;
  std::vector<session::Omission> omitted;  // --exclude's among them
  std::vector<MountEntryView> mounts;      // what was mounted beside the repository
  std::string summary;                     // the last line on stderr
  std::string error;                       // of Escrow's own; empty: none
};

// {"session", "branch", "state", "reason", "base", "commit", "result", "expires", "exit_code", "run_exit_code",
// "counts", "conflicts", "excluded", "omitted": {kind: [paths]}, "mounts", "summary", "error"}
std::string to_json(const RunResult& result);

}  // namespace escrow::api
