#include "session/base/glob.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <optional>

namespace escrow::session {
namespace {

constexpr std::size_t kBitsOfWord = 64;
using Bytes = std::bitset<256>;

std::size_t index_of(char c) { return static_cast<unsigned char>(c); }

// The character at glob[at], or the one that a backslash there escapes; sets `at` behind it.
char literal(std::string_view glob, std::size_t& at) {
  if (glob[at] == '\\' && at + 1 < glob.size()) ++at;
  return glob[at++];
}

// The class `[...]` at glob[at]; sets `at` behind it. nullopt: it does not end, '[' is literal.
std::optional<Bytes> class_at(std::string_view glob, std::size_t& at) {
  std::size_t i = at + 1;
  const bool negated = i < glob.size() && (glob[i] == '!' || glob[i] == '^');
  if (negated) ++i;
  Bytes bytes;
  for (bool first = true; i < glob.size() && (first || glob[i] != ']'); first = false) {
    const char low = literal(glob, i);
    char high = low;
    if (i + 1 < glob.size() && glob[i] == '-' && glob[i + 1] != ']') high = literal(glob, ++i);
    for (std::size_t byte = index_of(low); byte <= index_of(high); ++byte) bytes.set(byte);
  }
  if (i >= glob.size()) return std::nullopt;
  at = i + 1;
  if (negated) bytes.flip();
  return bytes.reset('/');
}

}  // namespace

// A glob as its text has it, character by character.
struct Glob::Parts {
  explicit Parts(std::string_view glob) {
    for (std::size_t at = 0; at < glob.size();) {
      if (glob[at] == '*') {
        take_stars(glob, at);
      } else {
        characters.push_back(take_character(glob, at));
        stars.push_back(false);
        deeps.push_back(false);
      }
    }
  }

  std::vector<Bytes> characters;
  std::vector<bool> stars{false}, deeps{false};  // before each, and at the end
  bool is_open = false;

 private:
  void take_stars(std::string_view glob, std::size_t& at) {
    const std::size_t begin = at;
    at = std::min(glob.find_first_not_of('*', at), glob.size());
    const bool is_deep = at - begin >= 2 && (begin == 0 || glob[begin - 1] == '/') &&
                         (at == glob.size() || glob[at] == '/');
    if (!is_deep) {
      stars.back() = true;
    } else if (at == glob.size()) {
      is_open = true;
    } else {
      deeps.back() = true;
      ++at;
    }
  }

  Bytes take_character(std::string_view glob, std::size_t& at) {
    if (glob[at] == '?') {
      ++at;
      return Bytes().set().reset('/');
    }
    // After one class that does not end there is no other that does.
    if (glob[at] == '[' && classes_end_) {
      if (const std::optional<Bytes> bytes = class_at(glob, at)) return *bytes;
      classes_end_ = false;
    }
    return Bytes().set(index_of(literal(glob, at)));
  }

  bool classes_end_ = true;
};

Glob::Glob(std::string_view text) {
  const Parts parts(text);
  characters_ = parts.characters.size();
  words_ = characters_ / kBitsOfWord + 1;
  is_open_ = parts.is_open;
  const auto set = [](Word* words, std::size_t state) { words[state / kBitsOfWord] |= Word{1} << state % kBitsOfWord; };
  stars_.resize(words_);
  deeps_.resize(words_);
  for (std::size_t state = 0; state <= characters_; ++state) {
    if (parts.stars[state]) set(stars_.data(), state);
    if (parts.deeps[state]) set(deeps_.data(), state);
  }
  Bytes bounds;
  bounds.set(0);
  for (const Bytes& bytes : parts.characters) {
    bounds |= bytes ^ bytes << 1;
    if (bytes.count() == 1) letters_ |= Word{1} << bytes._Find_first() % kBitsOfWord;
  }
  for (std::size_t byte = 0; byte < bounds.size(); ++byte) {
    if (!bounds.test(byte)) continue;
    bounds_.push_back(static_cast<unsigned char>(byte));
    fits_.resize(fits_.size() + words_);
    Word* const fits = &fits_[fits_.size() - words_];
    for (std::size_t state = 0; state < characters_; ++state)
      if (parts.characters[state].test(byte)) set(fits, state);
  }
}

const Glob::Word* Glob::fitting(char c) const {
  const auto after = std::upper_bound(bounds_.begin(), bounds_.end(), static_cast<unsigned char>(c));
  return &fits_[static_cast<std::size_t>(after - bounds_.begin() - 1) * words_];
}

bool Glob::match(std::string_view path) const {
  // States that are active now, and those that are once more after each slash.
  std::array<Word, 2> few{};
  std::vector<Word> many(words_ == 1 ? 0 : 2 * words_);
  Word* const active = words_ == 1 ? few.data() : many.data();
  Word* const again = active + words_;
  const auto is_at_end = [&] { return (active[words_ - 1] >> characters_ % kBitsOfWord & 1) != 0; };
  active[0] = 1;
  again[0] = deeps_[0] & 1;
  for (const char c : path) {
    if (is_open_ && is_at_end()) return true;
    const Word* const fits = fitting(c);
    Word carry = 0, any = 0;
    for (std::size_t word = 0; word < words_; ++word) {
      const Word taken = active[word] & fits[word];
      const Word stayed = c == '/' ? again[word] : active[word] & stars_[word];
      active[word] = taken << 1 | carry | stayed;
      carry = taken >> (kBitsOfWord - 1);
      again[word] |= active[word] & deeps_[word];
      any |= active[word] | again[word];
    }
    if (any == 0) return false;
  }
  return is_at_end();
}

bool glob_match(std::string_view glob, std::string_view path) { return Glob(glob).match(path); }

}  // namespace escrow::session
