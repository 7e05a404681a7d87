// Texts without NUL bytes as one value of a row: each is ended by a NUL. Pure; thread-safe.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace escrow::storage {

inline std::string join_texts(const std::vector<std::string>& texts) {
  std::string joined;
  for (const std::string& text : texts) joined += text + '\0';
  return joined;
}

inline std::vector<std::string> split_texts(const std::string& joined) {
  std::vector<std::string> texts;
  for (std::size_t start = 0; start < joined.size();) {
    const std::size_t end = std::min(joined.find('\0', start), joined.size());
    texts.push_back(joined.substr(start, end - start));
    start = end + 1;
  }
  return texts;
}

}  // namespace escrow::storage
