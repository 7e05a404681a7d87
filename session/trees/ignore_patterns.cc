#include "session/trees/ignore_patterns.h"

#include <algorithm>
#include <bitset>
#include <utility>

namespace escrow::session {
namespace {

using Bytes = std::bitset<256>;

constexpr std::size_t kLongestPattern_bytes = 4096;
constexpr std::string_view kSpecial = "*?[\\";

// trim_trailing_spaces(): a space that a backslash escapes stays, with what is before it.
std::string_view without_trailing_spaces(std::string_view line) {
  std::size_t end = line.size(), last = line.npos;
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (line[at] == ' ') {
      last = std::min(last, at);
      continue;
    }
    if (line[at] == '\\' && ++at == line.size()) return line;
    last = line.npos;
  }
  return line.substr(0, std::min(last, end));
}

// The characters of `[:name:]`, of ASCII whatever the locale, as git's sane_ctype has them.
std::optional<Bytes> named_class(std::string_view name) {
  const auto is_member = [&](unsigned char byte) -> std::optional<bool> {
    const bool is_lower = byte >= 'a' && byte <= 'z', is_upper = byte >= 'A' && byte <= 'Z';
    const bool is_digit = byte >= '0' && byte <= '9', is_printed = byte >= ' ' && byte <= '~';
    if (name == "alnum") return is_lower || is_upper || is_digit;
    if (name == "alpha") return is_lower || is_upper;
    if (name == "blank") return byte == ' ' || byte == '\t';
    if (name == "cntrl") return byte < ' ' || byte == 0x7f;
    if (name == "digit") return is_digit;
    if (name == "graph") return is_printed && byte != ' ';
    if (name == "lower") return is_lower;
    if (name == "print") return is_printed;
    if (name == "punct") return is_printed && byte != ' ' && !is_lower && !is_upper && !is_digit;
    if (name == "space") return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
    if (name == "upper") return is_upper;
    if (name == "xdigit") return is_digit || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F');
    return std::nullopt;
  };
  Bytes bytes;
  for (unsigned char byte = 0; byte < 128; ++byte) {
    const std::optional<bool> fits = is_member(byte);
    if (!fits) return std::nullopt;
    bytes.set(byte, *fits);
  }
  return bytes;
}

// The class at glob[at], as wildmatch() reads it; sets `at` behind it. nullopt: nothing can match it.
std::optional<Bytes> wildmatch_class_at(std::string_view glob, std::size_t& at) {
  std::size_t i = at + 1;
  const bool is_negated = i < glob.size() && (glob[i] == '!' || glob[i] == '^');
  if (is_negated) ++i;
  Bytes bytes;
  int low = -1;  // the character just before, from which a range can go; -1: none
  for (bool is_first = true; i < glob.size() && (is_first || glob[i] != ']'); is_first = false) {
    const bool is_range = glob[i] == '-' && low >= 0 && i + 1 < glob.size() && glob[i + 1] != ']';
    if (is_range) ++i;
    if (!is_range && glob.substr(i).starts_with("[:")) {
      const std::size_t end = glob.find(']', i + 2);
      if (end == glob.npos) return std::nullopt;
      if (end >= i + 3 && glob[end - 1] == ':') {
        const std::optional<Bytes> named = named_class(glob.substr(i + 2, end - i - 3));
        if (!named) return std::nullopt;
        bytes |= *named;
        low = -1;
        i = end + 1;
        continue;
      }
    }
    if (glob[i] == '\\' && ++i == glob.size()) return std::nullopt;
    const auto byte = static_cast<unsigned char>(glob[i++]);
    for (int one = is_range ? low : byte; one <= byte; ++one) bytes.set(static_cast<std::size_t>(one));
    low = is_range ? -1 : byte;
  }
  if (i >= glob.size()) return std::nullopt;
  at = i + 1;
  if (is_negated) bytes.flip();
  return bytes.reset('/');
}

// The glob as Glob has it; nullopt: wildmatch() lets it match nothing. Classes become lists of their characters. Where
// `**` stands for directories and the slash behind it is escaped, it stands for one at least.
std::optional<std::string> as_glob(std::string_view text) {
  std::string glob;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    if (text[at] == '\\') {
      at += 2;
      if (at > text.size()) return std::nullopt;
    } else if (text[at] == '[') {
      const std::optional<Bytes> bytes = wildmatch_class_at(text, at);
      if (!bytes || bytes->none()) return std::nullopt;
      glob += '[';
      for (std::size_t byte = 0; byte < bytes->size(); ++byte)
        if (bytes->test(byte)) glob.append(1, '\\').append(1, static_cast<char>(byte));
      glob += ']';
      continue;
    } else if (text[at] == '*') {
      at = std::min(text.find_first_not_of('*', at), text.size());
      const bool is_deep = at - begin >= 2 && (begin == 0 || text[begin - 1] == '/');
      if (is_deep && text.substr(at).starts_with("\\/")) {
        glob += "*/**/";
        at += 2;
        continue;
      }
    } else {
      ++at;
    }
    glob += text.substr(begin, at - begin);
  }
  return glob;
}

}  // namespace

