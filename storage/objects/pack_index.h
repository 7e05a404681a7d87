// The index of a pack (version 2): which objects the pack has, and where.
//
// Nothing is mapped: a read of a mapping whose file was truncated ends the process (SIGBUS), a short pread(2) is an
// error. A small index is copied into memory; of a large one a search reads a page or two. Immutable, thread-safe.
// Throws Error{damaged_repository} for what is not a whole index of version 2, Error{input_output} and the like for
// what the disk says. Source: gitformat-pack(5).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "session/base/ids.h"
#include "storage/disk/unique_fd.h"

namespace escrow::storage {

class PackIndex {
 public:
  explicit PackIndex(const std::string& path);

  std::uint32_t count() const noexcept { return fanout_.back(); }
  std::optional<std::uint32_t> find(const session::ObjectId& id) const;
  session::ObjectId id_at(std::uint32_t index) const;
  std::uint32_t crc_at(std::uint32_t index) const;
  std::uint64_t offset_at(std::uint32_t index) const;
  // The last 20 bytes of the pack that this is the index of.
  session::ObjectId pack_trailer() const;

 private:
  void read(std::uint64_t offset, std::span<std::uint8_t> out) const;
  std::uint32_t number_at(std::uint64_t offset) const;

  const std::string path_;
  UniqueFd fd_;                       // none where all is in memory
  std::vector<std::uint8_t> memory_;  // the whole index, or nothing
  std::uint64_t size_bytes_ = 0;
  std::array<std::uint32_t, 257> fanout_{};  // how many ids begin with a byte below the index
};

}  // namespace escrow::storage
