#include "session/trees/git_file_rules.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "session/base/hex.h"
#include "session/base/repo_path.h"

namespace escrow::session {
namespace {

// git refuses what is larger than core.bigFileThreshold without a look at it; in repositories of ours that is 8m.
constexpr std::uint64_t kLargestParsed_bytes = std::uint64_t{8} << 20;
constexpr std::size_t kLongestAttributesLine_bytes = 2048;

constexpr std::string_view kDigits = "0123456789";

// As git's sane_ctype has it, whatever the locale.
bool is_space(int c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_letter(int c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_key_character(int c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '-'; }
char lower(int c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c); }

// Up to the first NUL, as C reads it.
std::string_view as_c_string(std::string_view text) { return text.substr(0, text.find('\0')); }

// ---- configuration files (git_parse_source in config.c) ----

class ConfigParser {
 public:
  // `value` is null where the key has none.
  using Visit = std::function<void(std::string_view key, const std::string* value)>;

  // Where char is signed git takes the byte 0xff for the end of the file, and sees no byte order mark.
  ConfigParser(std::string_view text, bool is_char_signed, Visit visit)
      : text_(text), is_char_signed_(is_char_signed), visit_(std::move(visit)) {
    if (!is_char_signed_ && text_.starts_with("\xef\xbb\xbf")) text_.remove_prefix(3);
  }

  // Every key up to the first error, or to the end.
  void run() {
    std::string section;
    for (bool is_comment = false;;) {
      const int c = next();
      if (c == '\n') {
        if (ended_) return;
        is_comment = false;
      } else if (is_comment || is_space(c)) {
        continue;
      } else if (c == '#' || c == ';') {
        is_comment = true;
      } else if (c == '[') {
        section.clear();
        if (!read_section(section)) return;
        section += '.';
      } else if (!is_letter(c) || !read_key(section + lower(c))) {
        return;
      }
    }
  }

 private:
  // Carriage returns before newlines are not seen; the end looks like a newline.
  int next() {
    if (text_.starts_with("\r\n")) text_.remove_prefix(1);
    if (text_.empty()) {
      ended_ = true;
      return '\n';
    }
    const auto c = static_cast<unsigned char>(text_.front());
    text_.remove_prefix(1);
    if (c != 0xff || !is_char_signed_) return c;
    ended_ = true;
    return '\n';
  }

  // What follows '[': a name, or a name and another in quotes.
  bool read_section(std::string& section) {
    for (;;) {
      int c = next();
      if (ended_) return false;
      if (c == ']') return true;
      if (!is_space(c)) {
        if (!is_key_character(c) && c != '.') return false;
        section += lower(c);
        continue;
      }
      do {
        if (c == '\n') return false;
        c = next();
      } while (is_space(c));
      section += '.';
      return c == '"' && read_quoted(section) && next() == ']';
    }
  }

  bool read_quoted(std::string& name) {
    for (;;) {
      int c = next();
      if (c == '"') return true;
      if (c == '\\') c = next();
      if (c == '\n') return false;
      name += static_cast<char>(c);
    }
  }

  bool read_key(std::string key) {
    int c = next();
    for (; !ended_ && is_key_character(c); c = next()) key += lower(c);
    while (c == ' ' || c == '\t') c = next();
    std::string value;
    if (c != '\n' && (c != '=' || !read_value(value))) return false;
    visit_(as_c_string(key), c == '\n' ? nullptr : &value);
    return true;
  }

  bool read_value(std::string& value) {
    bool is_quoted = false, is_comment = false;
    std::size_t spaces = 0;
    for (;;) {
      int c = next();
      if (c == '\n') return !is_quoted;
      if (is_comment) continue;
      if (is_space(c) && !is_quoted) {
        if (!value.empty()) ++spaces;
        continue;
      }
      if (!is_quoted && (c == ';' || c == '#')) {
        is_comment = true;
        continue;
      }
      value.append(std::exchange(spaces, 0), ' ');
      if (c == '"') {
        is_quoted = !is_quoted;
      } else if (c != '\\') {
        value += static_cast<char>(c);
      } else if ((c = next()) != '\n') {
        constexpr std::string_view kEscapes = "tbn\\\"", kMeanings = "\t\b\n\\\"";
        const std::size_t at = kEscapes.find(static_cast<char>(c));
        if (at == kEscapes.npos) return false;
        value += kMeanings[at];
      }
    }
  }

  std::string_view text_;
  const bool is_char_signed_;
  const Visit visit_;
  bool ended_ = false;
};

// ---- URLs ----

// The byte of "%XX" at `at`; -1: there is none.
int escaped_byte(std::string_view url, std::size_t at) {
  if (url[at] != '%' || at + 2 >= url.size()) return -1;
  const int high = hex_value(url[at + 1]), low = hex_value(url[at + 2]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

// Written out or escaped.
bool has_newline(std::string_view url) {
  for (std::size_t at = 0; at < url.size(); ++at)
    if (url[at] == '\n' || escaped_byte(url, at) == '\n') return true;
  return false;
}

bool is_separator(char c) { return c == '/' || c == '\\'; }

// "./" and "../" in front; `ups` counts the latter.
std::string_view without_dots(std::string_view url, int& ups) {
  for (ups = 0;;) {
    if (url.size() >= 3 && url.starts_with("..") && is_separator(url[2])) {
      url.remove_prefix(3);
      ++ups;
    } else if (url.size() >= 2 && url[0] == '.' && is_separator(url[1])) {
      url.remove_prefix(2);
    } else {
      return url;
    }
  }
}

bool is_port(std::string_view text) {
  if (text.empty()) return true;
  text.remove_prefix(std::min(text.find_first_not_of('0'), text.size()));
  if (text.empty() || text.size() > 5 || text.find_first_not_of(kDigits) != text.npos) return false;
  return std::stoul(std::string(text)) <= 65535;
}

// No "..", and so no "%2e%2e", goes above the root.
bool stays_below_root(std::string_view path) {
  std::string plain;
  for (std::size_t at = 0; at < path.size(); ++at) {
    const int byte = escaped_byte(path, at);
    plain += byte < 0 ? path[at] : static_cast<char>(byte);
    if (byte >= 0) at += 2;
  }
  int depth = 0;
  for (std::size_t begin = 0; begin <= plain.size();) {
    const std::size_t end = std::min(plain.find('/', begin), plain.size());
    const std::string_view part = std::string_view(plain).substr(begin, end - begin);
    if (part == "..") {
      if (--depth < 0) return false;
    } else if (!part.empty() && part != ".") {
      ++depth;
    }
    begin = end + 1;
  }
  return true;
}

// What git gives to its curl helper: credential_from_url_gently(), url_normalize().
bool is_good_web_url(std::string_view url) {
  const std::size_t scheme = url.find("://");
  if (scheme == url.npos || scheme == 0 || has_newline(url)) return false;
  for (std::size_t at = 0; at < url.size(); ++at)
    if (url[at] == '%' && escaped_byte(url, at) < 0) return false;
  std::string_view rest = url.substr(scheme + 3);
  const std::size_t host_end = std::min(rest.find_first_of("/?#"), rest.size());
  std::string_view host = rest.substr(0, host_end);
  rest.remove_prefix(host_end);
  if (const std::size_t at = host.find('@'); at != host.npos) host.remove_prefix(at + 1);
  const std::size_t colon = host.find_last_of(":]");
  if (colon != host.npos && host[colon] == ':') {
    if (!is_port(host.substr(colon + 1))) return false;
    host = host.substr(0, colon);
  }
  const auto is_host_character = [](unsigned char c) {
    return is_letter(c) || std::string_view("0123456789.-_[:]").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (host.empty() || !std::all_of(host.begin(), host.end(), is_host_character)) return false;
  return stays_below_root(rest.substr(0, rest.find_first_of("?#")));
}

bool is_good_submodule_url(std::string_view url) {
  if (url.starts_with('-')) return false;
  const bool is_relative = url.starts_with("./") || url.starts_with("../") || url.starts_with(".\\") ||
                           url.starts_with("..\\") || url.starts_with("^/");
  if (is_relative || url.starts_with("git://")) {
    int ups = 0;
    const std::string_view rest = without_dots(url, ups);
    const bool replaces_host = (ups > 0 && (rest.starts_with(':') || rest.starts_with('/'))) ||
                               url.starts_with("^/:") || url.starts_with("^//");
    return !has_newline(url) && !replaces_host;
  }
  for (const std::string_view helper : {"http::", "https::", "ftp::", "ftps::"})
    if (url.starts_with(helper)) return is_good_web_url(url.substr(helper.size()));
  for (const std::string_view scheme : {"http://", "https://", "ftp://", "ftps://"})
    if (url.starts_with(scheme)) return is_good_web_url(url);
  return true;
}

bool is_good_submodule_name(std::string_view name) {
  if (name.empty()) return false;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find_first_of("/\\", begin), name.size());
    if (name.substr(begin, end - begin) == "..") return false;
    begin = end + 1;
  }
  return true;
}

}  // namespace

bool git_refuses_attributes(std::string_view content) {
  if (content.size() >= kLargestParsed_bytes) return true;
  for (std::string_view rest = as_c_string(content); !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    if (end >= kLongestAttributesLine_bytes) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

bool git_refuses_modules(std::string_view content) {
  if (content.size() >= kLargestParsed_bytes) return true;
  bool refused = false;
  const auto look = [&](std::string_view key, const std::string* whole_value) {
    constexpr std::string_view kSection = "submodule.";
    const std::size_t dot = key.rfind('.');
    if (!key.starts_with(kSection) || dot < kSection.size()) return;
    refused = refused || !is_good_submodule_name(key.substr(kSection.size(), dot - kSection.size()));
    if (whole_value == nullptr) return;
    const std::string_view value = as_c_string(*whole_value), item = key.substr(dot + 1);
    if (item == "url") refused = refused || !is_good_submodule_url(value);
    if (item == "path") refused = refused || value.starts_with('-');
    if (item == "update") refused = refused || value.starts_with('!');
  };
  for (const bool is_char_signed : {true, false}) ConfigParser(content, is_char_signed, look).run();
  return refused;
}

bool git_refuses_entry(const TreeEntry& entry) {
  return git_refuses_name(entry.name) || (entry.mode == GitMode::symlink && is_gitmodules_name(entry.name));
}

Tree read_shown_tree(const ObjectReader& objects, const ObjectId& id) {
  Tree tree = objects.read_tree(id);
  std::erase_if(tree, git_refuses_entry);
  return tree;
}

bool git_refuses_file(std::string_view name, const ByteSource& content) {
  const bool is_modules = is_gitmodules_name(name);
  if (!is_modules && !is_gitattributes_name(name)) return false;
  if (content.size() >= kLargestParsed_bytes) return true;
  return is_modules ? git_refuses_modules(read_all(content)) : git_refuses_attributes(read_all(content));
}

std::optional<OmissionKind> why_git_refuses(const ObjectReader& objects, const TreeEntry& entry) {
  if (git_refuses_entry(entry)) return OmissionKind::git_name;
  if (entry.mode == GitMode::symlink) return std::nullopt;
  if (!is_gitmodules_name(entry.name) && !is_gitattributes_name(entry.name)) return std::nullopt;
  const bool is_file = entry.mode != GitMode::gitlink && entry.mode != GitMode::tree;
  if (is_file && !git_refuses_file(entry.name, *objects.open_blob(entry.id))) return std::nullopt;
  return OmissionKind::git_refused;
}

}  // namespace escrow::session
