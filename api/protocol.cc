#include "api/protocol.h"

#include <array>
#include <utility>

#include "api/json_values.h"
#include "api/session_json.h"

namespace escrow::api {

using session::Errc;
using session::Error;

namespace {

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};

const char* format_name(DiffFormat format) {
  switch (format) {
    case DiffFormat::name_status:
      return "name_status";
    case DiffFormat::stat:
      return "stat";
    case DiffFormat::patch:
      return "patch";
  }
  return "patch";
}

DiffFormat diff_format_from(const std::string& name) {
  for (const DiffFormat format : {DiffFormat::name_status, DiffFormat::stat, DiffFormat::patch}) {
    if (name == format_name(format)) return format;
  }
  throw Error(Errc::bad_request, "the request's \"format\" is not name_status, stat or patch");
}

SavepointVerb savepoint_verb_from(const std::string& name) {
  using enum SavepointVerb;
  for (const SavepointVerb verb : {list, create, restore, drop}) {
    if (name == name_of(verb)) return verb;
  }
  throw Error(Errc::bad_request, "the request's \"verb\" is not list, create, restore or drop");
}

Json request_json(const Request& request) {
  return std::visit(Overloaded{
                        [](const StatusRequest& it) {
                          return Json{{"request", "status"}, {"with_changes", it.with_changes}};
                        },
                        [](const CommitRequest& it) {
                          Json json{{"request", "commit"}, {"include_ignored", it.include_ignored}};
                          set_bytes(json, "message", it.message);
                          return json;
                        },
                        [](const RollbackRequest& it) {
                          return Json{{"request", "rollback"}, {"keep_result", it.keep_result}};
                        },
                        [](const DiscardRequest& it) {
                          return Json{{"request", "discard"}, {"paths", strings_json(it.paths, "path")}};
                        },
                        [](const UpdateRequest&) {
                          return Json{{"request", "update"}};
                        },
                        [](const DiffRequest& it) {
                          Json json{{"request", "diff"}, {"format", format_name(it.format)}};
                          if (!it.path.empty()) set_bytes(json, "path", it.path);
                          if (!it.since.empty()) set_bytes(json, "since", it.since);
                          return json;
                        },
                        [](const UnmountRequest&) {
                          return Json{{"request", "unmount"}};
                        },
                        [](const FinishRequest& it) {
                          Json json{{"request", "finish"}, {"reason", session::name_of(it.reason)},
                                    {"keep_result", it.keep_result}};
                          if (it.exit_code) json["exit_code"] = *it.exit_code;
                          set_bytes(json, "message", it.message);
                          set_bytes(json, "image", it.image);
                          set_bytes(json, "trigger_id", it.trigger_id);
                          return json;
                        },
                        [](const ChangesRequest&) {
                          return Json{{"request", "changes"}};
                        },
                        [](const ReadFileRequest& it) {
                          Json json{{"request", "read_file"}, {"offset", it.offset}, {"most_bytes", it.most_bytes}};
                          set_bytes(json, "path", it.path);
                          return json;
                        },
                        [](const WriteFileRequest& it) {
                          Json json{{"request", "write_file"}};
                          if (it.executable) json["executable"] = *it.executable;
                          set_bytes(json, "path", it.path);
                          return json;
                        },
                        [](const RemoveFileRequest& it) {
                          Json json{{"request", "remove_file"}};
                          set_bytes(json, "path", it.path);
                          return json;
                        },
                        [](const TrafficRequest&) {
                          return Json{{"request", "traffic"}};
                        },
                        [](const ResolveRequest& it) {
                          return Json{{"request", "resolve"},
                                      {"paths", strings_json(it.paths, "path")},
                                      {"how", session::name_of(it.how)}};
                        },
                        [](const SavepointRequest& it) {
                          Json json{{"request", "savepoint"}, {"verb", name_of(it.verb)}};
                          set_bytes(json, "name", it.name);
                          return json;
                        },
                        [](const ListFilesRequest& it) {
                          Json json{{"request", "list_files"}, {"most_entries", it.most_entries}};
                          set_bytes(json, "path", it.path);
                          set_bytes(json, "after", it.after);
                          return json;
                        },
                    },
                    request);
}

// ---- Answers whose form is nobody else's.

Json tree_entry_json(const std::optional<session::TreeEntry>& entry, const std::optional<std::uint64_t>& size) {
  if (!entry) return nullptr;
  Json json{{"mode", static_cast<std::uint32_t>(entry->mode)}, {"id", entry->id.hex()}};
  if (size) json["size"] = *size;
  return json;
}

std::optional<session::TreeEntry> tree_entry_from(const Json& json, std::optional<std::uint64_t>& size) {
  if (!json.is_object()) return std::nullopt;
  const std::optional<session::ObjectId> id = get_id(json, "id");
  if (!id) throw Error(Errc::bad_request, "the answer has an entry without an id");
  if (json.contains("size")) size = get_count(json, "size");
  return session::TreeEntry{.name = {}, .mode = static_cast<session::GitMode>(get_count(json, "mode")), .id = *id};
}

Json changes_answer_json(const ChangesAnswer& it) {
  Json json{{"answer", "changes"}, {"changes", Json::array()}, {"omitted", omissions_json(it.omitted)}};
  for (const auto& [change, size_before, size_after] : it.changes) {
    Json entry{{"did", static_cast<int>(change.did)},
               {"before", tree_entry_json(change.before, size_before)},
               {"after", tree_entry_json(change.after, size_after)}};
    set_bytes(entry, "path", change.path);
    json["changes"].push_back(std::move(entry));
  }
  return json;
}

ChangesAnswer changes_from(const Json& json) {
  ChangesAnswer answer{.changes = {}, .omitted = omissions_from(get_array(json, "omitted"))};
  for (const Json& entry : get_array(json, "changes")) {
    if (!entry.is_object()) throw Error(Errc::bad_request, "the answer's \"changes\" are something else than changes");
    ChangeResource one{.change = {.path = get_bytes(entry, "path"),
                                  .did = static_cast<session::Did>(get_count(entry, "did")),
                                  .before = {},
                                  .after = {}},
                       .size_before = {},
                       .size_after = {}};
    one.change.before = tree_entry_from(entry.value("before", Json()), one.size_before);
    one.change.after = tree_entry_from(entry.value("after", Json()), one.size_after);
    answer.changes.push_back(std::move(one));
  }
  return answer;
}

Json traffic_json(const TrafficAnswer& it) {
  Json json{{"answer", "traffic"},
            {"staged_bytes", it.staged_bytes},
            {"cache_hits", it.cache_hits},
            {"cache_misses", it.cache_misses},
            {"operations", Json::array()}};
  for (const TrafficAnswer::Operation& one : it.operations) {
    json["operations"].push_back(
        Json{{"name", one.name}, {"count", one.count}, {"within", one.within}, {"seconds", one.seconds}});
  }
  return json;
}

TrafficAnswer traffic_from(const Json& json) {
  TrafficAnswer answer{.operations = {},
                       .staged_bytes = get_count(json, "staged_bytes"),
                       .cache_hits = get_count(json, "cache_hits"),
                       .cache_misses = get_count(json, "cache_misses")};
  for (const Json& entry : get_array(json, "operations")) {
    TrafficAnswer::Operation one{.name = get_bytes(entry, "name"), .count = get_count(entry, "count"), .within = {}};
    for (const Json& count : get_array(entry, "within")) {
      if (!count.is_number_unsigned()) throw Error(Errc::bad_request, "the answer counts in something else");
      one.within.push_back(count.get<std::uint64_t>());
    }
    const Json seconds = entry.value("seconds", Json());
    if (seconds.is_number()) one.seconds = seconds.get<double>();
    answer.operations.push_back(std::move(one));
  }
  return answer;
}

Json listing_json(const ListingAnswer& it) {
  Json json{{"answer", "listing"}, {"whole", it.is_whole}, {"entries", Json::array()}};
  for (const ListingAnswer::Entry& entry : it.entries) {
    Json one{{"mode", entry.mode}, {"size", entry.size_bytes}};
    set_bytes(one, "name", entry.name);
    json["entries"].push_back(std::move(one));
  }
  return json;
}

ListingAnswer listing_from(const Json& json) {
  ListingAnswer answer{.entries = {}, .is_whole = get_bool(json, "whole")};
  for (const Json& entry : get_array(json, "entries")) {
    if (!entry.is_object()) throw Error(Errc::bad_request, "the answer's \"entries\" holds something else");
    answer.entries.push_back({.name = get_bytes(entry, "name"),
                              .mode = static_cast<std::uint32_t>(get_count(entry, "mode")),
                              .size_bytes = get_count(entry, "size")});
  }
  return answer;
}

Json error_json(const ErrorAnswer& it) {
  Json json{{"answer", "error"}, {"code", name_of(it.code)}};
  set_bytes(json, "message", it.message);
  if (it.denial) {
    Json& denial = json["denial"] = Json{{"operation", it.denial->operation}, {"action", it.denial->action}};
    set_bytes(denial, "path", it.denial->path);
    set_bytes(denial, "rule", it.denial->rule);
  }
  return json;
}

ErrorAnswer error_from(const Json& json) {
  const std::optional<Errc> code = errc_from_name(get_bytes(json, "code"));
  ErrorAnswer answer{.code = code.value_or(Errc::input_output), .message = get_bytes(json, "message"), .denial = {}};
  if (const auto found = json.find("denial"); found != json.end() && found->is_object()) {
    answer.denial = session::Denial{.operation = get_bytes(*found, "operation"),
                                    .action = get_bytes(*found, "action"),
                                    .path = get_bytes(*found, "path"),
                                    .rule = get_bytes(*found, "rule")};
  }
  return answer;
}

Json answer_json(const Answer& answer) {
  return std::visit(Overloaded{
                        [](const SessionView& it) {
                          return Json{{"answer", "status"}, {"session", view_json(it)}};
                        },
                        [](const CommitAnswer& it) {
                          return Json{{"answer", "commit"}, {"result", commit_json(it)}};
                        },
                        [](const RollbackAnswer& it) {
                          return Json{{"answer", "rollback"}, {"result", rollback_json(it)}};
                        },
                        [](const DiscardAnswer& it) {
                          return Json{{"answer", "discard"}, {"discarded", it.discarded}};
                        },
                        [](const UpdateAnswer& it) {
                          return Json{{"answer", "update"}, {"result", update_json(it)}};
                        },
                        [](const DiffPart& it) {
                          Json json{{"answer", "diff_part"}};
                          set_bytes(json, "text", it.text);
                          return json;
                        },
                        [](const DiffEnd& it) {
                          return Json{{"answer", "diff"}, {"omitted", omissions_json(it.omitted)}};
                        },
                        [](const UnmountAnswer& it) {
                          Json json{{"answer", "unmount"}};
                          set_bytes(json, "mountpoint", it.mountpoint);
                          return json;
                        },
                        [](const ChangesAnswer& it) { return changes_answer_json(it); },
                        [](const FileAnswer& it) {
                          Json json{{"answer", "file"},
                                    {"mode", it.mode},
                                    {"size", it.size_bytes},
                                    {"version", it.version},
                                    {"new", it.is_new}};
                          set_bytes(json, "bytes", it.bytes);
                          return json;
                        },
                        [](const TrafficAnswer& it) { return traffic_json(it); },
                        [](const ResolveAnswer& it) {
                          return Json{{"answer", "resolve"}, {"result", resolve_json(it)}};
                        },
                        [](const SavepointsAnswer& it) {
                          return Json{{"answer", "savepoints"}, {"result", savepoints_json(it)}};
                        },
                        [](const ErrorAnswer& it) { return error_json(it); },
                        [](const ListingAnswer& it) { return listing_json(it); },
                    },
                    answer);
}

FinishRequest finish_from(const Json& json) {
  const std::optional<session::Reason> reason = session::reason_from_name(get_bytes(json, "reason"));
  if (!reason) throw Error(Errc::bad_request, "the request's \"reason\" is none");
  FinishRequest request{.reason = *reason,
                        .exit_code = {},
                        .message = get_bytes(json, "message"),
                        .keep_result = get_bool(json, "keep_result"),
                        .image = get_bytes(json, "image"),
                        .trigger_id = get_bytes(json, "trigger_id")};
  if (const auto code = get_integer(json, "exit_code")) request.exit_code = static_cast<int>(*code);
  return request;
}

const Json& member(const Json& object, const std::string& name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_object()) {
    throw Error(Errc::bad_request, "the answer has no object \"" + name + "\"");
  }
  return *found;
}

}  // namespace

