#include "api/event_document.h"

#include <utility>

#include "api/json_values.h"

namespace escrow::api {

std::string branch_of_event(const std::string& document) { return get_bytes(parse_object(document), "branch"); }

std::string event_with_paths(const std::string& document,
                             const std::function<bool(const std::string& path)>& may_read) {
  Json json = parse_object(document);
  bool is_changed = false;
  for (const auto& [list, more] : {std::pair("paths", "more_paths"), std::pair("denials", "more_denials")}) {
    const auto found = json.find(list);
    if (found == json.end() || !found->is_array()) continue;
    Json kept = Json::array();
    for (const Json& one : *found) {
      if (may_read(get_bytes(one, "path"))) kept.push_back(one);
    }
    if (kept.size() == found->size()) continue;
    json[list] = std::move(kept);
    json[more] = true;
    is_changed = true;
  }
  return is_changed ? dump(json) : document;
}

}  // namespace escrow::api
