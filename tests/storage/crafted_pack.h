// Packs made byte by byte, with an index that says whatever a test wants it to say. See gitformat-pack(5).
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "storage/git/object_format.h"
#include "storage/objects/pack_writer.h"
#include "storage/objects/zlib_stream.h"

namespace escrow::storage {

inline std::string big_endian_text(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i) text.push_back(static_cast<char>(value >> (8 * i)));
  return text;
}

inline std::string deflated(const std::string& text) {
  return deflate(6, std::as_bytes(std::span(text.data(), text.size())));
}

inline std::string raw_hash(const std::string& text) {
  Sha1 hash;
  hash.update(text);
  const auto id = hash.finish();
  return std::string(reinterpret_cast<const char*>(id.bytes().data()), session::ObjectId::kSize);
}

// A size of a delta: seven bits a byte.
inline std::string delta_size(std::uint64_t size) {
  std::string text;
  for (; size >= 0x80; size >>= 7) text.push_back(static_cast<char>(size | 0x80));
  text.push_back(static_cast<char>(size));
  return text;
}

struct CraftedPack {
  struct Entry {
    session::ObjectId id;
    std::string bytes;                    // header and stream
    std::optional<std::uint64_t> offset;  // what the index says instead of the truth
  };
  std::vector<Entry> entries;
  std::string trailer;  // instead of the right one

  // Where the next entry begins.
  std::uint64_t offset() const {
    std::uint64_t offset = 12;
    for (const Entry& entry : entries) offset += entry.bytes.size();
    return offset;
  }
  session::ObjectId add(const std::string& content, ObjectType type = ObjectType::blob) {
    const auto id = hash_object(type, content);
    entries.push_back({id, encode_entry_header(type, content.size()) + deflated(content), {}});
    return id;
  }
  // An entry whose id is that of `content`, with these bytes.
  session::ObjectId add_as(const std::string& content, std::string bytes) {
    const auto id = hash_object(ObjectType::blob, content);
    entries.push_back({id, std::move(bytes), {}});
    return id;
  }
  session::ObjectId add_delta(const std::string& content, const session::ObjectId& base, const std::string& delta) {
    return add_as(content, encode_entry_header(ObjectType::reference_delta, delta.size()) +
                               std::string(reinterpret_cast<const char*>(base.bytes().data()), base.kSize) +
                               deflated(delta));
  }

  // Writes `stem`.pack and .idx, the index last.
  void write(const std::string& stem) const {
    std::string pack = "PACK" + big_endian_text(2, 4) + big_endian_text(entries.size(), 4);
    std::vector<std::pair<Entry, std::uint64_t>> sorted;
    for (const Entry& entry : entries) {
      sorted.emplace_back(entry, entry.offset.value_or(pack.size()));
      pack += entry.bytes;
    }
    const std::string checksum = raw_hash(pack);
    std::ofstream(stem + ".pack", std::ios::binary) << pack << (trailer.empty() ? checksum : trailer);
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first.id < b.first.id; });
    std::string index = "\377tOc" + big_endian_text(2, 4), ids, checks, offsets, large;
    for (int first = 0; first < 256; ++first) {
      index += big_endian_text(static_cast<std::uint64_t>(std::count_if(
                                   sorted.begin(), sorted.end(),
                                   [&](const auto& entry) { return entry.first.id.bytes()[0] <= first; })), 4);
    }
    for (const auto& [entry, offset] : sorted) {
      ids.append(reinterpret_cast<const char*>(entry.id.bytes().data()), entry.id.kSize);
      checks += big_endian_text(crc32_of(entry.bytes), 4);
      const bool is_large = offset > 0x7fffffff;
      offsets += big_endian_text(is_large ? 0x80000000u | large.size() / 8 : offset, 4);
      if (is_large) large += big_endian_text(offset, 8);
    }
    index += ids + checks + offsets + large + checksum;
    std::ofstream(stem + ".idx", std::ios::binary) << index << raw_hash(index);
  }
};

}  // namespace escrow::storage
