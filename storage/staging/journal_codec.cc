#include "storage/staging/journal_codec.h"

#include <optional>

namespace escrow::storage {
namespace {

using session::Errc;
using session::Error;
using session::NodeId;
using session::Timestamp;

[[noreturn]] void damaged(const std::string& path, NodeId node, const char* what) {
  throw Error(Errc::damaged_repository, "the database " + path + " is damaged: node " + std::to_string(node.value) +
                                            " has an impossible " + what);
}

void append_counted(std::string& out, std::string_view bytes) {
  const auto size = static_cast<std::uint32_t>(bytes.size());
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(size >> shift & 0xff);
  out += bytes;
}

std::optional<std::string> take_counted(std::string_view& in) {
  if (in.size() < 4) return std::nullopt;
  std::uint32_t size = 0;
  for (int i = 3; i >= 0; --i) size = size << 8 | static_cast<unsigned char>(in[static_cast<std::size_t>(i)]);
  in.remove_prefix(4);
  if (in.size() < size) return std::nullopt;
  std::string bytes(in.substr(0, size));
  in.remove_prefix(size);
  return bytes;
}

constexpr std::size_t kNumberBytes = 8;

void append_number(std::string& out, std::uint64_t number) {
  for (std::size_t i = 0; i < kNumberBytes; ++i) out += static_cast<char>(number >> 8 * i & 0xff);
}

std::uint64_t take_number(std::string_view& in) {
  std::uint64_t number = 0;
  for (std::size_t i = kNumberBytes; i-- > 0;) number = number << 8 | static_cast<unsigned char>(in[i]);
  in.remove_prefix(kNumberBytes);
  return number;
}

session::NodeRow::Durable decode_durable(const std::string& path, std::string_view bytes, NodeId node) {
  session::NodeRow::Durable durable;
  if (bytes.empty()) return durable;
  if (bytes.size() < session::ObjectId::kSize + 2 * kNumberBytes) damaged(path, node, "durable form");
  durable.base = session::ObjectId::from_raw(bytes.data());
  bytes.remove_prefix(session::ObjectId::kSize);
  durable.base_length = take_number(bytes);
  durable.staging = session::StagingId{take_number(bytes)};
  durable.block_map = bytes;
  return durable;
}

constexpr std::int64_t kSecond_ns = 1'000'000'000;

std::optional<session::TimesBelow> decode_times(const std::string& path, std::string_view bytes, NodeId node) {
  if (bytes.empty()) return std::nullopt;
  if (bytes.size() < kNumberBytes) damaged(path, node, "time of what is in it");
  const auto oldest_ns = static_cast<std::int64_t>(take_number(bytes));
  session::TimesBelow times;
  const std::int64_t rest_ns = (oldest_ns % kSecond_ns + kSecond_ns) % kSecond_ns;
  times.oldest = {(oldest_ns - rest_ns) / kSecond_ns, static_cast<std::uint32_t>(rest_ns)};
  if (!bytes.empty()) times.path = bytes.substr(1);
  return times;
}

Timestamp time_at(const Statement::Run& row, int column) {
  return {row.integer(column), static_cast<std::uint32_t>(row.integer(column + 1))};
}

}  // namespace

std::string encode_xattrs(const Xattrs& xattrs) {
  std::string encoded;
  for (const auto& [name, value] : xattrs) {
    append_counted(encoded, name);
    append_counted(encoded, value);
  }
  return encoded;
}

std::string encode_durable(const session::NodeRow::Durable& durable) {
  std::string encoded;
  if (durable.base.is_null() && !durable.staging && durable.sealed.empty()) return encoded;
  encoded.assign(reinterpret_cast<const char*>(durable.base.bytes().data()), session::ObjectId::kSize);
  append_number(encoded, durable.base_length);
  append_number(encoded, durable.staging.value);
  encoded += durable.block_map;
  return encoded;
}

std::string encode_times(const std::optional<session::TimesBelow>& times) {
  std::string encoded;
  if (!times) return encoded;
  append_number(encoded, static_cast<std::uint64_t>(times->oldest.seconds * kSecond_ns + times->oldest.nanoseconds));
  if (times->path) encoded += "/" + *times->path;
  return encoded;
}

std::uint64_t unsigned_at(const Statement::Run& row, int column) noexcept {
  return static_cast<std::uint64_t>(row.integer(column));
}

session::ObjectId decode_id(const std::string& path, const std::string& bytes, NodeId node) {
  if (bytes.size() != session::ObjectId::kSize) damaged(path, node, "object id");
  return session::ObjectId::from_raw(bytes.data());
}

session::NodeRow decode_node(const std::string& path, const Statement::Run& row) {
  const auto word_at = [&](int column) { return static_cast<std::uint32_t>(row.integer(column)); };
  session::NodeRow node;
  node.node = NodeId{unsigned_at(row, 0)};
  if (!node.node) damaged(path, node.node, "number");
  node.mode = word_at(1);
  node.uid = word_at(2);
  node.gid = word_at(3);
  node.rdev = word_at(4);
  node.accessed = time_at(row, 5);
  node.modified = time_at(row, 7);
  node.changed = time_at(row, 9);
  for (const Timestamp& time : {node.accessed, node.modified, node.changed})
    if (time.nanoseconds >= 1'000'000'000) damaged(path, node.node, "time");
  if (!row.is_null(11)) node.base = decode_id(path, row.bytes(11), node.node);
  node.base_mode = word_at(12);
  node.base_length = unsigned_at(row, 13);
  node.staging = session::StagingId{unsigned_at(row, 14)};
  node.block_map = row.bytes(15);
  node.target = row.bytes(16);
  const std::string xattrs = row.bytes(17);
  for (std::string_view rest = xattrs; !rest.empty();) {
    std::optional<std::string> name = take_counted(rest);
    std::optional<std::string> value = name ? take_counted(rest) : std::nullopt;
    if (!value) damaged(path, node.node, "list of extended attributes");
    node.xattrs.emplace_back(std::move(*name), std::move(*value));
  }
  node.era = unsigned_at(row, 18);
  node.durable = decode_durable(path, row.bytes(19), node.node);
  node.sealed = row.bytes(20);
  node.durable.sealed = row.bytes(21);
  node.times = decode_times(path, row.bytes(22), node.node);
  return node;
}

}  // namespace escrow::storage
