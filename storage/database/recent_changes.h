// What an index of times (change_times.h) asks of the session catalog: how late content may have been looked at.
//
// A connection of its own, opened for one look at the catalog; it waits for no writer. Throws as sqlite.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "session/base/clock.h"
#include "session/base/ids.h"
#include "storage/database/sqlite.h"

namespace escrow::storage {

class RecentChanges {
 public:
  explicit RecentChanges(const std::string& catalog_path);

  // When a session of the branch last changed, other than by becoming one of `commits`, as far as the newest thousand
  // changes tell: else the oldest of them, or nullopt when there are no more.
  std::optional<session::Timestamp> newest(const std::string& branch, const std::vector<session::ObjectId>& commits);
  // The smallest base_time of the sessions of the branch that have not ended.
  std::optional<session::Timestamp> oldest_base_time(const std::string& branch);

 private:
  Database database_;
};

}  // namespace escrow::storage
