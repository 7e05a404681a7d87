#include "api/protocol.h"

#include <utility>

#include "api/json_values.h"
#include "api/session_json.h"

namespace escrow::api {

using session::Errc;

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

std::string to_json(const LandAnswer& answer) { return dump(land_json(answer)) + "\n"; }
std::string to_json(const MountsAnswer& answer, const std::string& session) {
  return with_session(session, Json{{"mounts", mounts_json(answer.mounts)}});
}

std::string to_json(const TrafficAnswer& answer) { return dump(traffic_json(answer)) + "\n"; }

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

const char* name_of(MountsVerb verb) {
  switch (verb) {
    case MountsVerb::list:
      return "list";
    case MountsVerb::add:
      return "add";
    case MountsVerb::replace:
      return "replace";
    case MountsVerb::remove:
      return "remove";
  }
  return "list";
}

const char* name_of(DiffFormat format) {
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

std::optional<DiffFormat> diff_format_from_name(std::string_view name) {
  for (const DiffFormat format : {DiffFormat::name_status, DiffFormat::stat, DiffFormat::patch}) {
    if (name == name_of(format)) return format;
  }
  return std::nullopt;
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
