#include "api/session_calls.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "api/json_document.h"
#include "api/json_values.h"
#include "api/problem.h"
#include "api/remote_documents.h"
#include "api/session_json.h"
#include "api/session_routes.h"
#include "api/text_bytes.h"
#include "session/base/overloaded.h"

namespace escrow::api {

using session::Did;
using session::Errc;
using session::Error;

namespace {

constexpr unsigned kFirstRefusal = 300;

SessionRequestLine get(std::string target) { return {.method = "GET", .target = std::move(target), .json = {}}; }

SessionRequestLine post(std::string target, const JsonObject& body) {
  return {.method = "POST", .target = std::move(target), .json = body.text()};
}

SessionRequestLine call_of_savepoint(const std::string& base, const SavepointRequest& request) {
  const std::string all = base + "/savepoints";
  if (request.verb == SavepointVerb::list) return get(all);
  if (request.verb == SavepointVerb::create) return post(all, JsonObject().text("name", request.name));
  if (request.name.empty()) throw Error(Errc::bad_request, "the name of the savepoint is empty");
  const std::string one = all + "/" + percent_encoded(request.name);
  if (request.verb == SavepointVerb::restore) return post(one + "/restore", {});
  return {.method = "DELETE", .target = one, .json = {}};
}

SessionRequestLine call_of_mounts(const std::string& base, const MountsRequest& request) {
  const std::string all = base + "/mounts";
  if (request.verb == MountsVerb::list) return get(all);
  if (request.verb == MountsVerb::remove) {
    if (request.path.empty()) throw Error(Errc::bad_request, "the path of the entry is empty");
    return {.method = "DELETE", .target = all + "/" + percent_encoded(request.path), .json = {}};
  }
  JsonObject body;
  body.documents("entry", {request.entry}).flag("replace", request.verb == MountsVerb::replace);
  if (!request.rights.empty()) body.text("rights", request.rights);
  return post(all, body);
}

SessionRequestLine call_of_finish(const std::string& base, const FinishRequest& request) {
  JsonObject body;
  body.text("reason", session::name_of(request.reason)).text("message", request.message);
  body.flag("keep_result", request.keep_result).text("image", request.image).text("trigger_id", request.trigger_id);
  if (request.exit_code) body.number("exit_code", static_cast<std::uint64_t>(*request.exit_code));
  if (request.only_if_seen) body.flag("only_if_seen", true);
  return post(base + "/finish", body);
}

SessionRequestLine call_of_land(const std::string& base, const LandRequest& request) {
  JsonObject body;
  body.text("fork", request.fork).text("message", request.message).text("reason", session::name_of(request.reason));
  if (request.exit_code) body.number("exit_code", static_cast<std::uint64_t>(*request.exit_code));
  return post(base + "/land", body);
}

std::string diff_target(const DiffRequest& request) {
  std::string target = std::string("/diff?format=") + name_of(request.format);
  if (!request.path.empty()) target += "&path=" + percent_encoded(request.path);
  if (!request.since.empty()) target += "&since=" + percent_encoded(request.since);
  return target;
}

std::string listing_target(const ListFilesRequest& request) {
  std::string target = "/entries?limit=" + std::to_string(request.most_entries);
  if (!request.path.empty()) target += "&path=" + percent_encoded(request.path);
  if (!request.after.empty()) target += "&cursor=" + percent_encoded(encode_cursor(request.after));
  return target;
}

// ---- Answers.

template <typename Number>
Number number_from(std::string_view text, int base, const char* what) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw Error(Errc::bad_request, std::string("the answer has no ") + what);
  }
  return value;
}

std::uint32_t mode_from(std::string_view text) { return number_from<std::uint32_t>(text, 8, "mode of a file"); }

Did did_from(const std::string& name) {
  for (int value = 0; value <= static_cast<int>(Did::type_changed); ++value) {
    if (name == name_of(static_cast<Did>(value))) return static_cast<Did>(value);
  }
  throw Error(Errc::bad_request, "the answer's change \"" + name + "\" is unknown to this version");
}

