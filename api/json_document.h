// A JSON object built member by member, for what commands print with --json. Not thread-safe.
//
// Strings are bytes: where they are not UTF-8, NAME is lossy and NAME_base64 is exact.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/protocol.h"
#include "session/base/clock.h"
#include "session/base/ids.h"
#include "session/overlay/overlay.h"
#include "session/trees/reconcile.h"
#include "session/trees/tree_changes.h"

namespace escrow::api {

class JsonObject {
 public:
  JsonObject();
  ~JsonObject();
  JsonObject(JsonObject&&) noexcept;
  JsonObject& operator=(JsonObject&&) noexcept;

  JsonObject& text(const std::string& name, std::string_view bytes);
  JsonObject& texts(const std::string& name, const std::vector<std::string>& values);
  // An object whose values are base64. The keys are UTF-8.
  JsonObject& bytes_map(const std::string& name, const std::map<std::string, std::string>& values);
  // What each of them is, an object; a single one stands alone. Throws Error{bad_request} for what is none.
  JsonObject& documents(const std::string& name, const std::vector<std::string>& values);
  JsonObject& number(const std::string& name, std::uint64_t value);
  JsonObject& flag(const std::string& name, bool value);
  JsonObject& id(const std::string& name, const std::optional<session::ObjectId>& value);
  JsonObject& time(const std::string& name, const session::Timestamp& value);
  JsonObject& object(const std::string& name, JsonObject value);
  JsonObject& objects(const std::string& name, std::vector<JsonObject> values);
  JsonObject& counts(const std::string& name, const session::ChangeCounts& value);
  JsonObject& omissions(const std::string& name, const std::vector<session::Omission>& values);
  // The members of a session as `status --json` has them, beside the object's own.
  JsonObject& session(const SessionView& view);
  JsonObject& conflicts(const std::string& name, const std::vector<session::Conflict>& values);

  // One line, without a newline.
  std::string text() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace escrow::api
