#include "storage/objects/multi_pack_index.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

#include "session/base/error.h"
#include "storage/disk/durable_file.h"

namespace escrow::storage {
namespace {

constexpr std::size_t kHeaderBytes = 12, kEntryBytes = 12;

[[noreturn]] void throw_damaged(const std::string& path) {
  throw session::Error(session::Errc::damaged_repository,
                       "the file " + path + " is damaged; git makes it again: remove it");
}

std::uint64_t number_of(std::string_view bytes) {
  std::uint64_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<unsigned char>(byte);
  return value;
}

// The file has a header, whose byte 6 counts the chunks, a table of {id, offset} with one entry more than there are
// chunks, and the chunks.
std::string_view chunk(std::string_view file, std::string_view id, const std::string& path) {
  if (file.size() < kHeaderBytes || !file.starts_with("MIDX")) throw_damaged(path);
  const std::size_t count = static_cast<unsigned char>(file[6]);
  if (file.size() < kHeaderBytes + (count + 1) * kEntryBytes) throw_damaged(path);
  for (std::size_t at = 0; at < count; ++at) {
    const std::string_view entry = file.substr(kHeaderBytes + at * kEntryBytes);
    if (!entry.starts_with(id)) continue;
    const std::uint64_t begin = number_of(entry.substr(4, 8)), end = number_of(entry.substr(kEntryBytes + 4, 8));
    if (begin > end || end > file.size()) throw_damaged(path);
    return file.substr(begin, end - begin);
  }
  throw_damaged(path);
}

}  // namespace

std::set<std::string> packs_in_multi_pack_index(const std::string& objects) {
  const std::string path = objects + "/pack/multi-pack-index";
  const std::optional<std::string> bytes = read_if_there(path);
  if (!bytes) return {};
  std::set<std::string> names;
  std::string_view rest = chunk(*bytes, "PNAM", path);  // "pack-1234.idx\0", padded with zeros
  while (!rest.empty() && rest.front() != '\0') {
    const std::string_view name = rest.substr(0, rest.find('\0'));
    names.emplace(name.substr(0, name.rfind('.')));
    rest.remove_prefix(std::min(name.size() + 1, rest.size()));
  }
  return names;
}

}  // namespace escrow::storage
