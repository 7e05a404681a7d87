#include "api/request_fields.h"

#include <set>
#include <utility>

#include "api/json_values.h"
#include "api/problem.h"

namespace escrow::api {

namespace {

constexpr int kMaxDepth = 8;

Json parse(std::string_view text, const std::string& what) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return Json::object();
  bool too_deep = false;
  std::string twice;
  std::vector<std::set<std::string>> names;  // of the objects that are open
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth > kMaxDepth) too_deep = true;
    if (event == Json::parse_event_t::object_start) names.emplace_back();
    if (event == Json::parse_event_t::object_end) names.pop_back();
    if (event == Json::parse_event_t::key && !names.back().insert(value.get<std::string>()).second) {
      twice = value.get<std::string>();
    }
    return true;
  };
  Json document = Json::parse(text.begin(), text.end(), watch, false);
  const auto refuse = [&](const std::string& why) { throw Problem(ProblemCode::malformed_json, what + " " + why); };
  if (document.is_discarded()) refuse("is not JSON (RFC 8259) in UTF-8");
  if (!document.is_object()) refuse("is not a JSON object");
  if (too_deep) refuse("is nested too deeply");
  if (!twice.empty()) refuse("has \"" + twice + "\" twice");
  return document;
}

std::optional<std::string> bytes_of(const Json& value) {
  return value.is_string() ? from_base64(value.get_ref<const std::string&>()) : std::nullopt;
}

// What answers say of these bytes beside their base64.
std::string lossy(const std::string& bytes) { return Json::parse(dump(Json(bytes))).get<std::string>(); }

// The first null in it, as "grants.*.0.branches"; empty: it has none.
std::string null_in(const Json& value) {
  if (!value.is_structured()) return "";
  for (const auto& [key, item] : value.items()) {
    if (item.is_null()) return key;
    const std::string below = null_in(item);
    if (!below.empty()) return key + "." + below;
  }
  return "";
}

// nullopt unless it is an array of strings, and `read` reads each.
template <typename Read>
std::optional<std::vector<std::string>> strings_of(const Json& array, Read read) {
  if (!array.is_array()) return std::nullopt;
  std::vector<std::string> values;
  for (const Json& item : array) {
    std::optional<std::string> value = item.is_string() ? read(item) : std::nullopt;
    if (!value) return std::nullopt;
    values.push_back(*std::move(value));
  }
  return values;
}

}  // namespace

struct RequestFields::Impl {
  Json json;
  std::string what;
  std::string within;  // "trigger." for the members of an object
  std::set<std::string> asked;

  const Json* find(const std::string& name) {
    asked.insert(name);
    const auto found = json.find(name);
    return found == json.end() || found->is_null() ? nullptr : &*found;
  }
};

RequestFields::RequestFields(std::string_view text, const std::string& what)
    : impl_(std::make_unique<Impl>(Impl{.json = parse(text, what), .what = what, .within = {}, .asked = {}})) {}