IgnorePatterns::IgnorePatterns(std::string_view content) {
  if (content.starts_with("\xef\xbb\xbf")) content.remove_prefix(3);
  while (!content.empty()) {
    const std::size_t end = std::min(content.find('\n'), content.size());
    std::string_view line = content.substr(0, end);
    content.remove_prefix(std::min(end + 1, content.size()));
    if (line.empty() || line.front() == '#') continue;
    if (line.back() == '\r') line.remove_suffix(1);
    line = line.substr(0, line.find('\0'));
    add(without_trailing_spaces(line));
  }
}

void IgnorePatterns::add(std::string_view line) {
  Pattern pattern;
  if (line.starts_with('!')) {
    pattern.negated = true;
    line.remove_prefix(1);
  }
  const std::size_t first_special = line.find_first_of(kSpecial);
  if (line.ends_with('/')) {
    pattern.directories_only = true;
    line.remove_suffix(1);
  }
  if (line.empty() || line.size() > kLongestPattern_bytes) return;
  pattern.of_names = line.find('/') == line.npos;
  const bool is_suffix = line.front() == '*' && line.find_first_of(kSpecial, 1) == line.npos;
  if (first_special >= line.size()) {
    pattern.text = line.substr(line.front() == '/' ? 1 : 0);
  } else if (pattern.of_names && is_suffix) {
    pattern.form = Pattern::Form::suffix;
    pattern.text = line.substr(1);
  } else {
    // A path is compared up to the first special character, and the rest matched as if it began there.
    const std::size_t literal = pattern.of_names ? 0 : first_special;
    const std::optional<std::string> glob = as_glob(line.substr(literal));
    if (!glob) return;
    pattern.form = Pattern::Form::glob;
    pattern.text = line.substr(0, literal);
    if (pattern.text.starts_with('/')) pattern.text.erase(0, 1);
    pattern.glob = Glob(*glob);
  }
  if (pattern.form == Pattern::Form::literal && pattern.text.empty()) return;
  patterns_.push_back(std::move(pattern));
}

bool IgnorePatterns::Pattern::match(std::string_view path, std::string_view name) const {
  const std::string_view subject = of_names ? name : path;
  switch (form) {
    case Form::literal: return subject == text;
    case Form::suffix: return subject.ends_with(text);
    case Form::glob: return subject.starts_with(text) && glob.match(subject.substr(text.size()));
  }
  return false;
}

IgnorePatterns::Verdict IgnorePatterns::verdict(std::string_view path, bool is_directory) const {
  const std::size_t slash = path.rfind('/');
  const std::string_view name = slash == path.npos ? path : path.substr(slash + 1);
  for (auto pattern = patterns_.rbegin(); pattern != patterns_.rend(); ++pattern) {
    if (pattern->directories_only && !is_directory) continue;
    if (pattern->match(path, name)) return pattern->negated ? Verdict::kept : Verdict::ignored;
  }
  return Verdict::undecided;
}

IgnoreLevel::IgnoreLevel(std::string_view exclude_file, ReadFile read)
    : exclude_file_(exclude_file), read_(std::move(read)), is_ignored_(false) {}

IgnoreLevel::IgnoreLevel(IgnoreLevel& above, std::string_view name, ReadFile read)
    : above_(&above), path_(above.path_ + std::string(name) + '/'), name_(name), read_(std::move(read)) {}

const IgnorePatterns& IgnoreLevel::patterns() {
  if (read_) patterns_ = IgnorePatterns(std::exchange(read_, nullptr)());
  return patterns_;
}

bool IgnoreLevel::is_ignored() {
  if (!is_ignored_) is_ignored_ = above_->ignores(name_, true);
  return *is_ignored_;
}

bool IgnoreLevel::ignores(std::string_view name, bool is_directory) {
  if (is_ignored()) return true;
  const std::string path = path_ + std::string(name);
  for (IgnoreLevel* level = this;; level = level->above_) {
    auto verdict = level->patterns().verdict(std::string_view(path).substr(level->path_.size()), is_directory);
    const bool is_root = level->above_ == nullptr;
    if (is_root && verdict == IgnorePatterns::Verdict::undecided)
      verdict = level->exclude_file_.verdict(path, is_directory);
    if (verdict != IgnorePatterns::Verdict::undecided) return verdict == IgnorePatterns::Verdict::ignored;
    if (is_root) return false;
  }
}

}  // namespace escrow::session
