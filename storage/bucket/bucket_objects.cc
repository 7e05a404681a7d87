#include "storage/bucket/bucket_objects.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <vector>

#include "session/base/error.h"
#include "storage/bucket/in_parallel.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/file_lookup.h"
#include "storage/disk/lock_file.h"
#include "storage/objects/pack_delta.h"
#include "storage/objects/pack_writer.h"
#include "storage/objects/zlib_stream.h"

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using session::Errc;
using session::Error;
using session::ObjectId;

constexpr int kMostFetches = 3;
constexpr std::size_t kMostDeltas = 4096;
constexpr std::uint64_t kPartBytes = std::uint64_t{8} << 20;
constexpr std::uint64_t kMostInMemoryBytes = std::uint64_t{64} << 20;

// One entry of a pack, as it was fetched.
struct FetchedEntry {
  ObjectType type;
  std::uint64_t size_bytes;
  std::size_t header_bytes;
  std::uint64_t base_distance = 0;  // of an offset_delta
  ObjectId base_id;                 // of a reference_delta
};

// nullopt: it is none.
std::optional<FetchedEntry> parse_entry(std::string_view bytes) {
  std::size_t at = 0;
  const auto next = [&]() -> unsigned { return at < bytes.size() ? static_cast<unsigned char>(bytes[at++]) : 0u; };
  unsigned byte = next();
  FetchedEntry entry{static_cast<ObjectType>(byte >> 4 & 7), byte & 15, 0, 0, {}};
  for (unsigned shift = 4; (byte & 0x80) != 0 && shift <= 57; shift += 7) {
    byte = next();
    entry.size_bytes |= std::uint64_t{byte & 0x7f} << shift;
  }
  if (entry.type == ObjectType::offset_delta) {
    byte = next();
    entry.base_distance = byte & 0x7f;
    while ((byte & 0x80) != 0 && at < 32) {
      byte = next();
      entry.base_distance = (entry.base_distance + 1) << 7 | (byte & 0x7f);
    }
  } else if (entry.type == ObjectType::reference_delta) {
    if (bytes.size() < at + ObjectId::kSize) return std::nullopt;
    entry.base_id = ObjectId::from_raw(reinterpret_cast<const std::uint8_t*>(bytes.data()) + at);
    at += ObjectId::kSize;
  } else if (entry.type < ObjectType::commit || entry.type > ObjectType::tag) {
    return std::nullopt;
  }
  if (at >= bytes.size()) return std::nullopt;
  entry.header_bytes = at;
  return entry;
}

bool is_delta(ObjectType type) { return type == ObjectType::offset_delta || type == ObjectType::reference_delta; }

bool is_object(std::string_view bytes, const FetchedEntry& entry, const ObjectId& id) {
  const auto content = inflate_small(bytes.substr(entry.header_bytes), static_cast<std::size_t>(entry.size_bytes));
  return content && content->size() == entry.size_bytes && hash_object(entry.type, *content) == id;
}

bool is_object(int fd, const FetchedEntry& entry, const ObjectId& id) {
  Sha1 hash = object_hash(entry.type, entry.size_bytes);
  InflateReader reader(fd, entry.header_bytes, "the object " + id.hex());
  std::vector<std::byte> piece(std::size_t{1} << 20);
  while (const std::size_t count = reader.read(piece)) hash.update(std::span<const std::byte>(piece).first(count));
  return hash.finish() == id;
}

void write_all(int fd, std::string_view bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error(errno, "write to the cache of the bucket");
    bytes.remove_prefix(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
}

[[noreturn]] void throw_damaged(const S3Client& client, const std::string& what) {
  throw Error(Errc::input_output, what + " in " + client.name().text() +
                                      " is damaged: its bytes are not those that its name stands for; restore it");
}

void give_name(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) throw system_error(errno, "rename " + from + " to " + to);
}

}  // namespace

