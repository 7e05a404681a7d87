#include "session/trees/check_in_conversions.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <cstdint>

namespace escrow::session {
namespace {

using Setting = AttributeFile::Setting;

constexpr std::array<std::string_view, 6> kCheckInAttributes = {"text", "crlf",  "eol",
                                                                "ident", "filter", "working-tree-encoding"};

const Setting* setting_of(const SaidAttributes& said, std::string_view name) {
  const auto found = said.find(name);
  return found == said.end() ? nullptr : &found->second;
}

// "": it has no value.
std::string_view value_of(const SaidAttributes& said, std::string_view name) {
  const Setting* setting = setting_of(said, name);
  return setting != nullptr && setting->state == Setting::State::value ? std::string_view(setting->value) : "";
}

// The content from its beginning, until `visit` returns false.
void for_each_byte(const ByteSource& content, const std::function<bool(std::span<const std::byte>)>& visit) {
  std::array<std::byte, std::size_t{64} << 10> buffer;
  for (std::uint64_t offset = 0;;) {
    const std::size_t got = content.read(offset, buffer);
    if (got == 0 || !visit(std::span(buffer).first(got))) return;
    offset += got;
  }
}

// ---- line ends ----

enum class LineEnds { kept, text, text_auto };

LineEnds line_ends_by(const Setting* setting) {
  if (setting == nullptr) return LineEnds::kept;
  if (setting->state == Setting::State::set || setting->value == "input") return LineEnds::text;
  return setting->value == "auto" ? LineEnds::text_auto : LineEnds::kept;
}

// convert_attrs(): `crlf` is the old name of `text`, and `eol` makes text of what neither speaks of.
LineEnds line_ends_of(const SaidAttributes& said) {
  for (const std::string_view name : {"text", "crlf"}) {
    const Setting* setting = setting_of(said, name);
    if (setting != nullptr && setting->state == Setting::State::unset) return LineEnds::kept;
    if (const LineEnds ends = line_ends_by(setting); ends != LineEnds::kept) return ends;
  }
  const std::string_view eol = value_of(said, "eol");
  return eol == "lf" || eol == "crlf" ? LineEnds::text : LineEnds::kept;
}

// gather_stats() and convert_is_binary().
class TextStatistics {
 public:
  void add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) add(static_cast<unsigned char>(byte));
  }
  bool is_surely_binary() const { return has_nul_ || has_lone_cr_; }
  bool has_crlf() const { return has_crlf_; }
  // At the end of the content, at which a ^Z does not count.
  bool is_binary() const {
    const std::uint64_t odd = odd_ - (last_ == kControlZ ? 1 : 0);
    constexpr unsigned kOddPer = 7;  // one in 128
    return is_surely_binary() || last_ == '\r' || (usual_ >> kOddPer) < odd;
  }

 private:
  static constexpr unsigned char kControlZ = 0x1A, kEscape = 0x1B, kDelete = 0x7F, kSpace = 0x20;

  void add(unsigned char byte) {
    if (last_ == '\r') (byte == '\n' ? has_crlf_ : has_lone_cr_) = true;
    last_ = byte;
    if (byte == '\r' || byte == '\n') return;
    const bool is_usual = byte >= kSpace ? byte != kDelete
                                         : byte == '\b' || byte == '\t' || byte == '\f' || byte == kEscape;
    (is_usual ? usual_ : odd_) += 1;
    has_nul_ = has_nul_ || byte == 0;
  }

  std::uint64_t usual_ = 0, odd_ = 0;
  unsigned char last_ = 0;
  bool has_nul_ = false, has_lone_cr_ = false, has_crlf_ = false;
};

bool is_text_with_crlf(const ByteSource& content) {
  TextStatistics statistics;
  for_each_byte(content, [&](std::span<const std::byte> bytes) {
    statistics.add(bytes);
    return !statistics.is_surely_binary();
  });
  return statistics.has_crlf() && !statistics.is_binary();
}

bool has_crlf(const ByteSource& content) {
  TextStatistics statistics;
  for_each_byte(content, [&](std::span<const std::byte> bytes) {
    statistics.add(bytes);
    return !statistics.has_crlf();
  });
  return statistics.has_crlf();
}

// ---- ident ----

// A `$Id: ...$` in one line, which git makes a `$Id$` again (ident_to_git()).
bool has_expanded_ident(const ByteSource& content) {
  constexpr std::string_view kBegin = "$Id:";
  std::size_t matched = 0;
  bool found = false;
  for_each_byte(content, [&](std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) {
      const char letter = static_cast<char>(byte);
      if (matched == kBegin.size()) {
        if (letter == '$') return !(found = true);
        if (letter == '\n') matched = 0;
      } else {
        matched = letter == kBegin[matched] ? matched + 1 : letter == kBegin[0] ? 1 : 0;
      }
    }
    return true;
  });
  return found;
}

// ---- encodings ----

// git stores UTF-8, with or without the hyphen.
bool is_other_encoding(std::string_view name) {
  std::string plain;
  for (const char letter : name)
    if (letter != '-') plain += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return !plain.empty() && plain != "utf8";
}

}  // namespace

std::span<const std::string_view> check_in_attributes() { return kCheckInAttributes; }

bool is_for_lfs(const SaidAttributes& said) { return value_of(said, "filter") == "lfs"; }

std::string converting_attribute(const SaidAttributes& said) {
  const std::string_view filter = value_of(said, "filter"), encoding = value_of(said, "working-tree-encoding");
  if (!filter.empty() && filter != "lfs") return "filter=" + std::string(filter);
  return is_other_encoding(encoding) && filter.empty() ? "working-tree-encoding=" + std::string(encoding) : "";
}

std::vector<OmissionKind> missed_conversions(
    const SaidAttributes& said, const ByteSource& content,
    const std::function<std::shared_ptr<const ByteSource>()>& open_tracked) {
  std::vector<OmissionKind> missed;
  if (said.empty() || content.size() == 0) return missed;
  if (!value_of(said, "filter").empty()) missed.push_back(OmissionKind::unfiltered);
  const bool is_encoded = is_other_encoding(value_of(said, "working-tree-encoding"));
  const LineEnds line_ends = line_ends_of(said);
  if (is_encoded) {
    missed.push_back(OmissionKind::unconverted_encoding);
  } else if (line_ends == LineEnds::text && has_crlf(content)) {
    missed.push_back(OmissionKind::unconverted_text);
  } else if (line_ends == LineEnds::text_auto && is_text_with_crlf(content)) {
    const std::shared_ptr<const ByteSource> tracked = open_tracked();
    if (!tracked || !is_text_with_crlf(*tracked)) missed.push_back(OmissionKind::unconverted_text);
  }
  const Setting* ident = setting_of(said, "ident");
  if (ident != nullptr && ident->state == Setting::State::set && has_expanded_ident(content))
    missed.push_back(OmissionKind::unconverted_ident);
  return missed;
}

}  // namespace escrow::session
