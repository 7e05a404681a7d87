#include "api/volume_protocol.h"

#include "api/json_values.h"
#include "api/request_fields.h"

namespace escrow::api {

namespace {

Json view_json(const VolumeView& volume) {
  Json json{{"CreatedAt", to_text(volume.created)}};
  set_bytes(json, "Name", volume.name);
  set_bytes(json, "Mountpoint", volume.mountpoint);
  return json;
}

}  // namespace

VolumeRequest read_volume_request(std::string_view body) {
  RequestFields fields(body, "the runtime's request");
  VolumeRequest request;
  request.name = fields.text("Name").value_or("");
  request.mount_id = fields.text("ID").value_or("");
  request.options = fields.text_map("Opts");
  return request;
}

std::string volume_activation_json() { return dump(Json{{"Implements", Json::array({"VolumeDriver"})}}); }
std::string volume_capabilities_json() { return dump(Json{{"Capabilities", Json{{"Scope", "local"}}}}); }
std::string volume_done_json() { return dump(Json{{"Err", ""}}); }
std::string volume_json(const VolumeView& volume) { return dump(Json{{"Volume", view_json(volume)}, {"Err", ""}}); }

std::string volumes_json(const std::vector<VolumeView>& volumes) {
  Json array = Json::array();
  for (const VolumeView& volume : volumes) array.push_back(view_json(volume));
  return dump(Json{{"Volumes", std::move(array)}, {"Err", ""}});
}

std::string volume_mountpoint_json(const std::string& mountpoint) {
  Json json{{"Err", ""}};
  set_bytes(json, "Mountpoint", mountpoint);
  return dump(json);
}

std::string volume_refusal_json(const std::string& why) {
  Json json = Json::object();
  set_bytes(json, "Err", why);
  return dump(json);
}

}  // namespace escrow::api
