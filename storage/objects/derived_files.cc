#include "storage/objects/derived_files.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

#include "session/base/error.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/file_lookup.h"
#include "storage/disk/remove_tree.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::Error;
using session::ObjectId;

std::string pack_index_path(const std::string& objects) { return objects + "/pack/multi-pack-index"; }

// A file of chunks: a header, a table of {id, offset} with one entry more than there are chunks, the chunks.
class ChunkFile {
 public:
  ChunkFile(std::string path, std::string bytes, std::string_view magic, std::size_t header_bytes, std::size_t count_at)
      : path_(std::move(path)), bytes_(std::move(bytes)), header_bytes_(header_bytes) {
    if (bytes_.size() < header_bytes || !bytes_.starts_with(magic)) damaged();
    count_ = static_cast<unsigned char>(bytes_[count_at]);
  }
  std::string_view chunk(std::string_view id) const {
    for (std::size_t at = 0; at < count_; ++at) {
      const std::size_t entry = header_bytes_ + at * 12;
      if (number(entry, 4) == number_of(id)) {
        const std::uint64_t begin = number(entry + 4, 8), end = number(entry + 16, 8);
        if (begin > end || end > bytes_.size()) damaged();
        return std::string_view(bytes_).substr(begin, end - begin);
      }
    }
    damaged();
  }

 private:
  [[noreturn]] void damaged() const {
    throw Error(Errc::damaged_repository, "the file " + path_ + " is damaged; git makes it again: remove it");
  }
  std::uint64_t number(std::size_t at, std::size_t size) const {
    if (at + size > bytes_.size()) damaged();
    return number_of(std::string_view(bytes_).substr(at, size));
  }
  static std::uint64_t number_of(std::string_view bytes) {
    std::uint64_t value = 0;
    for (const char byte : bytes) value = value << 8 | static_cast<unsigned char>(byte);
    return value;
  }

  const std::string path_, bytes_;
  const std::size_t header_bytes_;
  std::size_t count_ = 0;
};

// The ids in a commit-graph, one after another and sorted.
class CommitGraph {
 public:
  CommitGraph(const std::string& path, std::string bytes)
      : file_(path, std::move(bytes), "CGPH", 8, 6), ids_(file_.chunk("OIDL")) {}
  bool has(const ObjectId& id) const {
    const std::string_view wanted(reinterpret_cast<const char*>(id.bytes().data()), ObjectId::kSize);
    std::size_t low = 0, high = ids_.size() / ObjectId::kSize;
    while (low < high) {
      const std::size_t middle = low + (high - low) / 2;
      const int order = ids_.substr(middle * ObjectId::kSize, ObjectId::kSize).compare(wanted);
      if (order == 0) return true;
      if (order < 0) low = middle + 1;
      else high = middle;
    }
    return false;
  }

 private:
  const ChunkFile file_;
  const std::string_view ids_;
};

bool names_one(const std::string& path, const std::vector<std::shared_ptr<const PackFile>>& packs) {
  std::optional<std::string> bytes = read_if_there(path);
  if (!bytes) return false;
  const CommitGraph graph(path, std::move(*bytes));
  for (const auto& pack : packs) {
    for (std::uint32_t at = 0; at < pack->count(); ++at)
      if (graph.has(pack->id_at(at))) return true;
  }
  return false;
}

// What throws is as good as removed: git makes it again, and reads nothing that is not there.
template <typename Question>
bool yes_or_unknown(Question question) noexcept {
  try {
    return question();
  } catch (const std::exception&) {
    return true;
  }
}

void try_to_remove(const std::string& path) noexcept {
  try {
    remove_tree(path);
  } catch (const std::exception&) {
    // git looks whether what a derived file names is there.
  }
}

}  // namespace

std::set<std::string> packs_in_multi_pack_index(const std::string& objects) {
  const std::string path = pack_index_path(objects);
  std::optional<std::string> bytes = read_if_there(path);
  if (!bytes) return {};
  const ChunkFile file(path, std::move(*bytes), "MIDX", 12, 6);
  std::set<std::string> names;
  std::string_view rest = file.chunk("PNAM");  // "pack-1234.idx\0", padded with zeros
  while (!rest.empty() && rest.front() != '\0') {
    const std::string_view name = rest.substr(0, rest.find('\0'));
    names.emplace(name.substr(0, name.rfind('.')));
    rest.remove_prefix(std::min(name.size() + 1, rest.size()));
  }
  return names;
}

void remove_derived_files(const std::string& objects,
                          const std::vector<std::shared_ptr<const PackFile>>& packs) noexcept {
  if (packs.empty()) return;
  const bool pack_index = yes_or_unknown([&] {
    const std::set<std::string> named = packs_in_multi_pack_index(objects);
    return std::any_of(packs.begin(), packs.end(), [&](const auto& pack) {
      return named.contains(pack->stem().substr(pack->stem().rfind('/') + 1));
    });
  });
  if (pack_index) {
    yes_or_unknown([&] {
      for (const std::string& name : names_in(objects + "/pack"))
        if (name.starts_with("multi-pack-index")) try_to_remove(objects + "/pack/" + name);
      return true;
    });
  }
  const std::string graphs = objects + "/info/commit-graphs";
  const bool graph = yes_or_unknown([&] {
    if (names_one(objects + "/info/commit-graph", packs)) return true;
    for (const std::string& name : names_in(graphs))
      if (name.ends_with(".graph") && names_one(graphs + "/" + name, packs)) return true;
    return false;
  });
  if (!graph) return;
  try_to_remove(objects + "/info/commit-graph");
  try_to_remove(graphs);
}

}  // namespace escrow::storage
