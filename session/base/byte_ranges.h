// A set of bytes of a file, as ranges in order. A plain value; its owner locks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace escrow::session {

class ByteRanges {
 public:
  static constexpr std::uint64_t kEnd = ~std::uint64_t{0};
  struct Range {
    std::uint64_t begin = 0, end = 0;
    friend bool operator==(const Range&, const Range&) = default;
  };

  bool empty() const { return ranges_.empty(); }
  const std::vector<Range>& ranges() const { return ranges_; }

  void add(std::uint64_t begin, std::uint64_t end) {
    if (begin >= end) return;
    // Everything that touches it becomes one range with it.
    const auto first = std::partition_point(ranges_.begin(), ranges_.end(), [&](Range r) { return r.end < begin; });
    const auto last = std::partition_point(first, ranges_.end(), [&](Range r) { return r.begin <= end; });
    if (first != last) {
      begin = std::min(begin, first->begin);
      end = std::max(end, std::prev(last)->end);
    }
    const auto place = ranges_.erase(first, last);
    ranges_.insert(place, {begin, end});
  }
  void add(const ByteRanges& other) {
    for (const Range& range : other.ranges_) add(range.begin, range.end);
  }
  void subtract(std::uint64_t begin, std::uint64_t end) {
    if (begin >= end) return;
    const auto first = std::partition_point(ranges_.begin(), ranges_.end(), [&](Range r) { return r.end <= begin; });
    const auto last = std::partition_point(first, ranges_.end(), [&](Range r) { return r.begin < end; });
    if (first == last) return;
    const Range before{first->begin, begin}, after{end, std::prev(last)->end};
    auto place = ranges_.erase(first, last);
    if (after.begin < after.end) place = ranges_.insert(place, after);
    if (before.begin < before.end) ranges_.insert(place, before);
  }
  // Makes it at most so many ranges, by taking in the bytes between some.
  void coarsen(std::size_t most) {
    while (ranges_.size() > most) {
      std::size_t nearest = 1;
      for (std::size_t i = 2; i < ranges_.size(); ++i)
        if (ranges_[i].begin - ranges_[i - 1].end < ranges_[nearest].begin - ranges_[nearest - 1].end) nearest = i;
      add(ranges_[nearest - 1].end, ranges_[nearest].begin);
    }
  }

 private:
  std::vector<Range> ranges_;  // by begin; neither empty nor touching one another
};

}  // namespace escrow::session
