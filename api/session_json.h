// The parts of answers in JSON, both ways. Only for the .cc files of api/.
#pragma once

#include <vector>

#include "api/json_values.h"
#include "api/protocol.h"

namespace escrow::api {

Json view_json(const SessionView& view);
SessionView view_from(const Json& json);

Json commit_json(const CommitAnswer& answer);
CommitAnswer commit_from(const Json& json);
Json land_json(const LandAnswer& answer);
LandAnswer land_from(const Json& json);

Json rollback_json(const RollbackAnswer& answer);
RollbackAnswer rollback_from(const Json& json);

Json update_json(const UpdateAnswer& answer);
UpdateAnswer update_from(const Json& json);

Json resolve_json(const ResolveAnswer& answer);
ResolveAnswer resolve_from(const Json& json);
Json savepoints_json(const SavepointsAnswer& answer);
SavepointsAnswer savepoints_from(const Json& json);

Json mounts_json(const std::vector<MountEntryView>& mounts);
std::vector<MountEntryView> mounts_from(const Json& array);

Json traffic_json(const TrafficAnswer& answer);
TrafficAnswer traffic_from(const Json& json);

// Objects with a path each.
Json strings_json(const std::vector<std::string>& values, const std::string& name);
std::vector<std::string> strings_from(const Json& array, const std::string& name);

Json conflicts_json(const std::vector<session::Conflict>& conflicts);
std::vector<session::Conflict> conflicts_from(const Json& array);

Json omissions_json(const std::vector<session::Omission>& omissions);
std::vector<session::Omission> omissions_from(const Json& array);

}  // namespace escrow::api
