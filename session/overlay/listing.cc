#include "session/overlay/listing.h"

#include <algorithm>

namespace escrow::session {

std::optional<std::size_t> Listing::find(std::string_view name) const {
  // Git orders a directory as if its name ended in '/', so a name has two places where it may stand.
  for (const bool as_directory : {false, true}) {
    const auto key_less = [&](const TreeEntry& entry) {
      const std::size_t common = std::min(entry.name.size(), name.size());
      const int order = std::string_view(entry.name).substr(0, common).compare(name.substr(0, common));
      if (order != 0) return order < 0;
      const auto next = [common](std::string_view text, bool directory) -> int {
        if (text.size() > common) return static_cast<unsigned char>(text[common]);
        return directory ? '/' : 0;
      };
      return next(entry.name, entry.mode == GitMode::tree) < next(name, as_directory);
    };
    const auto place = std::partition_point(entries_.begin(), entries_.end(), key_less);
    if (place != entries_.end() && place->name == name) return static_cast<std::size_t>(place - entries_.begin());
  }
  return std::nullopt;
}

}  // namespace escrow::session
