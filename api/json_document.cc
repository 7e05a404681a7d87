#include "api/json_document.h"

#include <utility>

#include "api/json_values.h"
#include "api/session_json.h"

namespace escrow::api {

struct JsonObject::Impl {
  Json json = Json::object();
};

JsonObject::JsonObject() : impl_(std::make_unique<Impl>()) {}
JsonObject::~JsonObject() = default;
JsonObject::JsonObject(JsonObject&&) noexcept = default;
JsonObject& JsonObject::operator=(JsonObject&&) noexcept = default;

JsonObject& JsonObject::text(const std::string& name, std::string_view bytes) {
  set_bytes(impl_->json, name, bytes);
  return *this;
}

JsonObject& JsonObject::bytes_map(const std::string& name, const std::map<std::string, std::string>& values) {
  Json object = Json::object();
  for (const auto& [key, bytes] : values) object[key] = to_base64(bytes);
  impl_->json[name] = std::move(object);
  return *this;
}

JsonObject& JsonObject::texts(const std::string& name, const std::vector<std::string>& values) {
  set_texts(impl_->json, name, values);
  return *this;
}

JsonObject& JsonObject::documents(const std::string& name, const std::vector<std::string>& values) {
  Json array = Json::array();
  for (const std::string& value : values) array.push_back(parse_object(value));
  impl_->json[name] = values.size() == 1 ? array.front() : array;
  return *this;
}

JsonObject& JsonObject::number(const std::string& name, std::uint64_t value) {
  impl_->json[name] = value;
  return *this;
}

JsonObject& JsonObject::flag(const std::string& name, bool value) {
  impl_->json[name] = value;
  return *this;
}

JsonObject& JsonObject::id(const std::string& name, const std::optional<session::ObjectId>& value) {
  set_id(impl_->json, name, value);
  return *this;
}

JsonObject& JsonObject::time(const std::string& name, const session::Timestamp& value) {
  impl_->json[name] = to_text(value);
  return *this;
}

JsonObject& JsonObject::object(const std::string& name, JsonObject value) {
  impl_->json[name] = std::move(value.impl_->json);
  return *this;
}

JsonObject& JsonObject::objects(const std::string& name, std::vector<JsonObject> values) {
  Json array = Json::array();
  for (JsonObject& value : values) array.push_back(std::move(value.impl_->json));
  impl_->json[name] = std::move(array);
  return *this;
}

JsonObject& JsonObject::counts(const std::string& name, const session::ChangeCounts& value) {
  impl_->json[name] = Json{{"added", value.added}, {"modified", value.modified}, {"deleted", value.deleted}};
  return *this;
}

JsonObject& JsonObject::omissions(const std::string& name, const std::vector<session::Omission>& values) {
  impl_->json[name] = omissions_json(values);
  return *this;
}

JsonObject& JsonObject::conflicts(const std::string& name, const std::vector<session::Conflict>& values) {
  impl_->json[name] = conflicts_json(values);
  return *this;
}

JsonObject& JsonObject::session(const SessionView& view) {
  impl_->json.update(view_json(view));
  return *this;
}

std::string JsonObject::text() const { return dump(impl_->json); }

}  // namespace escrow::api