std::string encode(const Request& request, const std::string& who) {
  Json json = request_json(request);
  if (!who.empty()) set_bytes(json, "who", who);
  return dump(json);
}
std::string encode(const Answer& answer) { return dump(answer_json(answer)); }

namespace {

std::vector<std::string> paths_from(const Json& json) {
  std::vector<std::string> paths;
  for (const Json& entry : get_array(json, "paths")) {
    if (!entry.is_object()) throw Error(Errc::bad_request, "the request's \"paths\" holds something else than paths");
    paths.push_back(get_bytes(entry, "path"));
  }
  return paths;
}

Request request_from(const Json& json) {
  const std::string kind = get_bytes(json, "request");
  if (kind == "status") return StatusRequest{.with_changes = get_bool(json, "with_changes")};
  if (kind == "commit") {
    return CommitRequest{.message = get_bytes(json, "message"), .include_ignored = get_bool(json, "include_ignored")};
  }
  if (kind == "rollback") return RollbackRequest{.keep_result = get_bool(json, "keep_result")};
  if (kind == "update") return UpdateRequest{};
  if (kind == "diff") {
    return DiffRequest{.format = diff_format_from(get_bytes(json, "format")),
                       .path = get_bytes(json, "path"),
                       .since = get_bytes(json, "since")};
  }
  if (kind == "unmount") return UnmountRequest{};
  if (kind == "finish") return finish_from(json);
  if (kind == "discard") return DiscardRequest{.paths = paths_from(json)};
  if (kind == "resolve") {
    const std::optional<session::Settle> how = session::settle_from_name(get_bytes(json, "how"));
    if (!how) throw Error(Errc::bad_request, "the request's \"how\" is not mine, theirs or merged");
    return ResolveRequest{.paths = paths_from(json), .how = *how};
  }
  if (kind == "savepoint") {
    return SavepointRequest{.verb = savepoint_verb_from(get_bytes(json, "verb")), .name = get_bytes(json, "name")};
  }
  if (kind == "changes") return ChangesRequest{};
  if (kind == "traffic") return TrafficRequest{};
  if (kind == "remove_file") return RemoveFileRequest{.path = get_bytes(json, "path")};
  if (kind == "read_file") {
    return ReadFileRequest{.path = get_bytes(json, "path"),
                           .offset = get_count(json, "offset"),
                           .most_bytes = get_count(json, "most_bytes")};
  }
  if (kind == "list_files") {
    return ListFilesRequest{.path = get_bytes(json, "path"),
                            .after = get_bytes(json, "after"),
                            .most_entries = get_count(json, "most_entries")};
  }
  if (kind == "write_file") {
    WriteFileRequest request{.path = get_bytes(json, "path"), .executable = {}};
    if (json.contains("executable")) request.executable = get_bool(json, "executable");
    return request;
  }
  throw Error(Errc::bad_request, "the session's host does not know the request \"" + kind + "\"");
}

}  // namespace

