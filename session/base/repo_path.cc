#include "session/base/repo_path.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "session/base/error.h"

namespace escrow::session {
namespace {

constexpr std::size_t kLongestName = 255;

unsigned char byte_at(std::string_view text, std::size_t index) {
  return index < text.size() ? static_cast<unsigned char>(text[index]) : 0;
}

// Of ASCII letters only, as git's sane_ctype does.
unsigned char lower(unsigned char byte) { return byte >= 'A' && byte <= 'Z' ? byte + ('a' - 'A') : byte; }

bool starts_with_ignoring_case(std::string_view text, std::string_view lower_case_prefix) {
  if (text.size() < lower_case_prefix.size()) return false;
  for (std::size_t i = 0; i < lower_case_prefix.size(); ++i)
    if (lower(byte_at(text, i)) != byte_at(lower_case_prefix, i)) return false;
  return true;
}

bool is_continuation(unsigned char byte) { return (byte & 0xc0) == 0x80; }

// One UTF-8 code point at `position`, which moves on; nullopt when malformed (pick_one_utf8_char in git's utf8.c).
std::optional<std::uint32_t> next_code_point(std::string_view text, std::size_t& position) {
  const unsigned char a = byte_at(text, position), b = byte_at(text, position + 1), c = byte_at(text, position + 2),
                      d = byte_at(text, position + 3);
  if (a < 0x80) {
    position += 1;
    return a;
  }
  if ((a & 0xe0) == 0xc0) {
    if (!is_continuation(b) || (a & 0xfe) == 0xc0) return std::nullopt;
    position += 2;
    return (a & 0x1fu) << 6 | (b & 0x3fu);
  }
  if ((a & 0xf0) == 0xe0) {
    const bool overlong = a == 0xe0 && (b & 0xe0) == 0x80;
    const bool surrogate = a == 0xed && (b & 0xe0) == 0xa0;
    const bool not_a_character = a == 0xef && b == 0xbf && (c & 0xfe) == 0xbe;
    if (!is_continuation(b) || !is_continuation(c) || overlong || surrogate || not_a_character) return std::nullopt;
    position += 3;
    return (a & 0x0fu) << 12 | (b & 0x3fu) << 6 | (c & 0x3fu);
  }
  if ((a & 0xf8) == 0xf0) {
    const bool overlong = a == 0xf0 && (b & 0xf0) == 0x80;
    const bool too_high = a > 0xf4 || (a == 0xf4 && b > 0x8f);
    if (!is_continuation(b) || !is_continuation(c) || !is_continuation(d) || overlong || too_high)
      return std::nullopt;
    position += 4;
    return (a & 0x07u) << 18 | (b & 0x3fu) << 12 | (c & 0x3fu) << 6 | (d & 0x3fu);
  }
  return std::nullopt;
}

bool hfs_ignores(std::uint32_t code_point) {
  return (code_point >= 0x200c && code_point <= 0x200f) || (code_point >= 0x202a && code_point <= 0x202e) ||
         (code_point >= 0x206a && code_point <= 0x206f) || code_point == 0xfeff;
}

// 0 at the end, and, as in git, for malformed bytes: they end the comparison as the end would.
std::uint32_t next_hfs_character(std::string_view text, std::size_t& position) {
  while (position < text.size()) {
    const std::optional<std::uint32_t> code_point = next_code_point(text, position);
    if (!code_point) return 0;
    if (!hfs_ignores(*code_point)) return *code_point;
  }
  return 0;
}

// is_hfs_dot_generic in git's utf8.c.
bool is_hfs_dot(std::string_view name, std::string_view after_dot) {
  std::size_t position = 0;
  if (next_hfs_character(name, position) != '.') return false;
  for (const char expected : after_dot) {
    const std::uint32_t found = next_hfs_character(name, position);
    if (found > 127 || lower(static_cast<unsigned char>(found)) != static_cast<unsigned char>(expected)) return false;
  }
  return next_hfs_character(name, position) == 0;
}

// is_ntfs_dotgit in git's path.c: NTFS drops trailing dots and spaces, and a ':' begins a stream's name.
bool is_ntfs_dotgit(std::string_view name) {
  if (starts_with_ignoring_case(name, ".git"))
    name.remove_prefix(4);
  else if (starts_with_ignoring_case(name, "git~1"))
    name.remove_prefix(5);
  else
    return false;
  const std::size_t end = name.find_first_not_of(". ");
  return end == name.npos || name[end] == '\\' || name[end] == ':';
}

bool only_spaces_and_periods(std::string_view rest) {
  const std::size_t end = rest.find_first_not_of(". ");
  return end == rest.npos || rest[end] == ':';
}

// is_ntfs_dot_generic in git's path.c: `name` in full, as its short name "abcdef~1", and with the prefix that NTFS
// falls back to.
bool is_ntfs_dot(std::string_view name, std::string_view after_dot, std::string_view fallback_prefix) {
  constexpr std::size_t kShort = 6;
  if (name.starts_with('.') && starts_with_ignoring_case(name.substr(1), after_dot))
    return only_spaces_and_periods(name.substr(1 + after_dot.size()));
  if (starts_with_ignoring_case(name, after_dot.substr(0, kShort)) && byte_at(name, kShort) == '~' &&
      byte_at(name, kShort + 1) >= '1' && byte_at(name, kShort + 1) <= '4')
    return only_spaces_and_periods(name.substr(kShort + 2));
  bool saw_tilde = false;
  for (std::size_t i = 0; i < kShort + 2; ++i) {
    const unsigned char byte = byte_at(name, i);
    if (byte == 0) return false;
    if (saw_tilde) {
      if (byte < '0' || byte > '9') return false;
    } else if (byte == '~') {
      ++i;
      if (byte_at(name, i) < '1' || byte_at(name, i) > '9') return false;
      saw_tilde = true;
    } else if (i >= fallback_prefix.size() || lower(byte) != byte_at(fallback_prefix, i)) {
      return false;
    }
  }
  return only_spaces_and_periods(name.size() > kShort + 2 ? name.substr(kShort + 2) : std::string_view());
}

bool is_ntfs_dotgitmodules(std::string_view name) { return is_ntfs_dot(name, "gitmodules", "gi7eba"); }

void append_quoted(std::string& quoted, unsigned char byte) {
  constexpr std::string_view kEscaped = "\a\b\t\n\v\f\r\"\\", kLetters = "abtnvfr\"\\";
  if (const std::size_t at = kEscaped.find(static_cast<char>(byte)); at != kEscaped.npos) {
    quoted += '\\';
    quoted += kLetters[at];
  } else if (byte < 0x20 || byte >= 0x7f) {
    quoted += '\\';
    for (int shift = 6; shift >= 0; shift -= 3) quoted += static_cast<char>('0' + (byte >> shift & 7));
  } else {
    quoted += static_cast<char>(byte);
  }
}

}  // namespace

RepoPath RepoPath::parse(std::string_view text, std::string_view what) {
  const auto refuse = [&](const std::string& why) {
    return Error(Errc::bad_request, std::string(what) + " " + quote_path(text) + " " + why);
  };
  if (text.find('\0') != text.npos) throw refuse("holds a NUL byte");
  std::string normal;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('/', start), text.size());
    const std::string_view name = text.substr(start, end - start);
    start = end + 1;
    if (name.empty()) continue;
    if (name == "." || name == "..")
      throw refuse("has a component '" + std::string(name) + "'; give the path from the repository's root");
    if (name.size() > kLongestName) throw refuse("has a component of more than 255 bytes");
    if (!normal.empty()) normal += '/';
    normal += name;
  }
  return RepoPath(std::move(normal));
}

