// The verbs of a session as values: requests, answers, and what the command line prints of them with --json.
// session_routes.h and session_calls.h have their form in HTTP.
//
// Plain values. Names of files are bytes: in JSON "path" is UTF-8, and where the name is not, "path" is lossy and
// "path_base64" is exact.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/mount_view.h"
#include "session/base/error.h"
#include "session/interfaces/session_record.h"
#include "session/transaction/session.h"
#include "session/trees/tree_changes.h"

namespace escrow::api {

// ---- Requests.
struct StatusRequest {
  bool with_changes = false;  // count what a commit would do, which builds the session's tree
};
struct CommitRequest {
  std::string message;  // empty: the default
  bool include_ignored = false;
};
struct RollbackRequest {
  bool keep_result = false;
};
struct DiscardRequest {
  std::vector<std::string> paths;  // from the repository's root, as a diff shows them
};
struct UpdateRequest {};
// Settles conflicting paths, or with none lists them.
struct ResolveRequest {
  std::vector<std::string> paths;  // from the repository's root
  session::Settle how = session::Settle::mine;
};
enum class DiffFormat { name_status, stat, patch };
struct DiffRequest {
  DiffFormat format = DiffFormat::patch;
  std::string path;  // only this one, with what is below it; empty: all
  std::string since{};  // a savepoint's name; empty: since the session's base
};
struct UnmountRequest {};
// How the work in a session that waits for its end has ended: success commits by the exit-status rule (a conflict is
// commit_failed), every other reason rolls back. Answered as a commit or a rollback.
struct FinishRequest {
  session::Reason reason = session::Reason::success;
  std::optional<int> exit_code;
  std::string message;      // of the commit
  bool keep_result = false;  // of a rollback
  std::string image, trigger_id;  // for the audit record; empty: as the session was opened
  // A success counts only if the mount was asked for something since it was mounted; else the session is rolled back as
  // not_started and its result kept: the work that succeeded was not in it.
  bool only_if_seen = false;
};
struct ChangesRequest {};
// ---- Of files: paths from the repository's root. They are refused the same as a program in the mount.
struct ReadFileRequest {
  std::string path;
  std::uint64_t offset = 0, most_bytes = 0;
};
struct WriteFileRequest {
  std::string path;
  std::optional<bool> executable;  // nullopt: as it is
  // The content: an open file of the caller's. To a host it goes beside the request (unix(7), SCM_RIGHTS).
  int content = -1;
};
struct RemoveFileRequest {
  std::string path;
};
// A directory's names in their order, at most `most_entries` of those behind `after`.
struct ListFilesRequest {
  std::string path;   // empty: the session's root
  std::string after;  // empty: from the first
  std::uint64_t most_entries = 0;
};
// Makes a savepoint, goes back to it or drops it, or lists them all.
enum class SavepointVerb { list, create, restore, drop };
struct SavepointRequest {
  SavepointVerb verb = SavepointVerb::list;
  std::string name;  // empty for list
};
// ---- Of the holder of a fork to that of its parent, while it waits (session/transaction/forks.h).
// The parent is sealed for the fork, whose directory is there, and fills that.
struct ForkRequest {
  std::string fork;  // its id
};
// The parent takes in what the fork changed.
struct LandRequest {
  std::string fork;
  std::string message;
  session::Reason reason = session::Reason::success;
  std::optional<int> exit_code;
};
// Exports the session's staged state as one file (storage/staging/staged_state_file.h); answered like a diff.
struct ExportRequest {};
// Adds an entry to the mount table of a session, replaces the one at a path or removes it, or lists them all. replace
// adds it where there is none.
enum class MountsVerb { list, add, replace, remove };
struct MountsRequest {
  MountsVerb verb = MountsVerb::list;
  std::string entry;  // to add or to replace: a JSON object
  std::string path;   // to remove
  std::string rights{};  // whose hold on host directories (kept_mounts.h); empty: the host's. Only a service says them
};
// The requests that the mount has served since it was made.
struct TrafficRequest {};
using Request = std::variant<StatusRequest, CommitRequest, RollbackRequest, DiscardRequest, UpdateRequest, DiffRequest,
                             UnmountRequest, FinishRequest, ChangesRequest, ReadFileRequest, WriteFileRequest,
                             RemoveFileRequest, TrafficRequest, ResolveRequest, ListFilesRequest, SavepointRequest,
                             MountsRequest, ExportRequest, ForkRequest, LandRequest>;

// ---- Answers.
// How a mount's opens ("none", "daemon") and bytes ("cached", "writeback", "passthrough") travel, and one sentence why.
struct IoView {
  std::string opens, data, reason;
};
// Calls that were refused, and how many kinds of them are known apart.
struct DenialView {
  std::uint64_t count = 0, kinds = 0;
};
struct SessionView {
  session::SessionRecord record;
  session::Attachment attachment = session::Attachment::none;
  std::optional<session::ObjectId> head;  // of the branch, now
  // Only where they were asked for.
  std::optional<session::ChangeCounts> counts;
  std::optional<session::Overlay::Usage> usage;
  std::vector<session::Omission> omitted;
  std::optional<IoView> io;  // where it is mounted
  std::optional<DenialView> denials;
  std::optional<session::SessionId> resumed_as;  // the newest session that was opened with its result
  // With `counts`, of an open session: what a commit would be refused for, as it and the branch are now.
  std::vector<session::Conflict> would_conflict{};
};
struct CommitAnswer {
  session::State state = session::State::open;
  session::Reason reason = session::Reason::none;
  std::optional<session::ObjectId> commit;  // nullopt: nothing to commit, conflicts, awaiting approval, or landed
  std::optional<session::SessionId> landed_in{};  // of a fork: its parent, which has the changes
  std::optional<session::ObjectId> result;  // that awaits approval
  std::optional<session::Timestamp> expires;
  session::ChangeCounts counts;
  std::vector<session::Conflict> conflicts;
  std::vector<session::Omission> omitted;
  std::string warning;  // for example which processes still hold the mount; empty: none
};
struct RollbackAnswer {
  session::State state = session::State::open;
  session::Reason reason = session::Reason::none;
  std::string warning;
};
struct DiscardAnswer {
  std::uint64_t discarded = 0;  // the paths asked for
};
struct UpdateAnswer {
  std::optional<session::ObjectId> base;
  std::uint64_t merged = 0;
  std::vector<session::Conflict> conflicts;
};
struct ResolveAnswer {
  std::vector<std::string> settled;       // paths
  std::vector<session::Unresolved> left;  // what a commit would still refuse
  std::uint64_t merged = 0;               // paths taken from the head, where the session came onto it
};
// A diff comes as its beginning, any number of parts, and its end; one that has no part may begin with its end.
struct DiffBegin {
  std::uint64_t omitted = 0;  // files that a commit would leave out
};
struct DiffPart {
  std::string text;  // bytes, as the files have them
};
struct DiffEnd {
  std::vector<session::Omission> omitted;
  std::uint64_t unnamed = 0;  // more of them, which a status names
};
struct UnmountAnswer {
  std::string mountpoint;
};
struct ChangeResource {
  session::PathChange change;
  std::optional<std::uint64_t> size_before, size_after;  // of blobs
};
struct ChangesAnswer {
  std::vector<ChangeResource> changes;
  std::vector<session::Omission> omitted;
};
// Of a file that was read, and as it is after it was written or was before it was removed.
struct FileAnswer {
  std::string bytes;
  std::uint32_t mode = 0;  // as git has it
  std::uint64_t size_bytes = 0;
  std::string version;     // another one: the file was changed
  bool is_new = false;     // it was written, and not there before
};
struct ListingAnswer {
  struct Entry {
    std::string name;
    std::uint32_t mode = 0;  // as git has it; 0: git cannot hold it
    std::uint64_t size_bytes = 0;
  };
  std::vector<Entry> entries;
  bool is_whole = true;  // there are none behind the last one
};
struct TrafficAnswer {
  struct Operation {
    std::string name;
    std::uint64_t count = 0;
    std::vector<std::uint64_t> within;  // how many took that long (fuse::kTimeBounds), and longer than all
    double seconds = 0;                 // all together
  };
  std::vector<Operation> operations;
  std::uint64_t staged_bytes = 0;
  std::uint64_t cache_hits = 0, cache_misses = 0;  // storage::CacheCounts
};
struct SavepointsAnswer {
  struct Savepoint {
    std::string name;
    session::Timestamp created;  // whole seconds
  };
  std::vector<Savepoint> savepoints;  // that the session has now, oldest first
  std::string undo;                   // the one that a restore made first; empty: it was none
  std::string warning;                // what a restore has not brought back, in one sentence; empty: there is none
};
struct MountsAnswer {
  std::vector<MountEntryView> mounts;  // that the session has now, beside its repository
};
struct ForkAnswer {};
struct LandAnswer {
  bool has_changed = false;  // the parent
  session::ChangeCounts counts;
  std::vector<session::Conflict> conflicts;  // with any, nothing has
};
using Answer = std::variant<SessionView, CommitAnswer, RollbackAnswer, DiscardAnswer, UpdateAnswer, DiffBegin, DiffPart,
                            DiffEnd, UnmountAnswer, ChangesAnswer, FileAnswer, TrafficAnswer, ResolveAnswer,
                            ListingAnswer, SavepointsAnswer, MountsAnswer, ForkAnswer, LandAnswer>;

// What a program reads with --json: the same documents without the envelope.
std::string to_json(const SessionView& view);
std::string to_json(const std::vector<SessionView>& views);
std::string to_json(const CommitAnswer& answer, const std::string& session);
std::string to_json(const RollbackAnswer& answer, const std::string& session);
std::string to_json(const UpdateAnswer& answer, const std::string& session);
std::string to_json(const DiscardAnswer& answer, const std::string& session);
std::string to_json(const ResolveAnswer& answer, const std::string& session);
std::string to_json(const SavepointsAnswer& answer, const std::string& session);
std::string to_json(const LandAnswer& answer);
std::string to_json(const MountsAnswer& answer, const std::string& session);
std::string to_json(const TrafficAnswer& answer);
// "list", "create", "restore", "drop".
const char* name_of(SavepointVerb verb);
// "list", "add", "replace", "remove".
const char* name_of(MountsVerb verb);
// "name_status", "stat", "patch".
const char* name_of(DiffFormat format);
std::optional<DiffFormat> diff_format_from_name(std::string_view name);

// A stable name for a code, as it appears in answers.
const char* name_of(session::Errc code);
std::optional<session::Errc> errc_from_name(std::string_view name);

}  // namespace escrow::api
