#include "api/resources.h"

#include <array>
#include <cstdio>

#include "api/json_values.h"
#include "api/session_json.h"

namespace escrow::api {

namespace {

std::string line(const Json& json) { return dump(json) + "\n"; }

Json time_json(const std::optional<session::Timestamp>& time) { return time ? Json(to_text(*time)) : Json(nullptr); }

void set_bytes_or_null(Json& json, const char* name, const std::string& bytes) {
  json[name] = nullptr;
  if (!bytes.empty()) set_bytes(json, name, bytes);
}

std::string mode_text(std::uint32_t mode) {
  std::array<char, 16> text;
  std::snprintf(text.data(), text.size(), "%06o", static_cast<unsigned>(mode));
  return text.data();
}

Json resource_json(const SessionResource& resource) {
  Json json = view_json(resource.view);
  json["repository"] = resource.repository;
  json["external_id"] = resource.external_id.empty() ? Json(nullptr) : Json(resource.external_id);
  json["labels"] = Json::object();
  for (const auto& [name, value] : resource.labels) json["labels"][name] = value;
  set_bytes_or_null(json, "warning", resource.warning);
  json["lease_ms"] = resource.lease_ms == 0 ? Json(nullptr) : Json(resource.lease_ms);
  json["lease_expires"] = time_json(resource.lease_expires);
  json["deadline"] = time_json(resource.deadline);
  return json;
}

Json number_or_null(const std::optional<std::uint64_t>& value) { return value ? Json(*value) : Json(nullptr); }

Json run_json(const RunResource& run) {
  Json json{{"run", run.id},
            {"state", run.has_ended ? "ended" : "running"},
            {"cancel_requested", run.is_cancelled},
            {"user", run.user},
            {"uid", run.uid},
            {"gid", run.gid},
            {"timeout_ms", number_or_null(run.timeout_ms)},
            {"memory_bytes", number_or_null(run.memory_bytes)},
            {"millicpus", number_or_null(run.millicpus)},
            {"max_processes", number_or_null(run.max_processes)},
            {"confined", run.confined},
            {"network", run.network ? "host" : "none"},
            {"created", to_text(run.created)}};
  set_bytes_or_null(json, "mountpoint", run.mountpoint);
  set_texts(json, "command", run.command);
  const std::array<const char*, 2> names = {"stdout", "stderr"};
  for (std::size_t at = 0; at < names.size(); ++at) {
    Json& stream = json[names[at]];
    stream = Json{{"bytes", run.streams[at].bytes}, {"truncated", run.streams[at].is_truncated}};
    if (run.output[at]) set_bytes(stream, "content", *run.output[at]);
  }
  json["session"] = run.session ? resource_json(*run.session) : Json(nullptr);
  return json;
}

Json runs_json(const std::vector<RunResource>& runs) {
  Json array = Json::array();
  for (const RunResource& run : runs) array.push_back(run_json(run));
  return array;
}

Json repository_json(const RepositoryResource& repository) {
  Json json{{"name", repository.name}};
  set_bytes(json, "path", repository.path);
  set_bytes(json, "default_branch", repository.default_branch);
  set_bytes_or_null(json, "error", repository.error);
  if (repository.is_made) json["created"] = *repository.is_made;
  return json;
}

Json entry_json(const std::optional<session::TreeEntry>& entry, const std::optional<std::uint64_t>& size) {
  if (!entry) return nullptr;
  return Json{{"mode", mode_text(static_cast<std::uint32_t>(entry->mode))},
              {"id", entry->id.hex()},
              {"size", size ? Json(*size) : Json(nullptr)}};
}

Json person_json(const session::Signature& signature) {
  Json json = Json::object();
  set_bytes(json, "name", signature.name);
  set_bytes(json, "email", signature.email);
  json["time"] = to_text({.seconds = signature.time_s, .nanoseconds = 0});
  json["offset_minutes"] = signature.offset_minutes;
  return json;
}

Json audit_json(const AuditResource& entry) {
  Json json = view_json(entry.view);
  json["denied_calls"] = entry.denied_calls;
  json["history"] = Json::array();
  for (const AuditResource::Step& step : entry.history) {
    Json& one = json["history"].emplace_back(Json{{"time", to_text(step.time)},
                                                  {"from", step.from ? name_of(*step.from) : ""},
                                                  {"to", name_of(step.to)}});
    set_bytes(one, "who", step.who);
    set_bytes(one, "why", step.why);
  }
  return json;
}

Json next_json(const std::string& next) { return next.empty() ? Json(nullptr) : Json(next); }

}  // namespace

std::string to_json(const SessionResource& resource) { return line(resource_json(resource)); }

std::string to_json(const std::vector<SessionResource>& page, const std::string& next) {
  Json sessions = Json::array();
  for (const SessionResource& resource : page) sessions.push_back(resource_json(resource));
  return line({{"sessions", std::move(sessions)}, {"next", next_json(next)}});
}

std::string to_json(const RunResource& run) { return line(run_json(run)); }

std::string to_json(const std::vector<RunResource>& page, const std::string& next) {
  return line({{"runs", runs_json(page)}, {"next", next_json(next)}});
}

std::string to_json(const std::vector<RunResource>& runs, bool is_done) {
  return line({{"runs", runs_json(runs)}, {"done", is_done}});
}

std::string changes_json(const std::vector<ChangeResource>& changes, const std::vector<session::Omission>& omitted) {
  Json array = Json::array();
  for (const auto& [change, size_before, size_after] : changes) {
    Json entry = Json::object();
    set_bytes(entry, "path", change.path);
    entry["change"] = name_of(change.did);
    entry["before"] = entry_json(change.before, size_before);
    entry["after"] = entry_json(change.after, size_after);
    array.push_back(std::move(entry));
  }
  return line({{"changes", std::move(array)}, {"omitted", omissions_json(omitted)}});
}

std::string to_json(const FileResource& file) {
  Json json = Json::object();
  set_bytes(json, "path", file.path);
  json["mode"] = mode_text(file.mode);
  json["size"] = file.size_bytes;
  return line(json);
}

std::string to_json(const ListingAnswer& listing, const std::string& next) {
  Json entries = Json::array();
  for (const ListingAnswer::Entry& entry : listing.entries) {
    Json json{{"mode", mode_text(entry.mode)}, {"size", entry.size_bytes}};
    set_bytes(json, "name", entry.name);
    entries.push_back(std::move(json));
  }
  return line(Json{{"entries", std::move(entries)}, {"next", next.empty() ? Json(nullptr) : Json(next)}});
}

std::string to_json(const RepositoryResource& repository) { return line(repository_json(repository)); }

std::string to_json(const std::vector<RepositoryResource>& repositories) {
  Json array = Json::array();
  for (const RepositoryResource& repository : repositories) array.push_back(repository_json(repository));
  return line({{"repositories", std::move(array)}});
}

std::string branches_json(const std::vector<std::pair<std::string, session::ObjectId>>& branches) {
  Json array = Json::array();
  for (const auto& [name, head] : branches) {
    Json entry = Json::object();
    set_bytes(entry, "name", name);
    entry["head"] = head.hex();
    array.push_back(std::move(entry));
  }
  return line({{"branches", std::move(array)}});
}

std::string commits_json(const std::vector<CommitResource>& commits, const std::string& next) {
  Json array = Json::array();
  for (const auto& [id, commit, trailers, is_claimed] : commits) {
    Json audit = Json::object();
    for (const auto& [name, value] : trailers) {
      if (name.starts_with("Escrow-")) set_bytes(audit, name, value);
    }
    Json parents = Json::array();
    for (const session::ObjectId& parent : commit.parents) parents.push_back(parent.hex());
    Json entry{{"commit", id.hex()}, {"tree", commit.tree.hex()}, {"parents", std::move(parents)},
               {"author", person_json(commit.author)}, {"committer", person_json(commit.committer)}};
    set_bytes(entry, "message", commit.message);
    entry["audit"] = std::move(audit);
    entry["claimed"] = is_claimed;
    array.push_back(std::move(entry));
  }
  return line({{"commits", std::move(array)}, {"next", next_json(next)}});
}

std::string to_json(const AuditResource& entry) { return line(audit_json(entry)); }

std::string to_json(const std::vector<AuditResource>& page, const std::string& next) {
  Json sessions = Json::array();
  for (const AuditResource& entry : page) sessions.push_back(audit_json(entry));
  return line({{"sessions", std::move(sessions)}, {"next", next_json(next)}});
}

std::string to_json(const GcResource& report) {
  Json held_back = nullptr;
  if (const auto& holder = report.held_back) {
    held_back = {{"session", holder->session.text()},
                 {"since", to_text(holder->since)},
                 {"set_aside", holder->is_aside}};
  }
  return line({{"objects_before", report.objects_before},
               {"objects_after", report.objects_after},
               {"packs_before", report.packs_before},
               {"packs_after", report.packs_after},
               {"bytes_before", report.bytes_before},
               {"bytes_after", report.bytes_after},
               {"sessions_forgotten", report.sessions_forgotten},
               {"held_back", std::move(held_back)}});
}

std::string to_json(const std::vector<Finding>& findings) {
  Json problems = Json::array();
  for (const Finding& finding : findings) {
    Json& one = problems.emplace_back(Json::object());
    set_bytes(one, "where", finding.where);
    set_bytes(one, "what", finding.what);
  }
  return line({{"sound", findings.empty()}, {"problems", std::move(problems)}});
}

// base64url without padding (RFC 4648), so that a cursor needs no escapes in a query.
std::string encode_cursor(const std::string& position) {
  std::string text = to_base64(position);
  for (char& letter : text) letter = letter == '+' ? '-' : letter == '/' ? '_' : letter;
  while (text.ends_with('=')) text.pop_back();
  return text;
}

std::optional<std::string> decode_cursor(const std::string& cursor) {
  std::string text = cursor;
  for (char& letter : text) letter = letter == '-' ? '+' : letter == '_' ? '/' : letter;
  while (text.size() % 4 != 0) text += '=';
  return from_base64(text);
}

}  // namespace escrow::api
