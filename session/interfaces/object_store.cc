#include "session/interfaces/object_store.h"

#include <algorithm>

namespace escrow::session {

// base_name_compare() of git's read-cache.c: the byte after the common part decides, and a directory has a '/' there.
bool tree_order_less(const TreeEntry& a, const TreeEntry& b) {
  const std::size_t common = std::min(a.name.size(), b.name.size());
  if (const int order = a.name.compare(0, common, b.name, 0, common); order != 0) return order < 0;
  const auto next = [common](const TreeEntry& entry) -> int {
    if (entry.name.size() > common) return static_cast<unsigned char>(entry.name[common]);
    return entry.mode == GitMode::tree ? '/' : 0;
  };
  return next(a) < next(b);
}

std::string read_all(const ByteSource& source) {
  std::string content(source.size(), '\0');
  std::size_t at = 0;
  while (at < content.size()) {
    const std::size_t count = source.read(at, std::as_writable_bytes(std::span(content).subspan(at)));
    if (count == 0) break;
    at += count;
  }
  content.resize(at);
  return content;
}

}  // namespace escrow::session