// While it exists nobody else of this process fetches the same.
class BucketObjects::Fetching {
 public:
  // Waits for who fetches it now; is_ours() is then false.
  Fetching(BucketObjects& objects, std::string what) : objects_(objects), what_(std::move(what)) {
    auto fetching = objects_.fetching_.lock();
    is_ours_ = fetching->insert(what_).second;
    if (!is_ours_) objects_.fetched_.wait(fetching.lock(), [&] { return !fetching->contains(what_); });
  }
  ~Fetching() {
    if (!is_ours_) return;
    objects_.fetching_.lock()->erase(what_);
    objects_.fetched_.notify_all();
  }
  Fetching(const Fetching&) = delete;
  Fetching& operator=(const Fetching&) = delete;
  bool is_ours() const noexcept { return is_ours_; }

 private:
  BucketObjects& objects_;
  const std::string what_;
  bool is_ours_ = false;
};

BucketObjects::BucketObjects(const S3Client& client, RemotePacks& packs, std::string cache, std::uint64_t limit_bytes)
    : client_(client), packs_(packs), cache_(std::move(cache)), limit_bytes_(limit_bytes), here_(cache_) {}

bool BucketObjects::bring(const ObjectId& id) {
  for (int attempt = 0; attempt < kMostFetches; ++attempt) {
    if (here_.find(id)) return true;
    auto place = packs_.find(id);
    if (!place) {
      packs_.refresh();
      place = packs_.find(id);
    }
    if (!place) return false;
    fetch(*place);
  }
  return here_.find(id).has_value();
}

void BucketObjects::fetch(const RemotePacks::Place& place) {
  const RemotePack& pack = *place.pack;
  if (pack.size_bytes() <= kWholePackBytes) {
    const Fetching turn(*this, pack.name());
    if (turn.is_ours()) fetch_pack(pack);
    return;
  }
  const auto found = pack.entry_at(pack.index().offset_at(place.index));
  const std::size_t first = found.value();
  // Threads that sweep a directory want objects that lie close together: one asks, the others wait and look again.
  const Fetching turn(*this, pack.name() + "/" + std::to_string(pack.entries()[first].offset / kReadAheadBytes));
  if (!turn.is_ours()) return;
  if (pack.end_of(first) - pack.entries()[first].offset > kReadAheadBytes) return fetch_large(pack, first);
  std::size_t end = first + 1;
  while (end < pack.entries().size() && pack.end_of(end) - pack.entries()[first].offset <= kReadAheadBytes) ++end;
  fetch_range(pack, first, end);
}

std::string BucketObjects::bytes_of(const RemotePack& pack, std::uint64_t offset, std::uint64_t end) const {
  auto bytes = client_.get_range(RemotePacks::key_of(pack.name(), ".pack"), offset, end - offset);
  if (!bytes) {
    throw Error(Errc::input_output, "the pack " + pack.name() + " of " + client_.name().text() +
                                        " was removed meanwhile; try again");
  }
  return std::move(*bytes);
}

// No other process has the name, nor has a thread of this one.
std::string BucketObjects::scratch_path(const char* kind) const {
  static std::atomic<unsigned> next = 0;
  return cache_ + "/tmp_" + kind + "_" + std::to_string(::getpid()) + "_" + std::to_string(++next);
}

void BucketObjects::fetch_pack(const RemotePack& pack) {
  const std::string stem = cache_ + "/pack/" + pack.name();
  for (int attempt = 0; attempt < kMostFetches; ++attempt) {
    const std::string bytes = bytes_of(pack, 0, pack.size_bytes());
    if (bytes.size() <= ObjectId::kSize) break;
    Sha1 hash;
    hash.update(std::string_view(bytes).substr(0, bytes.size() - ObjectId::kSize));
    if (hash.finish() != pack.index().pack_trailer()) continue;  // damaged on the way, or there
    write_file_durably(stem + ".pack", bytes, 0444);
    if (::link(packs_.index_path(pack.name()).c_str(), (stem + ".idx").c_str()) != 0 && errno != EEXIST)
      throw system_error(errno, "name " + stem + ".idx");
    return make_room();
  }
  throw_damaged(client_, "the pack " + pack.name());
}

