#include "api/remote_documents.h"

#include <algorithm>
#include <utility>

#include "api/json_values.h"
#include "api/session_json.h"

namespace escrow::api {

using session::Errc;
using session::Error;

namespace {

// A member that is null, or not there, is the empty text.
std::string text_or_none(const Json& json, const std::string& name) {
  const auto found = json.find(name);
  return found == json.end() || found->is_null() ? std::string() : get_bytes(json, name);
}

const Json& checked_object(const Json& json) {
  if (!json.is_object()) throw Error(Errc::bad_request, "the service's answer is malformed");
  return json;
}

RemoteSession remote_session_from(const Json& json) {
  RemoteSession session{.view = view_from(checked_object(json)),
                        .repository = get_bytes(json, "repository"),
                        .warning = text_or_none(json, "warning")};
  const auto labels = json.find("labels");
  if (labels == json.end() || !labels->is_object()) return session;
  for (const auto& [name, value] : labels->items()) {
    if (value.is_string()) session.labels[name] = value.get<std::string>();
  }
  return session;
}

session::ObjectId required_id(const Json& json, const std::string& name) {
  const std::optional<session::ObjectId> id = get_id(json, name);
  if (!id) throw Error(Errc::bad_request, "the service's answer has no \"" + name + "\"");
  return *id;
}

session::Signature person_from(const Json& json, const std::string& name) {
  const auto found = json.find(name);
  if (found == json.end()) throw Error(Errc::bad_request, "the service's answer has no \"" + name + "\"");
  const Json& person = checked_object(*found);
  session::Signature signature;
  signature.name = get_bytes(person, "name");
  signature.email = get_bytes(person, "email");
  signature.time_s = get_time(person, "time").seconds;
  signature.offset_minutes = static_cast<int>(get_integer(person, "offset_minutes").value_or(0));
  return signature;
}

CommitResource commit_resource_from(const Json& json) {
  CommitResource resource{
      .id = required_id(checked_object(json), "commit"), .commit = {}, .trailers = {}, .is_claimed = false};
  resource.commit.tree = required_id(json, "tree");
  resource.commit.author = person_from(json, "author");
  resource.commit.committer = person_from(json, "committer");
  resource.commit.message = get_bytes(json, "message");
  const auto audit = json.find("audit");
  if (audit == json.end()) return resource;
  for (const auto& [name, value] : checked_object(*audit).items()) {
    if (!name.ends_with(kExactSuffix)) resource.trailers.emplace_back(name, get_bytes(*audit, name));
  }
  // An older service confirms none.
  resource.is_claimed = json.contains("claimed") ? get_bool(json, "claimed") : !resource.trailers.empty();
  return resource;
}

session::State required_state(const Json& json, const std::string& name) {
  const std::optional<session::State> state = session::state_from_name(get_bytes(json, name));
  if (!state) throw Error(Errc::bad_request, "the service's answer has no state as \"" + name + "\"");
  return *state;
}

AuditResource audit_entry_from(const Json& json) {
  AuditResource entry{
      .view = view_from(checked_object(json)), .history = {}, .denied_calls = get_count(json, "denied_calls")};
  for (const Json& step : get_array(json, "history")) {
    const bool is_first = text_or_none(checked_object(step), "from").empty();
    entry.history.push_back({.time = get_time(step, "time"),
                             .from = is_first ? std::nullopt : std::optional(required_state(step, "from")),
                             .to = required_state(step, "to"),
                             .who = get_bytes(step, "who"),
                             .why = get_bytes(step, "why")});
  }
  return entry;
}

}  // namespace

RemoteSession session_from_json(std::string_view text) { return remote_session_from(parse_object(text)); }

CommitAnswer commit_answer(RemoteSession session) {
  const session::SessionRecord& record = session.view.record;
  CommitAnswer answer;
  answer.state = record.state;
  answer.reason = record.reason;
  answer.commit = record.commit;
  const bool is_landed = record.state == session::State::committed && record.reason != session::Reason::no_changes;
  if (is_landed) answer.landed_in = record.parent;
  if (record.state == session::State::awaiting_approval) answer.result = record.result;
  answer.expires = record.expires;
  answer.counts = record.counts.value_or(session::ChangeCounts{});
  answer.omitted = std::move(session.view.omitted);
  answer.warning = std::move(session.warning);
  return answer;
}

RemoteSessions sessions_from_json(std::string_view text) {
  const Json json = parse_object(text);
  RemoteSessions page{.sessions = {}, .next = text_or_none(json, "next")};
  for (const Json& entry : get_array(json, "sessions")) page.sessions.push_back(remote_session_from(entry));
  return page;
}

RemoteRun run_from_json(std::string_view text) {
  const Json json = parse_object(text);
  const auto truncated = [&json](const char* stream) {
    const auto found = json.find(stream);
    return found != json.end() && found->is_object() && found->value("truncated", Json(false)) == Json(true);
  };
  const auto session = json.find("session");
  if (session == json.end()) throw Error(Errc::bad_request, "the service's answer has no \"session\"");
  return {.id = get_bytes(json, "run"),
          .has_ended = get_bytes(json, "state") == "ended",
          .is_truncated = {truncated("stdout"), truncated("stderr")},
          .session = session->is_null() ? std::nullopt : std::optional(remote_session_from(*session))};
}

RemoteCommits commits_from_json(std::string_view text) {
  const Json json = parse_object(text);
  RemoteCommits page{.commits = {}, .next = text_or_none(json, "next")};
  for (const Json& entry : get_array(json, "commits")) page.commits.push_back(commit_resource_from(entry));
  return page;
}

RemoteAudit audit_from_json(std::string_view text) {
  const Json json = parse_object(text);
  RemoteAudit page{.entries = {}, .next = text_or_none(json, "next")};
  for (const Json& entry : get_array(json, "sessions")) page.entries.push_back(audit_entry_from(entry));
  return page;
}

GcResource gc_from_json(std::string_view text) {
  const Json json = parse_object(text);
  std::optional<GcResource::Holder> held_back;
  if (const auto holder = json.find("held_back"); holder != json.end() && !holder->is_null()) {
    const std::optional<session::SessionId> id = get_session(checked_object(*holder), "session");
    if (id) held_back = {*id, get_time(*holder, "since"), get_bool(*holder, "set_aside")};
  }
  return {.objects_before = get_count(json, "objects_before"),
          .objects_after = get_count(json, "objects_after"),
          .packs_before = get_count(json, "packs_before"),
          .packs_after = get_count(json, "packs_after"),
          .bytes_before = get_count(json, "bytes_before"),
          .bytes_after = get_count(json, "bytes_after"),
          .sessions_forgotten = get_count(json, "sessions_forgotten"),
          .held_back = held_back};
}

std::vector<Finding> findings_from_json(std::string_view text) {
  std::vector<Finding> findings;
  const Json json = parse_object(text);
  for (const Json& one : get_array(json, "problems")) {
    findings.push_back({.where = get_bytes(checked_object(one), "where"), .what = get_bytes(one, "what")});
  }
  return findings;
}

TrafficAnswer traffic_from_json(std::string_view text) { return traffic_from(parse_object(text)); }

RemoteOmissions omissions_from_lines(std::string_view lines) {
  RemoteOmissions found;
  Json array = Json::array();
  for (std::size_t at = 0; at < lines.size();) {
    const std::size_t end = std::min(lines.find('\n', at), lines.size());
    Json line = parse_object(lines.substr(at, end - at));
    found.more += static_cast<std::uint64_t>(get_integer(line, "left_out").value_or(0));
    if (line.contains("kind")) array.push_back(std::move(line));
    at = end + 1;
  }
  found.omitted = omissions_from(array);
  return found;
}

RemoteRepository repository_from_json(std::string_view text) {
  const Json json = parse_object(text);
  return {.path = get_bytes(json, "path"), .is_made = get_bool(json, "created")};
}

std::vector<std::string> repositories_from_json(std::string_view text) {
  const Json json = parse_object(text);
  std::vector<std::string> names;
  for (const Json& entry : get_array(json, "repositories")) names.push_back(get_bytes(checked_object(entry), "name"));
  return names;
}

std::vector<std::string> at_next_start_from_json(std::string_view text) {
  const Json json = parse_object(text);
  std::vector<std::string> names;
  for (const Json& name : get_array(json, "at_next_start")) {
    if (name.is_string()) names.push_back(name.get<std::string>());
  }
  return names;
}

}  // namespace escrow::api