std::optional<session::TreeEntry> entry_from(const Json& json, const std::string& name,
                                             std::optional<std::uint64_t>& size) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_object()) return std::nullopt;
  const std::optional<session::ObjectId> id = get_id(*found, "id");
  if (!id) throw Error(Errc::bad_request, "the answer has an entry without an id");
  if (found->contains("size") && !(*found)["size"].is_null()) size = get_count(*found, "size");
  return session::TreeEntry{
      .name = {}, .mode = static_cast<session::GitMode>(mode_from(get_bytes(*found, "mode"))), .id = *id};
}

const Json& answer_object(const Json& json) {
  if (!json.is_object()) throw Error(Errc::bad_request, "the answer holds something else than objects");
  return json;
}

ChangesAnswer changes_from(const Json& json) {
  ChangesAnswer answer{.changes = {}, .omitted = omissions_from(get_array(json, "omitted"))};
  for (const Json& entry : get_array(json, "changes")) {
    ChangeResource one{.change = {.path = get_bytes(answer_object(entry), "path"),
                                  .did = did_from(get_bytes(entry, "change")),
                                  .before = {},
                                  .after = {}},
                       .size_before = {},
                       .size_after = {}};
    one.change.before = entry_from(entry, "before", one.size_before);
    one.change.after = entry_from(entry, "after", one.size_after);
    answer.changes.push_back(std::move(one));
  }
  return answer;
}

ListingAnswer listing_from(const Json& json) {
  const auto next = json.find("next");
  ListingAnswer answer{.entries = {}, .is_whole = next == json.end() || next->is_null()};
  for (const Json& entry : get_array(json, "entries")) {
    answer.entries.push_back({.name = get_bytes(answer_object(entry), "name"),
                              .mode = mode_from(get_bytes(entry, "mode")),
                              .size_bytes = get_count(entry, "size")});
  }
  return answer;
}

// Of one that was written or removed.
FileAnswer file_from(const HttpResponse& response) {
  const Json json = parse_object(response.body);
  return {.bytes = {},
          .mode = mode_from(get_bytes(json, "mode")),
          .size_bytes = get_count(json, "size"),
          .version = {},
          .is_new = response.status == 201};
}

FileAnswer part_from(HttpResponse response) {
  std::string version = header_of(response, kVersionHeader);
  if (version.size() >= 2) version = version.substr(1, version.size() - 2);  // its quotation marks
  return {.bytes = std::move(response.body),
          .mode = mode_from(header_of(response, kModeHeader)),
          .size_bytes = number_from<std::uint64_t>(header_of(response, kSizeHeader), 10, "size of a file"),
          .version = std::move(version),
          .is_new = false};
}

DiffEnd diff_end_from(const HttpResponse& response) {
  const std::string omitted = header_of(response, kOmittedHeader);
  if (omitted.empty()) return {};
  return {.omitted = {}, .unnamed = number_from<std::uint64_t>(omitted, 10, "number of files that are left out")};
}

RollbackAnswer rolled_back(RemoteSession session) {
  return {.state = session.view.record.state,
          .reason = session.view.record.reason,
          .warning = std::move(session.warning)};
}

// Committed, or rolled back.
Answer ended(RemoteSession session) {
  if (session.view.record.state == session::State::rolled_back) return rolled_back(std::move(session));
  return commit_answer(std::move(session));
}

}  // namespace

Problem problem_of(const HttpResponse& response) {
  if (response.content_type == "application/problem+json") return problem_from_response(response);
  throw Error(Errc::unavailable, "what answers there is no escrowd: it said " + std::to_string(response.status));
}

bool is_refused(const HttpResponse& response) { return response.status >= kFirstRefusal; }

std::string header_of(const HttpResponse& response, std::string_view name) {
  const auto found = std::ranges::find(response.headers, name, [](const auto& header) { return header.first; });
  return found == response.headers.end() ? std::string() : found->second;
}