RequestFields::RequestFields(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RequestFields::~RequestFields() = default;
RequestFields::RequestFields(RequestFields&&) noexcept = default;

void RequestFields::refuse(const std::string& name, const std::string& why) const {
  throw Problem(ProblemCode::invalid_value, impl_->what + ": \"" + impl_->within + name + "\" " + why,
                {{"field", impl_->within + name}});
}

std::optional<std::string> RequestFields::text(const std::string& name) {
  const Json* plain = impl_->find(name);
  if (const Json* exact = impl_->find(name + kExactSuffix)) {
    std::optional<std::string> bytes = bytes_of(*exact);
    if (!bytes) refuse(name + kExactSuffix, "is not base64 (RFC 4648)");
    if (plain != nullptr && *plain != lossy(*bytes)) {
      refuse(name, "says something else than \"" + name + kExactSuffix + "\"");
    }
    return bytes;
  }
  if (plain == nullptr) return std::nullopt;
  if (!plain->is_string()) refuse(name, "is not a string");
  return plain->get<std::string>();
}

std::string RequestFields::required_text(const std::string& name) {
  std::optional<std::string> value = text(name);
  if (!value || value->empty()) refuse(name, "is missing");
  return *std::move(value);
}

std::optional<std::uint64_t> RequestFields::number(const std::string& name, std::uint64_t least, std::uint64_t most) {
  const Json* value = impl_->find(name);
  if (value == nullptr) return std::nullopt;
  const bool fits = value->is_number_unsigned() && value->get<std::uint64_t>() >= least &&
                    value->get<std::uint64_t>() <= most;
  if (!fits) refuse(name, "is not a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  return value->get<std::uint64_t>();
}

std::optional<bool> RequestFields::flag(const std::string& name) {
  const Json* value = impl_->find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) refuse(name, "is neither true nor false");
  return value->get<bool>();
}

std::optional<std::vector<std::string>> RequestFields::texts(const std::string& name) {
  const Json* plain = impl_->find(name);
  std::optional<std::vector<std::string>> values;
  if (plain != nullptr) {
    values = strings_of(*plain, [](const Json& item) { return std::optional(item.get<std::string>()); });
    if (!values) refuse(name, "is not an array of strings");
  }
  const Json* exact = impl_->find(name + kExactSuffix);
  if (exact == nullptr) return values;
  std::optional<std::vector<std::string>> bytes = strings_of(*exact, bytes_of);
  if (!bytes) refuse(name + kExactSuffix, "is not an array of base64 (RFC 4648)");
  std::vector<std::string> said;
  for (const std::string& one : *bytes) said.push_back(lossy(one));
  if (values && *values != said) refuse(name, "says something else than \"" + name + kExactSuffix + "\"");
  return bytes;
}

std::map<std::string, std::string> RequestFields::text_map(const std::string& name) {
  std::map<std::string, std::string> found;
  const Json* value = impl_->find(name);
  if (value == nullptr) return found;
  if (!value->is_object()) refuse(name, "is not an object of strings");
  for (const auto& [key, item] : value->items()) {
    if (!item.is_string()) refuse(name + "." + key, "is not a string");
    found[key] = item.get<std::string>();
  }
  return found;
}

std::map<std::string, std::string> RequestFields::bytes_map(const std::string& name) {
  std::map<std::string, std::string> decoded;
  for (const auto& [key, base64] : text_map(name)) {
    std::optional<std::string> bytes = from_base64(base64);
    if (!bytes) refuse(name, "has '" + key + "', whose value is not base64");
    decoded[key] = *std::move(bytes);
  }
  return decoded;
}

std::map<std::string, std::vector<std::string>> RequestFields::texts_map(const std::string& name) {
  std::map<std::string, std::vector<std::string>> found;
  std::optional<RequestFields> members = object(name);
  if (!members) return found;
  for (const auto& [key, item] : members->impl_->json.items()) found[key] = members->texts(key).value_or(found[key]);
  return found;
}

std::optional<RequestFields> RequestFields::object(const std::string& name) {
  const Json* value = impl_->find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) refuse(name, "is not an object");
  return RequestFields(std::make_unique<Impl>(
      Impl{.json = *value, .what = impl_->what, .within = impl_->within + name + ".", .asked = {}}));
}

std::vector<std::string> RequestFields::names() const {
  std::vector<std::string> found;
  for (const auto& [name, value] : impl_->json.items()) found.push_back(name);
  return found;
}

std::vector<std::string> RequestFields::documents(const std::string& name) {
  const Json* value = impl_->find(name);
  if (value == nullptr) return {};
  if (value->is_object()) return {dump(*value)};
  std::vector<std::string> found;
  if (!value->is_array()) refuse(name, "is neither an object nor an array of objects");
  for (const Json& item : *value) {
    if (!item.is_object()) refuse(name, "is neither an object nor an array of objects");
    found.push_back(dump(item));
  }
  return found;
}

void RequestFields::refuse_nulls() const {
  if (const std::string name = null_in(impl_->json); !name.empty())
    refuse(name, "is null; leave it out, or give it a value");
}

void RequestFields::refuse_others() const {
  for (const auto& [name, value] : impl_->json.items()) {
    if (impl_->asked.contains(name)) continue;
    throw Problem(ProblemCode::unknown_field, impl_->what + ": \"" + impl_->within + name + "\" is not known here",
                  {{"field", impl_->within + name}});
  }
}

}  // namespace escrow::api
