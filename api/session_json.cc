#include "api/session_json.h"

#include <array>
#include <utility>

namespace escrow::api {

using session::Did;
using session::Errc;
using session::Error;
using session::OmissionKind;

namespace {

// The value whose name_of() is `name`, among the first `count` of a dense enumeration.
template <typename Enum>
Enum value_named(const std::string& name, Enum last, const char* what) {
  for (int value = 0; value <= static_cast<int>(last); ++value) {
    if (name == name_of(static_cast<Enum>(value))) return static_cast<Enum>(value);
  }
  throw Error(Errc::bad_request, std::string("the answer's ") + what + " \"" + name + "\" is unknown to this version");
}

session::State state_from(const Json& json) {
  return value_named(get_bytes(json, "state"), session::State::rolled_back, "state");
}

session::Reason reason_from(const Json& json) {
  const std::string name = get_bytes(json, "reason");
  return name.empty() ? session::Reason::none : value_named(name, session::Reason::lease_expired, "reason");
}

Json counts_json(const session::ChangeCounts& counts) {
  return Json{{"added", counts.added}, {"modified", counts.modified}, {"deleted", counts.deleted}};
}

session::ChangeCounts counts_from(const Json& json) {
  return {.added = get_count(json, "added"),
          .modified = get_count(json, "modified"),
          .deleted = get_count(json, "deleted")};
}

void set_audit(Json& json, const session::Audit& audit) {
  set_bytes(json, "committer", audit.committer);
  set_bytes(json, "issuer", audit.issuer);
  set_bytes(json, "source", audit.source);
  set_bytes(json, "image", audit.image);
  set_bytes(json, "trigger", audit.trigger);
  set_bytes(json, "trigger_id", audit.trigger_id);
  if (!audit.author_name.empty()) set_bytes(json, "author_name", audit.author_name);
  if (!audit.author_email.empty()) set_bytes(json, "author_email", audit.author_email);
}

session::Audit audit_from(const Json& json) {
  return {.committer = get_bytes(json, "committer"),
          .issuer = get_bytes(json, "issuer"),
          .source = get_bytes(json, "source"),
          .image = get_bytes(json, "image"),
          .trigger = get_bytes(json, "trigger"),
          .trigger_id = get_bytes(json, "trigger_id"),
          .author_name = get_bytes(json, "author_name"),
          .author_email = get_bytes(json, "author_email")};
}

void set_options(Json& json, const session::SessionOptions& options) {
  set_bytes(json, "branch", options.branch);
  set_bytes(json, "path_prefix", options.prefix.text());
  set_audit(json, options.audit);
  json["uid"] = options.uid;
  json["gid"] = options.gid;
  json["umask"] = options.umask;
  json["read_only"] = options.read_only;
  json["run"] = options.ephemeral;
  json["keep_on_failure"] = options.keep_on_failure;
  json["excludes"] = strings_json(options.excludes, "pattern");
  json["include_ignored"] = options.include_ignored;
  json["policies"] = strings_json(options.policies, "policy");
  json["contained_symlinks"] = options.contained_symlinks;
  json["shows_lfs_pointers"] = options.shows_lfs_pointers;
  json["require_approval"] = options.require_approval;
  json["approval_expires_s"] = options.approval_expires_s;
  json["isolation"] = name_of(options.isolation);
  json["limits"] = Json{{"staged_bytes", options.limits.staged_bytes}, {"files", options.limits.files}};
  json["command"] = strings_json(options.command, "argument");
}

session::SessionOptions options_from(const Json& json) {
  session::SessionOptions options;
  options.branch = get_bytes(json, "branch");
  options.prefix = session::RepoPath::parse(get_bytes(json, "path_prefix"), "path_prefix");
  options.audit = audit_from(json);
  options.uid = static_cast<std::uint32_t>(get_count(json, "uid"));
  options.gid = static_cast<std::uint32_t>(get_count(json, "gid"));
  options.umask = static_cast<std::uint32_t>(get_count(json, "umask"));
  options.read_only = get_bool(json, "read_only");
  options.ephemeral = get_bool(json, "run");
  options.keep_on_failure = get_bool(json, "keep_on_failure");
  options.excludes = strings_from(get_array(json, "excludes"), "pattern");
  options.include_ignored = get_bool(json, "include_ignored");
  options.policies = strings_from(get_array(json, "policies"), "policy");
  options.contained_symlinks = get_bool(json, "contained_symlinks");
  options.shows_lfs_pointers = get_bool(json, "shows_lfs_pointers");
  options.require_approval = get_bool(json, "require_approval");
  options.approval_expires_s = get_integer(json, "approval_expires_s").value_or(0);
  if (const std::string isolation = get_bytes(json, "isolation"); !isolation.empty()) {
    const auto named = session::isolation_from_name(isolation);
    if (!named) throw Error(Errc::bad_request, "the answer's \"isolation\" is not known");
    options.isolation = *named;
  }
  if (const auto limits = json.find("limits"); limits != json.end() && limits->is_object()) {
    options.limits = {.staged_bytes = get_count(*limits, "staged_bytes"), .files = get_count(*limits, "files")};
  }
  options.command = strings_from(get_array(json, "command"), "argument");
  return options;
}

Json version_json(const session::Version& version) {
  if (version.mode == 0) return nullptr;
  return Json{{"mode", version.mode}, {"id", version.id.hex()}};
}

session::Version version_from(const Json& json, const std::string& name) {
  const auto found = json.find(name);
  if (found == json.end() || found->is_null()) return {};
  if (!found->is_object()) throw Error(Errc::bad_request, "the answer's \"" + name + "\" is no version of a path");
  return {.mode = static_cast<std::uint32_t>(get_count(*found, "mode")),
          .id = get_id(*found, "id").value_or(session::ObjectId())};
}

Json unresolved_json(const std::vector<session::Unresolved>& paths) {
  Json array = Json::array();
  for (const session::Unresolved& one : paths) {
    Json entry = Json::object();
    set_bytes(entry, "path", one.path);
    entry["base"] = version_json(one.base);
    entry["mine"] = version_json(one.mine);
    entry["theirs"] = version_json(one.theirs);
    array.push_back(std::move(entry));
  }
  return array;
}

std::vector<session::Unresolved> unresolved_from(const Json& array) {
  std::vector<session::Unresolved> paths;
  for (const Json& entry : array) {
    if (!entry.is_object()) throw Error(Errc::bad_request, "the answer's list of unresolved paths is malformed");
    paths.push_back({.path = get_bytes(entry, "path"),
                     .base = version_from(entry, "base"),
                     .mine = version_from(entry, "mine"),
                     .theirs = version_from(entry, "theirs")});
  }
  return paths;
}

session::SessionRecord record_from(const Json& json) {
  std::optional<session::SessionId> id = session::SessionId::parse(get_bytes(json, "session"));
  if (!id) throw Error(Errc::bad_request, "the answer's \"session\" is not a session id");
  session::SessionRecord record{.id = *id,
                                .options = options_from(json),
                                .state = state_from(json),
                                .reason = reason_from(json),
                                .base = get_id(json, "base"),
                                .commit = get_id(json, "commit"),
                                .swap_from = std::nullopt,
                                .swap_to = std::nullopt,
                                .exit_code = std::nullopt,
                                .message = get_bytes(json, "message"),
                                .mountpoint = get_bytes(json, "mountpoint"),
                                .last_error = get_bytes(json, "last_error"),
                                .conflicts = strings_from(get_array(json, "conflicts"), "path"),
                                .unresolved = unresolved_from(get_array(json, "unresolved")),
                                .resumes = get_session(json, "resumes"),
                                .parent = get_session(json, "parent"),
                                .result = get_id(json, "result"),
                                .expires = std::nullopt,
                                .reviewer = get_bytes(json, "reviewer"),
                                .review_comment = get_bytes(json, "review_comment"),
                                .counts = std::nullopt,
                                .created = get_time(json, "created"),
                                .changed = get_time(json, "changed")};
  record.reads = get_bytes(json, "reads");
  if (const std::optional<std::int64_t> code = get_integer(json, "exit_code")) {
    record.exit_code = static_cast<int>(*code);
  }
  if (const auto expires = json.find("expires"); expires != json.end() && !expires->is_null()) {
    record.expires = get_time(json, "expires");
  }
  return record;
}

}  // namespace

Json strings_json(const std::vector<std::string>& values, const std::string& name) {
  Json array = Json::array();
  for (const std::string& value : values) {
    Json entry = Json::object();
    set_bytes(entry, name, value);
    array.push_back(std::move(entry));
  }
  return array;
}

std::vector<std::string> strings_from(const Json& array, const std::string& name) {
  std::vector<std::string> values;
  for (const Json& entry : array) {
    if (!entry.is_object()) throw Error(Errc::bad_request, "the answer's list of \"" + name + "\" is malformed");
    values.push_back(get_bytes(entry, name));
  }
  return values;
}

Json conflicts_json(const std::vector<session::Conflict>& conflicts) {
  Json array = Json::array();
  for (const session::Conflict& conflict : conflicts) {
    Json entry = Json::object();
    set_bytes(entry, "path", conflict.path);
    entry["ours"] = name_of(conflict.ours);
    entry["theirs"] = name_of(conflict.theirs);
    if (conflict.met != session::Met::changed) entry["met"] = name_of(conflict.met);
    array.push_back(std::move(entry));
  }
  return array;
}

namespace {

// Absent where both sides changed the path.
session::Met met_from(const std::string& name) {
  return name.empty() ? session::Met::changed : value_named(name, session::Met::read_below, "conflict");
}

}  // namespace

std::vector<session::Conflict> conflicts_from(const Json& array) {
  std::vector<session::Conflict> conflicts;
  for (const Json& entry : array) {
    if (!entry.is_object()) throw Error(Errc::bad_request, "the answer's list of conflicts is malformed");
    conflicts.push_back({.path = get_bytes(entry, "path"),
                         .ours = value_named(get_bytes(entry, "ours"), Did::type_changed, "change"),
                         .theirs = value_named(get_bytes(entry, "theirs"), Did::type_changed, "change"),
                         .met = met_from(get_bytes(entry, "met"))});
  }
  return conflicts;
}

Json omissions_json(const std::vector<session::Omission>& omissions) {
  Json array = Json::array();
  for (const session::Omission& omission : omissions) {
    Json entry = Json::object();
    set_bytes(entry, "path", omission.path);
    entry["kind"] = name_of(omission.kind);
    array.push_back(std::move(entry));
  }
  return array;
}

std::vector<session::Omission> omissions_from(const Json& array) {
  std::vector<session::Omission> omissions;
  for (const Json& entry : array) {
    if (!entry.is_object()) throw Error(Errc::bad_request, "the answer's list of omissions is malformed");
    omissions.push_back({.path = get_bytes(entry, "path"),
                         .kind = value_named(get_bytes(entry, "kind"), OmissionKind::inside_submodule, "omission")});
  }
  return omissions;
}

Json view_json(const SessionView& view) {
  const session::SessionRecord& record = view.record;
  Json json{{"session", record.id.text()},
            {"state", name_of(record.state)},
            {"reason", name_of(record.reason)},
            {"attachment", name_of(view.attachment)}};
  set_options(json, record.options);
  set_id(json, "base", record.base);
  set_id(json, "head", view.head);
  set_id(json, "commit", record.commit);
  json["exit_code"] = record.exit_code ? Json(*record.exit_code) : Json(nullptr);
  set_bytes(json, "message", record.message);
  set_bytes(json, "mountpoint", record.mountpoint);
  set_bytes(json, "last_error", record.last_error);
  json["conflicts"] = strings_json(record.conflicts, "path");
  json["unresolved"] = unresolved_json(record.unresolved);
  json["resumes"] = record.resumes ? Json(record.resumes->text()) : Json(nullptr);
  json["parent"] = record.parent ? Json(record.parent->text()) : Json(nullptr);
  if (view.resumed_as) json["resumed_as"] = view.resumed_as->text();
  set_id(json, "result", record.result);
  json["expires"] = record.expires ? Json(to_text(*record.expires)) : Json(nullptr);
  if (!record.reads.empty()) json["reads"] = record.reads;
  set_bytes(json, "reviewer", record.reviewer);
  set_bytes(json, "review_comment", record.review_comment);
  json["created"] = to_text(record.created);
  json["changed"] = to_text(record.changed);
  if (view.counts) json["counts"] = counts_json(*view.counts);
  if (view.counts && record.state == session::State::open) json["would_conflict"] = conflicts_json(view.would_conflict);
  if (view.usage) {
    json["staged"] =
        Json{{"files", view.usage->staged_files}, {"bytes", view.usage->staged_bytes}, {"nodes", view.usage->nodes}};
  }
  json["omitted"] = omissions_json(view.omitted);
  if (view.denials) json["denials"] = Json{{"count", view.denials->count}, {"kinds", view.denials->kinds}};
  if (view.io) json["io"] = Json{{"opens", view.io->opens}, {"data", view.io->data}, {"reason", view.io->reason}};
  return json;
}

SessionView view_from(const Json& json) {
  SessionView view{.record = record_from(json),
                   .attachment = value_named(get_bytes(json, "attachment"), session::Attachment::lost, "attachment"),
                   .head = get_id(json, "head"),
                   .counts = std::nullopt,
                   .usage = std::nullopt,
                   .omitted = omissions_from(get_array(json, "omitted")),
                   .io = std::nullopt,
                   .denials = std::nullopt,
                   .resumed_as = get_session(json, "resumed_as")};
  if (json.contains("would_conflict")) view.would_conflict = conflicts_from(get_array(json, "would_conflict"));
  if (const auto io = json.find("io"); io != json.end() && io->is_object()) {
    view.io = {.opens = get_bytes(*io, "opens"), .data = get_bytes(*io, "data"), .reason = get_bytes(*io, "reason")};
  }
  if (const auto denials = json.find("denials"); denials != json.end() && denials->is_object()) {
    view.denials = {.count = get_count(*denials, "count"), .kinds = get_count(*denials, "kinds")};
  }
  if (const auto counts = json.find("counts"); counts != json.end() && counts->is_object()) {
    view.counts = view.record.counts = counts_from(*counts);
  }
  if (const auto staged = json.find("staged"); staged != json.end() && staged->is_object()) {
    view.usage = {.staged_files = get_count(*staged, "files"),
                  .staged_bytes = get_count(*staged, "bytes"),
                  .nodes = get_count(*staged, "nodes")};
  }
  return view;
}

Json commit_json(const CommitAnswer& answer) {
  Json json{{"state", name_of(answer.state)}, {"reason", name_of(answer.reason)}};
  set_id(json, "commit", answer.commit);
  if (answer.landed_in) json["landed_in"] = answer.landed_in->text();
  set_id(json, "result", answer.result);
  json["expires"] = answer.expires ? Json(to_text(*answer.expires)) : Json(nullptr);
  json["counts"] = counts_json(answer.counts);
  json["conflicts"] = conflicts_json(answer.conflicts);
  json["omitted"] = omissions_json(answer.omitted);
  set_bytes(json, "warning", answer.warning);
  return json;
}

CommitAnswer commit_from(const Json& json) {
  CommitAnswer answer;
  answer.state = state_from(json);
  answer.reason = reason_from(json);
  answer.commit = get_id(json, "commit");
  answer.result = get_id(json, "result");
  if (const auto expires = json.find("expires"); expires != json.end() && !expires->is_null()) {
    answer.expires = get_time(json, "expires");
  }
  if (const auto counts = json.find("counts"); counts != json.end() && counts->is_object()) {
    answer.counts = counts_from(*counts);
  }
  answer.conflicts = conflicts_from(get_array(json, "conflicts"));
  answer.omitted = omissions_from(get_array(json, "omitted"));
  answer.warning = get_bytes(json, "warning");
  return answer;
}

Json land_json(const LandAnswer& answer) {
  return {{"has_changed", answer.has_changed},
          {"counts", counts_json(answer.counts)},
          {"conflicts", conflicts_json(answer.conflicts)}};
}

LandAnswer land_from(const Json& json) {
  return {.has_changed = json.value("has_changed", false),
          .counts = json.contains("counts") ? counts_from(json["counts"]) : session::ChangeCounts{},
          .conflicts = conflicts_from(get_array(json, "conflicts"))};
}

Json rollback_json(const RollbackAnswer& answer) {
  Json json{{"state", name_of(answer.state)}, {"reason", name_of(answer.reason)}};
  set_bytes(json, "warning", answer.warning);
  return json;
}

RollbackAnswer rollback_from(const Json& json) {
  return {.state = state_from(json), .reason = reason_from(json), .warning = get_bytes(json, "warning")};
}

Json update_json(const UpdateAnswer& answer) {
  Json json = Json::object();
  set_id(json, "base", answer.base);
  json["merged"] = answer.merged;
  json["conflicts"] = conflicts_json(answer.conflicts);
  return json;
}

UpdateAnswer update_from(const Json& json) {
  return {.base = get_id(json, "base"),
          .merged = get_count(json, "merged"),
          .conflicts = conflicts_from(get_array(json, "conflicts"))};
}

Json resolve_json(const ResolveAnswer& answer) {
  return Json{{"settled", strings_json(answer.settled, "path")},
              {"unresolved", unresolved_json(answer.left)},
              {"merged", answer.merged}};
}

ResolveAnswer resolve_from(const Json& json) {
  return {.settled = strings_from(get_array(json, "settled"), "path"),
          .left = unresolved_from(get_array(json, "unresolved")),
          .merged = get_count(json, "merged")};
}

Json savepoints_json(const SavepointsAnswer& answer) {
  Json savepoints = Json::array();
  for (const SavepointsAnswer::Savepoint& one : answer.savepoints) {
    savepoints.push_back({{"name", one.name}, {"created", to_text(one.created)}});
  }
  return Json{{"savepoints", std::move(savepoints)},
              {"undo", answer.undo.empty() ? Json() : Json(answer.undo)},
              {"warning", answer.warning.empty() ? Json() : Json(answer.warning)}};
}

SavepointsAnswer savepoints_from(const Json& json) {
  SavepointsAnswer answer;
  for (const Json& one : get_array(json, "savepoints")) {
    if (!one.is_object()) throw Error(Errc::bad_request, "\"savepoints\" holds something else than savepoints");
    answer.savepoints.push_back({.name = get_bytes(one, "name"), .created = get_time(one, "created")});
  }
  answer.undo = get_bytes(json, "undo");
  answer.warning = get_bytes(json, "warning");
  return answer;
}

Json mounts_json(const std::vector<MountEntryView>& mounts) {
  Json array = Json::array();
  for (const MountEntryView& mount : mounts) {
    Json entry{{"mode", mount.mode}, {"hides", mount.hides}, {"outside_transaction", mount.outside_transaction}};
    set_bytes(entry, "path", mount.path);
    set_bytes(entry, "source", mount.source);
    array.push_back(std::move(entry));
  }
  return array;
}

std::vector<MountEntryView> mounts_from(const Json& array) {
  std::vector<MountEntryView> mounts;
  for (const Json& one : array) {
    if (!one.is_object()) throw Error(Errc::bad_request, "\"mounts\" holds something else than entries");
    mounts.push_back({.path = get_bytes(one, "path"),
                      .source = get_bytes(one, "source"),
                      .mode = get_bytes(one, "mode"),
                      .hides = get_bool(one, "hides"),
                      .outside_transaction = get_bool(one, "outside_transaction")});
  }
  return mounts;
}

Json traffic_json(const TrafficAnswer& it) {
  Json json{{"staged_bytes", it.staged_bytes},
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

}  // namespace escrow::api
