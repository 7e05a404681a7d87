#include "session/base/unresolved.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

namespace escrow::session {
namespace {

constexpr std::size_t kSidesOfAConflict = 3;
constexpr int kOctal = 8;

// "100644:5a5a..." or "-".
std::string text_of(const Version& version) {
  if (version.mode == 0) return "-";
  char digits[16];
  const auto end = std::to_chars(std::begin(digits), std::end(digits), version.mode, kOctal).ptr;
  return std::string(std::begin(digits), end) + ':' + version.id.hex();
}

std::optional<Version> version_from(std::string_view text) {
  if (text == "-") return Version{};
  Version version;
  const std::size_t colon = std::min(text.find(':'), text.size());
  const auto read = std::from_chars(text.data(), text.data() + colon, version.mode, kOctal);
  if (read.ec != std::errc() || read.ptr != text.data() + colon || version.mode == 0) return std::nullopt;
  const auto id = ObjectId::from_hex(text.substr(std::min(colon + 1, text.size())));
  if (!id) return std::nullopt;
  version.id = *id;
  return version;
}

}  // namespace

const char* name_of(Settle how) {
  switch (how) {
    case Settle::mine: return "mine";
    case Settle::theirs: return "theirs";
    case Settle::merged: return "merged";
  }
  return "unknown";
}

std::optional<Settle> settle_from_name(std::string_view name) {
  for (const Settle how : {Settle::mine, Settle::theirs, Settle::merged})
    if (name == name_of(how)) return how;
  return std::nullopt;
}

std::vector<std::string> texts_of(const std::vector<Unresolved>& paths) {
  std::vector<std::string> texts;
  for (const Unresolved& one : paths) {
    texts.push_back(one.path);
    texts.push_back(text_of(one.base) + ' ' + text_of(one.mine) + ' ' + text_of(one.theirs));
  }
  return texts;
}

std::optional<std::vector<Unresolved>> unresolved_from(const std::vector<std::string>& texts) {
  if (texts.size() % 2 != 0) return std::nullopt;
  std::vector<Unresolved> paths;
  for (std::size_t at = 0; at < texts.size(); at += 2) {
    std::vector<Version> sides;
    for (std::string_view rest = texts[at + 1]; sides.size() <= kSidesOfAConflict;) {
      const std::size_t space = rest.find(' ');
      const auto side = version_from(rest.substr(0, space));
      if (!side) return std::nullopt;
      sides.push_back(*side);
      if (space == rest.npos) break;
      rest.remove_prefix(space + 1);
    }
    if (sides.size() != kSidesOfAConflict) return std::nullopt;
    paths.push_back({texts[at], sides[0], sides[1], sides[2]});
  }
  return paths;
}

void add_unresolved(std::vector<Unresolved>& paths, const std::vector<Unresolved>& more) {
  std::map<std::string, Unresolved> all;
  for (const std::vector<Unresolved>* some : {static_cast<const std::vector<Unresolved>*>(&paths), &more})
    for (const Unresolved& one : *some) all[one.path] = one;
  paths.clear();
  for (auto& [path, one] : all) paths.push_back(std::move(one));
}

bool is_at_or_below(std::string_view path, const std::set<std::string, std::less<>>& any) {
  if (any.contains("") || any.contains(path)) return true;
  for (std::size_t slash = path.rfind('/'); slash != path.npos; slash = path.rfind('/')) {
    path = path.substr(0, slash);
    if (any.contains(path)) return true;
  }
  return false;
}

}  // namespace escrow::session
