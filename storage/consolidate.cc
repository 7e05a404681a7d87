#include "storage/consolidate.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>

#include "session/error.h"
#include "storage/durable_file.h"
#include "storage/pack_writer.h"
#include "storage/reachable.h"

namespace escrow::storage {
namespace {

// More small packs than this are folded into one. Git looks into every pack for an object it does not find.
constexpr std::size_t kManyPacks = 50;
// What is larger is left alone: folding never costs more than this times the number of packs.
constexpr std::uint64_t kSmallPackBytes = std::uint64_t{16} << 20;

namespace fs = std::filesystem;
using session::Errc;
using session::Error;
using session::ObjectId;

// The files of an object directory at one moment; alternates are not ours.
struct Inventory {
  std::vector<std::unique_ptr<PackFile>> packs;  // without .keep
  std::vector<std::unique_ptr<PackFile>> kept;
  std::map<ObjectId, std::string> loose;
  std::uint64_t bytes = 0;

  std::uint64_t objects() const {
    std::uint64_t count = loose.size();
    for (const auto& pack : packs) count += pack->count();
    for (const auto& pack : kept) count += pack->count();
    return count;
  }
};

void take_packs(const std::string& directory, Inventory& inventory) {
  std::error_code error, ignored;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const fs::path path = entry.path();
    const std::string extension = path.extension();
    if (extension == ".pack" || extension == ".idx") inventory.bytes += entry.file_size(ignored);
    if (extension != ".idx") continue;
    const std::string stem = path.parent_path() / path.stem();
    auto& packs = fs::exists(stem + ".keep", ignored) ? inventory.kept : inventory.packs;
    packs.push_back(std::make_unique<PackFile>(stem));
  }
}

Inventory take_inventory(const std::string& objects) {
  Inventory inventory;
  take_packs(objects + "/pack", inventory);
  std::error_code error, ignored;
  for (const auto& fan : fs::directory_iterator(objects, error)) {
    const std::string prefix = fan.path().filename();
    if (prefix.size() != 2 || prefix.find_first_not_of("0123456789abcdef") != std::string::npos) continue;
    for (const auto& entry : fs::directory_iterator(fan.path(), error)) {
      const auto id = ObjectId::from_hex(prefix + entry.path().filename().string());
      if (!id) continue;
      inventory.loose.emplace(*id, entry.path());
      inventory.bytes += entry.file_size(ignored);
    }
  }
  return inventory;
}

// One pack's offsets in order: where each entry ends, and which object a delta's base is.
class Layout {
 public:
  explicit Layout(const PackFile& pack) {
    for (std::uint32_t i = 0; i < pack.count(); ++i) offsets_.emplace_back(pack.offset_at(i), i);
    std::sort(offsets_.begin(), offsets_.end());
    end_ = pack.end();
  }
  std::uint64_t end_of(std::uint64_t offset) const {
    const auto next = std::upper_bound(offsets_.begin(), offsets_.end(), std::pair(offset, UINT32_MAX));
    return next == offsets_.end() ? end_ : next->first;
  }
  std::optional<std::uint32_t> index_at(std::uint64_t offset) const {
    const auto found = std::lower_bound(offsets_.begin(), offsets_.end(), std::pair(offset, std::uint32_t{0}));
    if (found == offsets_.end() || found->first != offset) return std::nullopt;
    return found->second;
  }

 private:
  std::vector<std::pair<std::uint64_t, std::uint32_t>> offsets_;
  std::uint64_t end_ = 0;
};

class Consolidation {
 public:
  Consolidation(git_repository* repository, const GitObjectStore& objects, std::string scratch)
      : repository_(repository), objects_(objects), scratch_(std::move(scratch)) {}

  ~Consolidation() { release(); }

  GcReport run(const std::vector<ObjectId>& more_roots) {
    inventory_ = take_inventory(objects_.directory().path());
    GcReport report;
    report.objects_before = inventory_.objects();
    report.packs_before = inventory_.packs.size() + inventory_.kept.size();
    report.bytes_before = inventory_.bytes;
    std::vector<Root> roots = all_roots(repository_);
    for (const ObjectId& id : more_roots) roots.push_back({id, "a session", false});
    std::vector<ObjectId> fresh = reach(std::move(roots));
    if (!is_tidy(fresh)) {
      // Again until the references name nothing new: what is pushed while a pack is being written is packed too.
      for (; !fresh.empty(); fresh = reach(all_roots(repository_))) write_pack(fresh);
      remove_old();
    }
    release();
    const Inventory after = take_inventory(objects_.directory().path());
    report.objects_after = after.objects();
    report.packs_after = after.packs.size() + after.kept.size();
    report.bytes_after = after.bytes;
    return report;
  }