// Deltas that are not asked for are left out: their bases may lie anywhere.
void BucketObjects::fetch_range(const RemotePack& pack, std::size_t first, std::size_t end) {
  const auto& entries = pack.entries();
  const std::uint64_t begin = entries[first].offset;
  const std::string name = "the object " + pack.index().id_at(entries[first].index).hex();
  for (int attempt = 0; attempt < kMostFetches; ++attempt) {
    const std::string bytes = bytes_of(pack, begin, pack.end_of(end - 1));
    struct Good {
      ObjectId id;
      std::string_view bytes;
    };
    std::vector<Good> good;
    std::optional<RawObject> undone;
    bool has_wanted = false;
    for (std::size_t i = first; i < end; ++i) {
      const ObjectId id = pack.index().id_at(entries[i].index);
      const std::uint64_t length = pack.end_of(i) - entries[i].offset;
      const auto part = std::string_view(bytes).substr(static_cast<std::size_t>(entries[i].offset - begin),
                                                       static_cast<std::size_t>(length));
      const auto entry = parse_entry(part);
      if (i == first && entry && is_delta(entry->type)) {
        undone = read_object(pack, entries[i].index);
        has_wanted = true;
        continue;
      }
      if (!entry || is_delta(entry->type) || !is_object(part, *entry, id)) continue;
      has_wanted = has_wanted || i == first;
      good.push_back({id, part});
    }
    if (!has_wanted) continue;
    PackWriter writer(scratch_path("range"), static_cast<std::uint32_t>(good.size() + (undone ? 1 : 0)));
    if (undone) writer.add_object(pack.index().id_at(entries[first].index), undone->type, undone->content);
    // PackWriter copies from files.
    const std::string path = scratch_path("bytes");
    const UniqueFd fd = open_or_throw(AT_FDCWD, path.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600, "make " + path);
    ::unlink(path.c_str());
    write_all(fd.get(), bytes, 0);
    for (const Good& one : good)
      writer.add_copy(one.id, fd.get(), static_cast<std::uint64_t>(one.bytes.data() - bytes.data()), one.bytes.size());
    return keep(writer);
  }
  throw_damaged(client_, name);
}

void BucketObjects::fetch_large(const RemotePack& pack, std::size_t place) {
  const std::uint64_t begin = pack.entries()[place].offset, length = pack.end_of(place) - begin;
  const ObjectId id = pack.index().id_at(pack.entries()[place].index);
  const std::string path = scratch_path("large");
  const UniqueFd fd = open_or_throw(AT_FDCWD, path.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600, "make " + path);
  ::unlink(path.c_str());
  for (int attempt = 0; attempt < kMostFetches; ++attempt) {
    std::string head(static_cast<std::size_t>(std::min<std::uint64_t>(length, 64)), '\0');
    in_parallel(static_cast<std::size_t>((length + kPartBytes - 1) / kPartBytes), [&](std::size_t i) {
      const std::uint64_t from = i * kPartBytes, to = std::min(from + kPartBytes, length);
      write_all(fd.get(), bytes_of(pack, begin + from, begin + to), from);
    });
    if (::pread(fd.get(), head.data(), head.size(), 0) != static_cast<ssize_t>(head.size()))
      throw system_error(EIO, "read the cache of the bucket");
    const auto entry = parse_entry(head);
    if (!entry) continue;
    PackWriter writer(scratch_path("object"), 1);
    if (is_delta(entry->type)) {
      const RawObject object = read_object(pack, pack.entries()[place].index);
      writer.add_object(id, object.type, object.content);
      return keep(writer);
    }
    try {
      if (!is_object(fd.get(), *entry, id)) continue;
    } catch (const Error&) {
      continue;  // no zlib stream
    }
    writer.add_copy(id, fd.get(), 0, length);
    return keep(writer);
  }
  throw_damaged(client_, "the object " + id.hex());
}

