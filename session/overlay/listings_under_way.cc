#include "session/overlay/listings_under_way.h"

#include <algorithm>

namespace escrow::session {

std::optional<std::uint64_t> ListingsUnderWay::last_of(NodeId id, std::uint64_t cookie) {
  if (cookie == 0) return std::nullopt;
  auto directories = directories_.lock();
  const auto directory = directories->find(id);
  if (directory == directories->end()) return std::nullopt;
  std::optional<std::uint64_t> last;
  for (const Listing& listing : directory->second.listings)
    if (listing.from <= cookie && cookie <= listing.to)
      last = std::max({listing.last, last.value_or(0), directory->second.floor});
  return last;
}

void ListingsUnderWay::went_on(NodeId id, std::uint64_t from, std::uint64_t to, std::uint64_t last) {
  auto directories = directories_.lock();
  // A directory is forgotten as a whole: of what is left of its listings none could be told from another one.
  if (directories->size() >= kDirectories && !directories->contains(id)) directories->erase(directories->begin());
  Directory& directory = (*directories)[id];
  for (Listing& listing : directory.listings) {
    if (listing.last != last || from < listing.from || from > listing.to) continue;
    listing.to = std::max(listing.to, to);
    return;
  }
  if (directory.listings.size() >= kListings) {
    directory.floor = std::max(directory.floor, directory.listings.front().last);
    directory.listings.erase(directory.listings.begin());
  }
  directory.listings.push_back({from, to, last});
}

void ListingsUnderWay::ended(NodeId id, std::uint64_t at, std::uint64_t last) {
  auto directories = directories_.lock();
  const auto directory = directories->find(id);
  if (directory == directories->end()) return;
  const std::size_t erased = std::erase_if(directory->second.listings, [&](const Listing& listing) {
    return listing.last == last && listing.from <= at && at <= listing.to;
  });
  if (directory->second.listings.empty())
    directories->erase(directory);
  else if (erased > 0)
    directory->second.floor = std::max(directory->second.floor, last);
}

}  // namespace escrow::session