SessionRequestLine call_of(const session::SessionId& id, const Request& request) {
  const std::string base = "/v1/sessions/" + id.text();
  return std::visit(
      session::Overloaded{
          [&](const StatusRequest& it) { return get(base + (it.with_changes ? "?with_changes=true" : "")); },
          [&](const CommitRequest& it) {
            JsonObject body;
            if (!it.message.empty()) body.text("message", it.message);
            if (it.include_ignored) body.flag("include_ignored", true);
            return post(base + "/commit", body);
          },
          [&](const RollbackRequest& it) {
            return post(base + "/rollback", JsonObject().flag("keep_result", it.keep_result));
          },
          [&](const DiscardRequest& it) { return post(base + "/discard", JsonObject().texts("paths", it.paths)); },
          [&](const UpdateRequest&) { return post(base + "/update", {}); },
          [&](const DiffRequest& it) { return get(base + diff_target(it)); },
          [&](const ExportRequest&) { return get(base + "/export"); },
          [&](const UnmountRequest&) { return post(base + "/unmount", {}); },
          [&](const FinishRequest& it) { return call_of_finish(base, it); },
          [&](const ChangesRequest&) { return get(base + "/changes"); },
          [&](const ReadFileRequest& it) {
            return get(base + "/files/" + percent_encoded(it.path) + "?offset=" + std::to_string(it.offset) +
                       "&length=" + std::to_string(it.most_bytes));
          },
          [&](const WriteFileRequest& it) {
            const std::string mode = !it.executable ? "" : *it.executable ? "?mode=100755" : "?mode=100644";
            return SessionRequestLine{
                .method = "PUT", .target = base + "/files/" + percent_encoded(it.path) + mode, .json = {}};
          },
          [&](const RemoveFileRequest& it) {
            return SessionRequestLine{
                .method = "DELETE", .target = base + "/files/" + percent_encoded(it.path), .json = {}};
          },
          [&](const TrafficRequest&) { return get(base + "/traffic"); },
          [&](const ResolveRequest& it) {
            if (it.paths.empty()) return get(base + "/unresolved");
            JsonObject body;
            body.texts("paths", it.paths).text("how", session::name_of(it.how));
            return post(base + "/resolve", body);
          },
          [&](const ListFilesRequest& it) { return get(base + listing_target(it)); },
          [&](const SavepointRequest& it) { return call_of_savepoint(base, it); },
          [&](const ForkRequest& it) { return post(base + "/forks", JsonObject().text("fork", it.fork)); },
          [&](const LandRequest& it) { return call_of_land(base, it); },
          [&](const MountsRequest& it) { return call_of_mounts(base, it); },
      },
      request);
}

Answer answer_of(const Request& request, HttpResponse response) {
  if (is_refused(response)) {
    const Problem problem = problem_of(response);
    if (!std::holds_alternative<CommitRequest>(request) || problem.conflicts().empty()) throw Problem(problem);
    CommitAnswer answer;
    answer.conflicts = problem.conflicts();
    return answer;
  }
  const auto document = [&] { return parse_object(response.body); };
  const auto session = [&] { return session_from_json(response.body); };
  return std::visit(
      session::Overloaded{
          [&](const StatusRequest&) -> Answer { return session().view; },
          [&](const CommitRequest&) -> Answer { return commit_answer(session()); },
          [&](const RollbackRequest&) -> Answer { return rolled_back(session()); },
          [&](const FinishRequest&) -> Answer { return ended(session()); },
          [&](const UnmountRequest&) -> Answer { return UnmountAnswer{session().view.record.mountpoint}; },
          [&](const DiscardRequest&) -> Answer { return DiscardAnswer{get_count(document(), "discarded")}; },
          [&](const UpdateRequest&) -> Answer { return update_from(document()); },
          [&](const ResolveRequest&) -> Answer { return resolve_from(document()); },
          [&](const SavepointRequest&) -> Answer { return savepoints_from(document()); },
          [&](const ForkRequest&) -> Answer { return ForkAnswer{}; },
          [&](const LandRequest&) -> Answer { return land_from(document()); },
          [&](const MountsRequest&) -> Answer { return MountsAnswer{mounts_from(get_array(document(), "mounts"))}; },
          [&](const DiffRequest&) -> Answer { return diff_end_from(response); },
          [&](const ExportRequest&) -> Answer { return diff_end_from(response); },
          [&](const ChangesRequest&) -> Answer { return changes_from(document()); },
          [&](const ReadFileRequest&) -> Answer { return part_from(std::move(response)); },
          [&](const WriteFileRequest&) -> Answer { return file_from(response); },
          [&](const RemoveFileRequest&) -> Answer { return file_from(response); },
          [&](const ListFilesRequest&) -> Answer { return listing_from(document()); },
          [&](const TrafficRequest&) -> Answer { return traffic_from_json(response.body); },
      },
      request);
}

}  // namespace escrow::api
