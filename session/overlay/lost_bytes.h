// Which bytes of a file the kernel could not write back, after programs had stored them through a mapping.
// A plain value; its owner locks. Bounded: where there are too many gaps between them, the gaps count as lost, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace escrow::session {

class LostBytes {
 public:
  static constexpr std::size_t kMaxRanges = 1024;

  bool empty() const { return ranges_.empty(); }
  void add(std::uint64_t begin, std::uint64_t end);
  // They were written again.
  void remove(std::uint64_t begin, std::uint64_t end);
  const std::map<std::uint64_t, std::uint64_t>& ranges() const { return ranges_; }  // begin -> end

  // As it is kept in the journal. What is malformed counts as nothing.
  std::string text() const;
  static LostBytes parse(std::string_view text);

  friend bool operator==(const LostBytes&, const LostBytes&) = default;

 private:
  std::map<std::uint64_t, std::uint64_t> ranges_;  // begin -> end; apart from one another
};

}  // namespace escrow::session
