#include "storage/objects/fold_packs.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <optional>
#include <set>
#include <unordered_set>

#include "session/base/error.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/file_lookup.h"
#include "storage/git/shared_permissions.h"
#include "storage/objects/multi_pack_index.h"
#include "storage/objects/pack_writer.h"

namespace escrow::storage {
namespace {

// More small packs than this are folded into one. Git looks into every pack for an object it does not find.
constexpr std::size_t kManyPacks = 50;
// Each takes a descriptor and a map while it is read.
constexpr std::size_t kMostAtOnce = 256;
// What is larger is left alone: folding never costs more than this times the number of packs.
constexpr std::uint64_t kSmallPackBytes = std::uint64_t{16} << 20;

// A pack with one of these is in use, or one that git made to last; .promisor: of a partial clone.
constexpr const char* kLasting[] = {".keep", ".bitmap", ".promisor", ".mtimes"};

using session::Errc;
using session::Error;
using session::ObjectId;

bool is_older(const timespec& a, const timespec& b) {
  return std::pair(a.tv_sec, a.tv_nsec) < std::pair(b.tv_sec, b.tv_nsec);
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

class Fold {
 public:
  Fold(const GitObjectStore& objects, std::string scratch)
      : objects_(objects), path_(objects.directory().path()), scratch_(std::move(scratch)) {}

  std::size_t run() {
    take_packs();
    if (packs_.size() <= kManyPacks) return 0;
    std::vector<ObjectId> ids;
    std::unordered_set<ObjectId> seen;
    for (const auto& pack : packs_) {
      for (std::uint32_t i = 0; i < pack->count(); ++i) {
        if (seen.insert(pack->id_at(i)).second) ids.push_back(pack->id_at(i));
      }
    }
    const std::string installed = write_pack(ids);
    for (const auto& pack : packs_) {
      if (!is_there(pack->stem() + ".keep")) remove_pack(pack->stem());
    }
    become_as_young(installed + ".pack");
    release_pack(installed);
    return packs_.size();
  }

 private:
  void take_packs() {
    const std::set<std::string> indexed = packs_in_multi_pack_index(path_);
    const std::string directory = path_ + "/pack/";
    constexpr std::string_view kIndex = ".idx";
    for (const std::string& name : names_in(directory)) {
      if (!name.ends_with(kIndex)) continue;
      const std::string pack = name.substr(0, name.size() - kIndex.size());
      const bool lasts = std::any_of(std::begin(kLasting), std::end(kLasting),
                                     [&](const char* extension) { return is_there(directory + pack + extension); });
      const std::optional<struct stat> status = status_of(directory + pack + ".pack");
      if (lasts || indexed.contains(pack) || !status) continue;
      if (static_cast<std::uint64_t>(status->st_size) > kSmallPackBytes) continue;
      try {
        auto file = std::make_unique<PackFile>(directory + pack);
        file->open();
        packs_.push_back(std::move(file));
      } catch (const Error&) {
        if (is_there(directory + name)) throw;
        continue;  // git has taken it away meanwhile
      }
      newest_ = std::max(newest_, status->st_mtim, is_older);
      if (packs_.size() == kMostAtOnce) return;
    }
  }

  std::string write_pack(const std::vector<ObjectId>& ids) {
    PackWriter writer(scratch_ + "/tmp_fold", static_cast<std::uint32_t>(ids.size()));
    const std::unordered_set<ObjectId> chosen(ids.begin(), ids.end());
    std::unordered_set<ObjectId> written;
    for (const auto& pack : packs_) copy_from(*pack, chosen, written, writer);
    writer.finish();
    // What nothing reaches does not become younger: gc.pruneExpire counts from the time of the pack.
    const timespec times[2] = {newest_, newest_};
    ::futimens(writer.fd(), times);
    const std::string installed = new_pack_stem(path_);
    install_pack(writer.stem(), installed, "", false, SharedPermissions::of(parent_of(path_)));
    sync_directory(path_ + "/pack");
    return installed;
  }

  // A git that needs an object of a pack makes the pack younger, and counts on gc's grace from then on. Until a pack is
  // removed, one may have done so.
  void become_as_young(const std::string& pack_path) {
    const auto look_at = [&](int fd) {
      struct stat status {};
      return ::fstat(fd, &status) == 0 ? status.st_mtim : timespec{};
    };
    for (const auto& pack : packs_) newest_ = std::max(newest_, look_at(pack->fd()), is_older);
    const timespec times[2] = {newest_, newest_};
    const UniqueFd folded = open_or_throw(AT_FDCWD, pack_path.c_str(), O_RDONLY, 0, "open " + pack_path);
    if (is_older(look_at(folded.get()), newest_) && ::futimens(folded.get(), times) != 0)
      throw system_error(errno, "set the time of " + pack_path);
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

  const GitObjectStore& objects_;
  const std::string path_;  // of the object directory
  const std::string scratch_;
  std::vector<std::unique_ptr<PackFile>> packs_;
  timespec newest_{};  // when the youngest of them was written
};

}  // namespace

bool has_many_packs(const GitObjectStore& objects) {
  std::size_t count = 0;
  for (const std::string& name : names_in(objects.directory().path() + "/pack")) {
    if (name.ends_with(".idx")) ++count;
  }
  return count > kManyPacks;
}

std::size_t fold_small_packs(const GitObjectStore& objects, const std::string& scratch) {
  return Fold(objects, scratch).run();
}

}  // namespace escrow::storage