Request decode_request(std::string_view text) { return request_from(parse_object(text)); }

Asked decode_asked(std::string_view text) {
  const Json json = parse_object(text);
  return {.request = request_from(json), .who = get_bytes(json, "who")};
}

void throw_answered(const ErrorAnswer& error) {
  if (error.denial) throw session::Denied(*error.denial, error.message);
  throw Error(error.code, error.message);
}

Answer decode_answer(std::string_view text) {
  const Json json = parse_object(text);
  const std::string kind = get_bytes(json, "answer");
  if (kind == "status") return view_from(member(json, "session"));
  if (kind == "commit") return commit_from(member(json, "result"));
  if (kind == "rollback") return rollback_from(member(json, "result"));
  if (kind == "discard") return DiscardAnswer{.discarded = get_count(json, "discarded")};
  if (kind == "update") return update_from(member(json, "result"));
  if (kind == "resolve") return resolve_from(member(json, "result"));
  if (kind == "savepoints") return savepoints_from(member(json, "result"));
  if (kind == "diff_part") return DiffPart{.text = get_bytes(json, "text")};
  if (kind == "diff") return DiffEnd{.omitted = omissions_from(get_array(json, "omitted"))};
  if (kind == "unmount") return UnmountAnswer{.mountpoint = get_bytes(json, "mountpoint")};
  if (kind == "changes") return changes_from(json);
  if (kind == "traffic") return traffic_from(json);
  if (kind == "file") {
    return FileAnswer{.bytes = get_bytes(json, "bytes"),
                      .mode = static_cast<std::uint32_t>(get_count(json, "mode")),
                      .size_bytes = get_count(json, "size"),
                      .version = get_bytes(json, "version"),
                      .is_new = get_bool(json, "new")};
  }
  if (kind == "error") return error_from(json);
  if (kind == "listing") return listing_from(json);
  throw Error(Errc::bad_request, "the host process answered with something unknown, \"" + kind + "\"");
}