  std::size_t fold() {
    take_packs(objects_.directory().path() + "/pack", inventory_);
    std::erase_if(inventory_.packs, [](const auto& pack) { return !is_foldable(*pack); });
    const std::size_t count = inventory_.packs.size();
    if (count <= kManyPacks) return 0;
    std::vector<ObjectId> ids;
    for (const auto& pack : inventory_.packs) {
      for (std::uint32_t i = 0; i < pack->count(); ++i) {
        if (seen_.insert(pack->id_at(i)).second) ids.push_back(pack->id_at(i));
      }
    }
    write_pack(ids);
    remove_old();
    return count;
  }

 private:
  // A pack with a bitmap is one that git made to last; a .promisor pack belongs to a partial clone.
  static bool is_foldable(const PackFile& pack) {
    std::error_code ignored;
    return pack.end() <= kSmallPackBytes && !fs::exists(pack.stem() + ".bitmap", ignored) &&
           !fs::exists(pack.stem() + ".promisor", ignored);
  }

  // Newly reached objects that lie in files which are to go.
  std::vector<ObjectId> reach(std::vector<Root> roots) {
    std::vector<ObjectId> fresh;
    walk_objects(std::move(roots), seen_, [&](const Reached& item) -> std::optional<RawObject> {
      if (is_ours(item.id)) fresh.push_back(item.id);
      return read(item);
    });
    return fresh;
  }

  std::optional<RawObject> read(const Reached& item) const {
    if (item.expected == ObjectType::blob) {
      if (item.root->required && !is_ours(item.id) && !objects_.contains(item.id)) throw_missing(item);
      return std::nullopt;
    }
    if (!objects_.contains(item.id)) {
      if (item.root->required) throw_missing(item);
      return std::nullopt;
    }
    if (!item.expected && objects_.header(item.id).first == ObjectType::blob) return std::nullopt;
    return objects_.read_object(item.id);
  }

  [[noreturn]] static void throw_missing(const Reached& item) {
    throw Error(Errc::damaged_repository, "the object " + item.id.hex() + ", which " + item.root->origin +
                                              " needs, is missing; nothing was removed; run escrow verify");
  }

  bool is_ours(const ObjectId& id) const {
    const auto has = [&](const auto& pack) { return pack->find(id).has_value(); };
    if (std::any_of(inventory_.kept.begin(), inventory_.kept.end(), has)) return false;
    return inventory_.loose.contains(id) || std::any_of(inventory_.packs.begin(), inventory_.packs.end(), has);
  }

  // Whether the repository already is what gc would make of it.
  bool is_tidy(const std::vector<ObjectId>& fresh) const {
    if (!inventory_.loose.empty() || inventory_.packs.size() > 1) return false;
    return fresh.size() == (inventory_.packs.empty() ? 0 : inventory_.packs.front()->count());
  }

  void write_pack(const std::vector<ObjectId>& ids) {
    PackWriter writer(scratch_ + "/tmp_gc_" + std::to_string(installed_.size()),
                      static_cast<std::uint32_t>(ids.size()));
    const std::unordered_set<ObjectId> chosen(ids.begin(), ids.end());
    std::unordered_set<ObjectId> written;
    for (const auto& pack : inventory_.packs) copy_from(*pack, chosen, written, writer);
    for (const ObjectId& id : ids) {
      if (!written.contains(id)) write_whole(id, writer);
    }
    writer.finish();
    installed_.push_back(install_pack(writer.stem(), objects_.directory().path(), "", false));
  }

  void write_whole(const ObjectId& id, PackWriter& writer) const {
    if (objects_.header(id).second > kLargeBlobBytes) {
      writer.add_blob(*objects_.open_blob(id));
      return;
    }
    const RawObject object = objects_.read_object(id);
    writer.add_object(id, object.type, object.content);
  }