std::vector<std::string_view> RepoPath::components() const {
  std::vector<std::string_view> names;
  const std::string_view text = text_;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('/', start), text.size());
    names.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return names;
}

RepoPath RepoPath::child(std::string_view name) const { return RepoPath(join_path(text_, name)); }

bool RepoPath::contains(const RepoPath& other) const {
  if (is_root()) return true;
  const std::string_view theirs = other.text_;
  return theirs.starts_with(text_) && (theirs.size() == text_.size() || theirs[text_.size()] == '/');
}

std::string join_path(std::string_view base, std::string_view name) {
  std::string path(base);
  if (!path.empty()) path += '/';
  path += name;
  return path;
}

std::string quote_path(std::string_view path) {
  std::string quoted;
  for (const char byte : path) append_quoted(quoted, static_cast<unsigned char>(byte));
  return quoted.size() == path.size() ? quoted : '"' + quoted + '"';
}

bool git_refuses_name(std::string_view name) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != name.npos) return true;
  if (is_hfs_dot(name, "git")) return true;
  // git looks behind every backslash too, a separator on Windows.
  for (std::string_view rest = name;;) {
    if (is_ntfs_dotgit(rest)) return true;
    const std::size_t backslash = rest.find('\\');
    if (backslash == rest.npos) return false;
    rest.remove_prefix(backslash + 1);
  }
}

bool is_gitmodules_name(std::string_view name) {
  if (is_hfs_dot(name, "gitmodules")) return true;
  for (std::string_view rest = name;;) {
    if (is_ntfs_dotgitmodules(rest)) return true;
    const std::size_t backslash = rest.find('\\');
    if (backslash == rest.npos) return false;
    rest.remove_prefix(backslash + 1);
  }
}

bool is_gitattributes_name(std::string_view name) {
  return is_hfs_dot(name, "gitattributes") || is_ntfs_dot(name, "gitattributes", "gi7d29");
}

}  // namespace escrow::session