RawObject BucketObjects::read_object(const RemotePack& pack, std::uint32_t index) const {
  const ObjectId id = pack.index().id_at(index);
  std::vector<std::string> deltas;
  std::uint64_t offset = pack.index().offset_at(index);
  for (;;) {
    const auto place = pack.entry_at(offset);
    if (!place || deltas.size() > kMostDeltas) throw_damaged(client_, "the object " + id.hex());
    const std::string bytes = bytes_of(pack, offset, pack.end_of(*place));
    const auto entry = parse_entry(bytes);
    if (!entry || entry->size_bytes > kMostInMemoryBytes) throw_damaged(client_, "the object " + id.hex());
    auto content = inflate_small(std::string_view(bytes).substr(entry->header_bytes),
                                 static_cast<std::size_t>(entry->size_bytes));
    if (!content) throw_damaged(client_, "the object " + id.hex());
    if (!is_delta(entry->type)) {
      RawObject object{entry->type, std::move(*content)};
      for (; !deltas.empty(); deltas.pop_back()) {
        if (check_delta(deltas.back()).result_bytes > kMostInMemoryBytes)
          throw_damaged(client_, "the object " + id.hex());
        object.content = apply_delta(object.content, deltas.back());
      }
      if (hash_object(object.type, object.content) != id) throw_damaged(client_, "the object " + id.hex());
      return object;
    }
    deltas.push_back(std::move(*content));
    if (entry->type == ObjectType::offset_delta) {
      if (entry->base_distance == 0 || entry->base_distance >= offset)
        throw_damaged(client_, "the object " + id.hex());
      offset -= entry->base_distance;
    } else {
      const auto base = pack.index().find(entry->base_id);
      if (!base) throw_damaged(client_, "the object " + id.hex());
      offset = pack.index().offset_at(*base);
    }
  }
}

// The index, which makes git see the pack, comes last.
void BucketObjects::keep(PackWriter& writer) {
  writer.finish();
  const std::string stem = new_pack_stem(cache_);
  give_name(writer.stem() + ".pack", stem + ".pack");
  give_name(writer.stem() + ".idx", stem + ".idx");
  make_room();
}

// One process at a time, and a tenth more than it must.
void BucketObjects::make_room() {
  struct Kept {
    fs::file_time_type time;
    std::string stem;
    std::uint64_t size_bytes;
  };
  const auto look = [this](std::uint64_t& total) {
    std::vector<Kept> kept;
    total = 0;
    std::error_code gone;
    for (const std::string& name : names_in(cache_ + "/pack")) {
      if (!name.ends_with(".pack")) continue;
      const std::string path = cache_ + "/pack/" + name;
      const std::uint64_t size = fs::file_size(path, gone);
      if (gone) continue;
      kept.push_back({fs::last_write_time(path, gone), path.substr(0, path.size() - 5), size});
      total += size;
    }
    return kept;
  };
  std::uint64_t total = 0;
  look(total);
  if (total <= limit_bytes_) return;
  const UniqueFd turn = try_lock_file(cache_ + "/room.lock");
  if (!turn) return;
  std::vector<Kept> kept = look(total);
  std::sort(kept.begin(), kept.end(), [](const Kept& a, const Kept& b) { return a.time < b.time; });
  // The newest is what somebody is about to read.
  for (std::size_t i = 0; i + 1 < kept.size() && total > limit_bytes_ - limit_bytes_ / 10; ++i) {
    if (::unlink((kept[i].stem + ".idx").c_str()) != 0 || ::unlink((kept[i].stem + ".pack").c_str()) != 0) continue;
    total -= kept[i].size_bytes;
  }
}

}  // namespace escrow::storage