std::string to_json(const SessionView& view) { return dump(view_json(view)); }

std::string to_json(const std::vector<SessionView>& views) {
  Json json = Json::array();
  for (const SessionView& view : views) json.push_back(view_json(view));
  return dump(json);
}

namespace {

std::string with_session(const std::string& session, const Json& result) {
  Json json{{"session", session}};
  json.update(result);
  return dump(json);
}

}  // namespace

std::string to_json(const CommitAnswer& answer, const std::string& session) {
  return with_session(session, commit_json(answer));
}
std::string to_json(const RollbackAnswer& answer, const std::string& session) {
  return with_session(session, rollback_json(answer));
}
std::string to_json(const UpdateAnswer& answer, const std::string& session) {
  return with_session(session, update_json(answer));
}
std::string to_json(const DiscardAnswer& answer, const std::string& session) {
  return with_session(session, Json{{"discarded", answer.discarded}});
}

std::string to_json(const ResolveAnswer& answer, const std::string& session) {
  return with_session(session, resolve_json(answer));
}

std::string to_json(const SavepointsAnswer& answer, const std::string& session) {
  return with_session(session, savepoints_json(answer));
}

const char* name_of(SavepointVerb verb) {
  switch (verb) {
    case SavepointVerb::list:
      return "list";
    case SavepointVerb::create:
      return "create";
    case SavepointVerb::restore:
      return "restore";
    case SavepointVerb::drop:
      return "drop";
  }
  return "list";
}