  // Each object comes from the first pack that has it, so that deltas cannot form a ring: a base that comes from an
  // earlier pack never leads back to this one.
  void copy_from(const PackFile& pack, const std::unordered_set<ObjectId>& chosen,
                 std::unordered_set<ObjectId>& written, PackWriter& writer) const {
    const Layout layout(pack);
    std::vector<std::pair<std::uint64_t, std::uint32_t>> order;
    for (std::uint32_t i = 0; i < pack.count(); ++i) {
      const ObjectId id = pack.id_at(i);
      if (chosen.contains(id) && !written.contains(id)) order.emplace_back(pack.offset_at(i), i);
    }
    std::sort(order.begin(), order.end());
    for (const auto& [offset, index] : order) {
      if (!copy_entry(pack, layout, offset, index, chosen, writer)) write_whole(pack.id_at(index), writer);
      written.insert(pack.id_at(index));
    }
  }

  // False when the entry is a delta whose base is not in the new pack: the object is then written whole.
  bool copy_entry(const PackFile& pack, const Layout& layout, std::uint64_t offset, std::uint32_t index,
                  const std::unordered_set<ObjectId>& chosen, PackWriter& writer) const {
    const EntryHeader header = pack.header_at(offset);
    const std::uint64_t end = layout.end_of(offset);
    check_crc(pack, offset, end - offset, index);
    if (header.type != ObjectType::offset_delta && header.type != ObjectType::reference_delta) {
      writer.add_copy(pack.id_at(index), pack.fd(), offset, end - offset);
      return true;
    }
    ObjectId base = header.base_id;
    if (header.type == ObjectType::offset_delta) {
      const auto base_index = layout.index_at(header.base_offset);
      if (!base_index) return false;
      base = pack.id_at(*base_index);
    }
    if (!chosen.contains(base)) return false;
    std::string renamed = encode_entry_header(ObjectType::reference_delta, header.size_bytes);
    renamed.append(reinterpret_cast<const char*>(base.bytes().data()), ObjectId::kSize);
    writer.add_copy(pack.id_at(index), renamed, pack.fd(), header.data_offset, end - header.data_offset);
    return true;
  }

  static void check_crc(const PackFile& pack, std::uint64_t offset, std::uint64_t length, std::uint32_t index) {
    std::vector<unsigned char> piece(static_cast<std::size_t>(std::min<std::uint64_t>(length, 1u << 20)));
    uLong crc = 0;
    while (length > 0) {
      const ssize_t count =
          ::pread(pack.fd(), piece.data(), std::min<std::uint64_t>(length, piece.size()), static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) throw system_error(count < 0 ? errno : EIO, "read " + pack.stem() + ".pack");
      crc = ::crc32_z(crc, piece.data(), static_cast<std::size_t>(count));
      offset += static_cast<std::uint64_t>(count);
      length -= static_cast<std::uint64_t>(count);
    }
    if (crc == pack.crc_at(index)) return;
    throw Error(Errc::damaged_repository, "the object " + pack.id_at(index).hex() + " is damaged in " + pack.stem() +
                                              ".pack; nothing was removed; run escrow verify");
  }

  void release() noexcept {
    for (const std::string& stem : installed_) release_pack(stem);
    installed_.clear();
  }

  void remove_old() {
    const std::string& objects = objects_.directory().path();
    std::error_code ignored;
    remove_derived_files(objects);
    for (const auto& pack : inventory_.packs) remove_pack(pack->stem());
    for (const auto& [id, path] : inventory_.loose) fs::remove(path, ignored);
  }

  git_repository* const repository_;
  const GitObjectStore& objects_;
  const std::string scratch_;
  Inventory inventory_;
  std::unordered_set<ObjectId> seen_;
  std::vector<std::string> installed_;  // stems; they have .keep files
};

}  // namespace

GcReport consolidate(git_repository* repository, const GitObjectStore& objects,
                     const std::vector<ObjectId>& more_roots, const std::string& scratch) {
  return Consolidation(repository, objects, scratch).run(more_roots);
}

bool has_many_packs(const GitObjectStore& objects) {
  std::size_t count = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(objects.directory().path() + "/pack", error)) {
    if (entry.path().extension() == ".idx") ++count;
  }
  return count > kManyPacks;
}

std::size_t fold_small_packs(git_repository* repository, const GitObjectStore& objects, const std::string& scratch) {
  return Consolidation(repository, objects, scratch).fold();
}

}  // namespace escrow::storage
