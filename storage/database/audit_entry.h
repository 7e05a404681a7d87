// What is kept of a session: its record, and how it came to be what it is. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "session/base/denial.h"
#include "session/interfaces/session_record.h"

namespace escrow::storage {

struct Transition {
  session::Timestamp time;
  std::optional<session::State> from;  // nullopt: the session was created
  session::State to;
  std::string who, why;
};

// For who follows a catalog: rows by numbers that only grow, in the order in which they were committed. A kind of
// denial has a new number whenever it was counted again.
struct NumberedTransition {
  std::int64_t number = 0;
  session::SessionId session;
  Transition transition;
};
struct NumberedDenial {
  std::int64_t number = 0;
  session::SessionId session;
  session::DenialCount denial;  // its first time is its last
};
struct CatalogNumbers {
  std::int64_t transition = 0, denial = 0;  // the last that were given
};

struct AuditEntry {
  session::SessionRecord record;
  std::vector<Transition> history;  // oldest first
  std::uint64_t denied_calls = 0;
};

}  // namespace escrow::storage
