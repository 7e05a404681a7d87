// Requests to the process that hosts a session, its answers, and their JSON form (one document, no newline inside).
//
// Plain values. Names of files are bytes: in JSON "path" is UTF-8, and where the name is not, "path" is lossy and
// "path_base64" is exact. decode_* throw Error{bad_request} for anything malformed, of whatever kind; what a document
// has beyond what is known is ignored, so that a newer client can talk to an older host.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "session/error.h"
#include "session/session.h"
#include "session/session_record.h"

namespace escrow::api {

// ---- Requests. Who asks is never claimed in a request: the server takes it from the socket.
struct StatusRequest {
  bool with_changes = false;  // count what a commit would do, which builds the session's tree
};
struct CommitRequest {
  std::string message;  // empty: the default
};
struct RollbackRequest {
  bool keep_result = false;
};
struct DiscardRequest {
  std::vector<std::string> paths;  // from the repository's root, as a diff shows them
};
struct UpdateRequest {};
enum class DiffFormat { name_status, stat, patch };
struct DiffRequest {
  DiffFormat format = DiffFormat::patch;
  std::string path;  // only this one, with what is below it; empty: all
};
struct UnmountRequest {};
// How the work in a session that waits for its end has ended: success commits by the exit-status rule (a conflict is
// commit_failed), every other reason rolls back. Answered as a commit or a rollback.
struct FinishRequest {
  session::Reason reason = session::Reason::success;
  std::optional<int> exit_code;
  std::string message;      // of the commit
  bool keep_result = false;  // of a rollback
  std::string image, trigger_id;  // for the audit record; both empty: as the session was opened
};
using Request = std::variant<StatusRequest, CommitRequest, RollbackRequest, DiscardRequest, UpdateRequest, DiffRequest,
                             UnmountRequest, FinishRequest>;

// ---- Answers.
// How a mount's opens ("none", "daemon") and bytes ("cached", "passthrough") travel, and one sentence why.
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
};
struct CommitAnswer {
  session::State state = session::State::open;
  session::Reason reason = session::Reason::none;
  std::optional<session::ObjectId> commit;  // nullopt: nothing to commit, conflicts, or awaiting approval
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
// A diff comes as any number of parts, then its end.
struct DiffPart {
  std::string text;  // bytes, as the files have them
};
struct DiffEnd {
  std::vector<session::Omission> omitted;
};
struct UnmountAnswer {
  std::string mountpoint;
};
struct ErrorAnswer {
  session::Errc code = session::Errc::input_output;
  std::string message;
};
using Answer = std::variant<SessionView, CommitAnswer, RollbackAnswer, DiscardAnswer, UpdateAnswer, DiffPart, DiffEnd,
                            UnmountAnswer, ErrorAnswer>;

std::string encode(const Request& request);
std::string encode(const Answer& answer);
Request decode_request(std::string_view text);
Answer decode_answer(std::string_view text);

// What a program reads with --json: the same documents without the envelope.
std::string to_json(const SessionView& view);
std::string to_json(const std::vector<SessionView>& views);
std::string to_json(const CommitAnswer& answer, const std::string& session);
std::string to_json(const RollbackAnswer& answer, const std::string& session);
std::string to_json(const UpdateAnswer& answer, const std::string& session);
std::string to_json(const DiscardAnswer& answer, const std::string& session);

// A stable name for a code, as it appears in answers.
const char* name_of(session::Errc code);
std::optional<session::Errc> errc_from_name(std::string_view name);

}  // namespace escrow::api
