#include "session/trees/lfs_pointer.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace escrow::session {
namespace {

constexpr std::string_view kVersion = "https://git-lfs.github.com/spec/v1";
constexpr std::array<std::string_view, 3> kVersions = {
    "http://git-media.io/v/2",             // alpha
    "https://hawser.github.com/spec/v1",   // pre-release
    kVersion,
};
constexpr std::size_t kOidDigits = 64;

// Without its line feed; takes it from `text`. nullopt: there is no whole line.
std::optional<std::string_view> take_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  if (end == text.npos) return std::nullopt;
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end + 1);
  return line;
}

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

bool is_oid(std::string_view text) {
  return text.size() == kOidDigits && text.find_first_not_of("0123456789abcdef") == text.npos;
}

std::optional<std::uint64_t> number_of(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

std::optional<LfsPointer> parse_lfs_pointer(std::string_view text) {
  if (text.size() < kSmallestLfsPointer_bytes || text.size() > kLargestLfsPointer_bytes) return std::nullopt;
  const std::string_view whole = text;
  if (take_line(text) != "version " + std::string(kVersion)) return std::nullopt;
  std::string_view oid = take_line(text).value_or("");
  std::string_view size = take_line(text).value_or("");
  if (!take(oid, "oid sha256:") || !is_oid(oid) || !take(size, "size ")) return std::nullopt;
  const std::optional<std::uint64_t> size_bytes = number_of(size);
  if (!size_bytes || *size_bytes == 0 || *size_bytes > kLargestLfsObject_bytes) return std::nullopt;
  LfsPointer pointer{.oid = std::string(oid), .size_bytes = *size_bytes};
  if (encode(pointer) != whole) return std::nullopt;  // zeroes before the size, or more lines
  return pointer;
}

std::string encode(const LfsPointer& pointer) {
  return "version " + std::string(kVersion) + "\noid sha256:" + pointer.oid + "\nsize " +
         std::to_string(pointer.size_bytes) + "\n";
}

bool is_pointer_to_git_lfs(std::string_view text) {
  if (text.size() >= kNoLfsPointer_bytes) return false;
  bool has_version = false, has_oid = false, has_size = false;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    if (!has_version) {
      if (!take(line, "version ") || std::find(kVersions.begin(), kVersions.end(), line) == kVersions.end())
        return false;
      has_version = true;
    } else if (take(line, "oid sha256:")) {
      has_oid = is_oid(line);
    } else if (take(line, "size ")) {
      has_size = number_of(line).has_value();
    } else if (!line.starts_with("ext-")) {
      return false;
    }
  }
  return has_oid && has_size;
}

}  // namespace escrow::session
