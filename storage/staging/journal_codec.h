// How a session journal's rows become values again. Whatever a row can hold wrongly is Error{damaged_repository},
// naming the file and the node. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "session/interfaces/session_journal.h"
#include "storage/database/sqlite.h"

namespace escrow::storage {

using Xattrs = std::vector<std::pair<std::string, std::string>>;

// Name and value of each attribute, with its length in four bytes, little-endian, before it.
std::string encode_xattrs(const Xattrs& xattrs);

// "" for nothing; else base, base_length and staging, little-endian, and the block map.
std::string encode_durable(const session::NodeRow::Durable& durable);

// "" for nothing; else the oldest time, nanoseconds since the epoch in eight bytes, little-endian, and where there is a
// path a slash and it.
std::string encode_times(const std::optional<session::TimesBelow>& times);

std::uint64_t unsigned_at(const Statement::Run& row, int column) noexcept;
session::ObjectId decode_id(const std::string& path, const std::string& bytes, session::NodeId node);
// A row of the columns node, mode, ..., durable_sealed in the order of the schema, without `layer`.
session::NodeRow decode_node(const std::string& path, const Statement::Run& row);

// What a layer says of a node or a name that only the layers below have. A row: its base_mode; a name: its cookie,
// without a node.
inline constexpr std::uint32_t kDroppedNode = 0xffffffff;
inline constexpr std::uint64_t kDroppedName = 1;

}  // namespace escrow::storage
