#include "session/overlay/lost_bytes.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>

namespace escrow::session {

void LostBytes::add(std::uint64_t begin, std::uint64_t end) {
  if (begin >= end) return;
  auto at = ranges_.upper_bound(begin);
  if (at != ranges_.begin() && std::prev(at)->second >= begin) --at;
  while (at != ranges_.end() && at->first <= end) {
    begin = std::min(begin, at->first);
    end = std::max(end, at->second);
    at = ranges_.erase(at);
  }
  ranges_.emplace(begin, end);
  if (ranges_.size() <= kMaxRanges) return;
  const std::uint64_t first = ranges_.begin()->first, last = ranges_.rbegin()->second;
  ranges_ = {{first, last}};
}

void LostBytes::remove(std::uint64_t begin, std::uint64_t end) {
  if (begin >= end) return;
  auto at = ranges_.upper_bound(begin);
  if (at != ranges_.begin() && std::prev(at)->second > begin) --at;
  while (at != ranges_.end() && at->first < end) {
    const auto [was_begin, was_end] = *at;
    at = ranges_.erase(at);
    if (was_begin < begin) ranges_.emplace(was_begin, begin);
    if (was_end > end) ranges_.emplace(end, was_end);
  }
}

std::string LostBytes::text() const {
  std::string text;
  for (const auto& [begin, end] : ranges_)
    text += (text.empty() ? "" : ",") + std::to_string(begin) + "-" + std::to_string(end);
  return text;
}

LostBytes LostBytes::parse(std::string_view text) {
  LostBytes lost;
  const char* at = text.data();
  const char* const last = at + text.size();
  while (at < last) {
    std::uint64_t begin = 0, end = 0;
    const auto first = std::from_chars(at, last, begin);
    if (first.ec != std::errc() || first.ptr == last || *first.ptr != '-') break;
    const auto second = std::from_chars(first.ptr + 1, last, end);
    if (second.ec != std::errc()) break;
    lost.add(begin, end);
    at = second.ptr == last ? last : second.ptr + 1;
  }
  return lost;
}

}  // namespace escrow::session
