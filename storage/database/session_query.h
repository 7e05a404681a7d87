// Which sessions of a catalog a list shows, and where its next page begins. Plain values.
//
// Every query is answered from an index: what it costs grows with the page, not with the catalog. Of `changed_since` it
// grows with what has changed since.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "session/base/clock.h"
#include "session/base/ids.h"
#include "session/interfaces/session_record.h"

namespace escrow::storage {

// `id` alone decides between two sessions of one moment; it may be empty, which is before all of that moment.
struct SessionPosition {
  session::Timestamp created;
  std::string id;
};

enum class SessionOrder {
  oldest_first,
  newest_first,
  by_id,  // a position is an id alone
};

struct SessionQuery {
  SessionOrder order = SessionOrder::oldest_first;
  std::optional<std::string> issuer;
  std::optional<session::State> state;
  std::optional<bool> has_ended;  // whether the state is final
  std::string id_prefix;          // only by_id
  std::optional<session::Timestamp> changed_since;
  std::optional<SessionPosition> after;  // exclusive
  std::size_t limit = 100;
};

struct SessionCounts {
  std::map<session::State, std::uint64_t> by_state;  // of every state
  std::uint64_t denied_calls = 0;                    // in the sessions that are not forgotten
};

}  // namespace escrow::storage
