#include "api/result_json.h"

#include <map>

#include "api/json_values.h"
#include "api/session_json.h"

namespace escrow::api {
namespace {

Json path_json(const std::string& path) {
  if (is_utf8(path)) return path;
  Json object;
  set_bytes(object, "path", path);
  return object;
}

Json excluded_json(const std::vector<session::Omission>& omitted) {
  Json paths = Json::array();
  for (const session::Omission& omission : omitted) {
    if (omission.kind == session::OmissionKind::excluded) paths.push_back(path_json(omission.path));
  }
  return paths;
}

Json omitted_json(const std::vector<session::Omission>& omitted) {
  Json kinds = Json::object();
  for (const session::Omission& omission : omitted) {
    if (omission.kind == session::OmissionKind::excluded) continue;
    kinds[session::name_of(omission.kind)].push_back(path_json(omission.path));
  }
  return kinds;
}

Json counts_by_kind(const std::vector<session::Omission>& omitted) {
  std::map<std::string, std::uint64_t> kinds;
  for (const session::Omission& omission : omitted) ++kinds[session::name_of(omission.kind)];
  return kinds;
}

}  // namespace

std::string to_json(const RunResult& result) {
  Json json;
  const auto& record = result.record;
  json["session"] = record ? Json(record->id.text()) : Json(nullptr);
  json["branch"] = record ? Json(record->options.branch) : Json(nullptr);
  json["state"] = record ? Json(session::name_of(record->state)) : Json(nullptr);
  json["reason"] = record ? Json(session::name_of(record->reason)) : Json(nullptr);
  set_id(json, "base", record ? record->base : std::nullopt);
  set_id(json, "commit", record ? record->commit : std::nullopt);
  set_id(json, "result", record ? record->result : std::nullopt);
  json["expires"] = record && record->expires ? Json(to_text(*record->expires)) : Json(nullptr);
  json["exit_code"] = result.command_status ? Json(*result.command_status) : Json(nullptr);
  json["run_exit_code"] = result.exit_code;
  json["counts"] = {
      {"added", result.counts.added}, {"modified", result.counts.modified}, {"deleted", result.counts.deleted}};
  json["conflicts"] = conflicts_json(result.conflicts);
  json["excluded"] = excluded_json(result.omitted);
  json["omitted"] = omitted_json(result.omitted);
  json["left_out"] = counts_by_kind(result.omitted);
  json["mounts"] = mounts_json(result.mounts);
  json["summary"] = result.summary;
  json["error"] = result.error.empty() ? Json(nullptr) : Json(result.error);
  return dump(json);
}

}  // namespace escrow::api
