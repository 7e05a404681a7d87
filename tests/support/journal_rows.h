// Journal rows for tests, and rows as text, so that a failed comparison shows them.
#pragma once

#include <sstream>
#include <string>

#include "session/interfaces/session_journal.h"

namespace escrow::support {

inline session::ObjectId sample_id(std::uint8_t byte) {
  session::ObjectId::Bytes bytes;
  bytes.fill(byte);
  return session::ObjectId(bytes);
}

// Every field set, with values that SQLite or a codec could mistake: large, negative, with NUL, not UTF-8.
inline session::NodeRow sample_node(std::uint64_t node) {
  session::NodeRow row;
  row.node = session::NodeId{node};
  row.mode = 0100755;
  row.uid = 4'294'967'294u;
  row.gid = 100;
  row.rdev = 0x801;
  row.accessed = {-5, 999'999'999};
  row.modified = {1LL << 40, 1};
  row.changed = {1'700'000'000, 0};
  row.base = sample_id(0xab);
  row.base_mode = 0100644;
  row.base_length = ~0ull;
  row.staging = session::StagingId{node + 1};
  row.block_map = std::string("\0\xff\1", 3);
  row.era = (1ull << 62) + 1;
  row.durable = {sample_id(0xcd), ~0ull, session::StagingId{node + 2}, std::string("\0\1", 2), std::string("x\0y", 3)};
  row.sealed = std::string("\0sealed", 7);
  row.target = "../tar\xff get";
  row.times = session::TimesBelow{{-3, 999'999'999}, "a/\xff"};
  row.xattrs = {{"user.a", std::string("\0v", 2)}, {"user.empty", ""}};
  return row;
}

inline std::string describe(const session::NodeRow& row) {
  std::ostringstream out;
  out << "node " << row.node.value << " mode " << std::oct << row.mode << std::dec << " of " << row.uid << ':'
      << row.gid << " rdev " << row.rdev;
  for (const session::Timestamp& time : {row.accessed, row.modified, row.changed})
    out << ' ' << time.seconds << '.' << time.nanoseconds;
  out << " base " << row.base.hex() << ' ' << row.base_mode << ' ' << row.base_length << " staging "
      << row.staging.value << " map '" << row.block_map << "' era " << row.era << " durable " << row.durable.base.hex()
      << ' ' << row.durable.base_length << ' ' << row.durable.staging.value << " map '" << row.durable.block_map
      << "' sealed '" << row.sealed << "' '" << row.durable.sealed << "' target '" << row.target << "'";
  if (row.times)
    out << " times " << row.times->oldest.seconds << '.' << row.times->oldest.nanoseconds << " '"
        << row.times->path.value_or("-") << "'";
  for (const auto& [name, value] : row.xattrs) out << ' ' << name << "='" << value << "'";
  return out.str();
}

inline std::string describe(const session::EdgeRow& row) {
  return std::to_string(row.directory.value) + "/'" + row.name + "' -> " + std::to_string(row.node.value) + " cookie " +
         std::to_string(row.cookie);
}

}  // namespace escrow::support
