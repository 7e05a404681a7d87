// Which blocks of a staging file hold data, when the rest still shows the base below it.
// A plain value; its owner (Content) locks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace escrow::session {

class BlockMap {
 public:
  // Large enough that a map of a 10 GiB file is 10 KiB, small enough that an edit of one byte copies little.
  static constexpr std::uint64_t kBlockSize = 128 * 1024;

  BlockMap() = default;
  explicit BlockMap(std::uint64_t blocks) : bits_((blocks + 7) / 8, '\0'), blocks_(blocks) {}
  // What bytes() gave; `blocks` as when it was made. Short input counts as zeroes.
  BlockMap(std::uint64_t blocks, std::string_view bytes) : BlockMap(blocks) {
    bits_.replace(0, std::min(bits_.size(), bytes.size()), bytes.substr(0, bits_.size()));
    for (std::uint64_t block = 0; block < blocks_; ++block) held_ += holds(block) ? 1 : 0;
  }

  static std::uint64_t blocks_of(std::uint64_t size_bytes) { return (size_bytes + kBlockSize - 1) / kBlockSize; }

  std::uint64_t blocks() const { return blocks_; }
  bool holds(std::uint64_t block) const {
    return block >= blocks_ || (static_cast<unsigned char>(bits_[block / 8]) >> (block % 8) & 1) != 0;
  }
  void set(std::uint64_t block) {
    if (holds(block)) return;
    bits_[block / 8] = static_cast<char>(static_cast<unsigned char>(bits_[block / 8]) | 1u << (block % 8));
    ++held_;
  }
  bool complete() const { return held_ == blocks_; }
  // Keeps the first `blocks` blocks.
  void shrink(std::uint64_t blocks) {
    if (blocks < blocks_) *this = BlockMap(blocks, std::string_view(bits_));
  }
  const std::string& bytes() const { return bits_; }
  friend bool operator==(const BlockMap&, const BlockMap&) = default;

 private:
  std::string bits_;
  std::uint64_t blocks_ = 0;
  std::uint64_t held_ = 0;
};

}  // namespace escrow::session