const char* name_of(Errc code) {
  switch (code) {
    case Errc::not_found:
      return "not_found";
    case Errc::exists:
      return "exists";
    case Errc::not_a_directory:
      return "not_a_directory";
    case Errc::is_a_directory:
      return "is_a_directory";
    case Errc::not_empty:
      return "not_empty";
    case Errc::name_too_long:
      return "name_too_long";
    case Errc::too_many_links:
      return "too_many_links";
    case Errc::invalid_argument:
      return "invalid_argument";
    case Errc::access_denied:
      return "access_denied";
    case Errc::not_permitted:
      return "not_permitted";
    case Errc::read_only:
      return "read_only";
    case Errc::no_space:
      return "no_space";
    case Errc::quota_exceeded:
      return "quota_exceeded";
    case Errc::file_too_large:
      return "file_too_large";
    case Errc::no_attribute:
      return "no_attribute";
    case Errc::result_too_large:
      return "result_too_large";
    case Errc::no_such_offset:
      return "no_such_offset";
    case Errc::not_supported:
      return "not_supported";
    case Errc::busy:
      return "busy";
    case Errc::input_output:
      return "input_output";
    case Errc::bad_request:
      return "bad_request";
    case Errc::no_repository:
      return "no_repository";
    case Errc::unsupported_repository:
      return "unsupported_repository";
    case Errc::damaged_repository:
      return "damaged_repository";
    case Errc::newer_state:
      return "newer_state";
    case Errc::no_branch:
      return "no_branch";
    case Errc::no_session:
      return "no_session";
    case Errc::ambiguous_session:
      return "ambiguous_session";
    case Errc::wrong_state:
      return "wrong_state";
    case Errc::attached_elsewhere:
      return "attached_elsewhere";
    case Errc::branch_moved:
      return "branch_moved";
    case Errc::conflict:
      return "conflict";
    case Errc::data_lost:
      return "data_lost";
    case Errc::unavailable:
      return "unavailable";
  }
  return "input_output";
}

std::optional<Errc> errc_from_name(std::string_view name) {
  // The enumeration is closed and dense: `unavailable` is its last value.
  for (int value = 0; value <= static_cast<int>(Errc::unavailable); ++value) {
    if (name == name_of(static_cast<Errc>(value))) return static_cast<Errc>(value);
  }
  return std::nullopt;
}

}  // namespace escrow::api
