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

Json request_json(const Request& request) {
  return std::visit(Overloaded{
                        [](const StatusRequest& it) {
                          return Json{{"request", "status"}, {"with_changes", it.with_changes}};
                        },
                        [](const CommitRequest& it) {
                          Json json{{"request", "commit"}};
                          set_bytes(json, "message", it.message);
                          return json;
                        },
                        [](const RollbackRequest& it) {
                          return Json{{"request", "rollback"}, {"keep_result", it.keep_result}};
                        },
                        [](const DiscardRequest& it) {
                          Json json{{"request", "discard"}, {"paths", Json::array()}};
                          for (const std::string& path : it.paths) {
                            Json entry = Json::object();
                            set_bytes(entry, "path", path);
                            json["paths"].push_back(std::move(entry));
                          }
                          return json;
                        },
                        [](const UpdateRequest&) {
                          return Json{{"request", "update"}};
                        },
                        [](const DiffRequest& it) {
                          Json json{{"request", "diff"}, {"format", format_name(it.format)}};
                          if (!it.path.empty()) set_bytes(json, "path", it.path);
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
                    },
                    request);
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
                        [](const ErrorAnswer& it) {
                          Json json{{"answer", "error"}, {"code", name_of(it.code)}};
                          set_bytes(json, "message", it.message);
                          return json;
                        },
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

std::string encode(const Request& request) { return dump(request_json(request)); }
std::string encode(const Answer& answer) { return dump(answer_json(answer)); }

Request decode_request(std::string_view text) {
  const Json json = parse_object(text);
  const std::string kind = get_bytes(json, "request");
  if (kind == "status") return StatusRequest{.with_changes = get_bool(json, "with_changes")};
  if (kind == "commit") return CommitRequest{.message = get_bytes(json, "message")};
  if (kind == "rollback") return RollbackRequest{.keep_result = get_bool(json, "keep_result")};
  if (kind == "update") return UpdateRequest{};
  if (kind == "diff") {
    return DiffRequest{.format = diff_format_from(get_bytes(json, "format")), .path = get_bytes(json, "path")};
  }
  if (kind == "unmount") return UnmountRequest{};
  if (kind == "finish") return finish_from(json);
  if (kind == "discard") {
    DiscardRequest request;
    for (const Json& entry : get_array(json, "paths")) {
      if (!entry.is_object()) throw Error(Errc::bad_request, "the request's \"paths\" holds something else than paths");
      request.paths.push_back(get_bytes(entry, "path"));
    }
    return request;
  }
  throw Error(Errc::bad_request, "the session's host does not know the request \"" + kind + "\"");
}

Answer decode_answer(std::string_view text) {
  const Json json = parse_object(text);
  const std::string kind = get_bytes(json, "answer");
  if (kind == "status") return view_from(member(json, "session"));
  if (kind == "commit") return commit_from(member(json, "result"));
  if (kind == "rollback") return rollback_from(member(json, "result"));
  if (kind == "discard") return DiscardAnswer{.discarded = get_count(json, "discarded")};
  if (kind == "update") return update_from(member(json, "result"));
  if (kind == "diff_part") return DiffPart{.text = get_bytes(json, "text")};
  if (kind == "diff") return DiffEnd{.omitted = omissions_from(get_array(json, "omitted"))};
  if (kind == "unmount") return UnmountAnswer{.mountpoint = get_bytes(json, "mountpoint")};
  if (kind == "error") {
    const std::optional<Errc> code = errc_from_name(get_bytes(json, "code"));
    return ErrorAnswer{.code = code.value_or(Errc::input_output), .message = get_bytes(json, "message")};
  }
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
