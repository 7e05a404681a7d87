// What is kept of a session: its record, and how it came to be what it is. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "session/session_record.h"

namespace escrow::storage {

struct Transition {
  session::Timestamp time;
  std::optional<session::State> from;  // nullopt: the session was created
  session::State to;
  std::string who, why;
};

struct AuditEntry {
  session::SessionRecord record;
  std::vector<Transition> history;  // oldest first
  std::uint64_t denied_calls = 0;
};

}  // namespace escrow::storage
