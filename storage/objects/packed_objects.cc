#include "storage/objects/packed_objects.h"

#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <vector>

#include "session/base/error.h"
#include "storage/disk/durable_file.h"
#include "storage/objects/pack_delta.h"
#include "storage/objects/zlib_stream.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::Error;
using session::ObjectId;

// What is read of an entry at first: all of most of them; where only its header is wanted, that and a delta's sizes.
constexpr std::size_t kFirstReadBytes = std::size_t{4} << 10;
constexpr std::size_t kHeaderReadBytes = 192;
// Up to this length an entry is read whole and inflated at once.
constexpr std::uint64_t kMostAtOnceBytes = std::uint64_t{512} << 10;
constexpr std::size_t kNextReadBytes = std::size_t{64} << 10;
// git's own packs have 4,095 at most (pack-objects --depth); a ring of deltas has no end.
constexpr std::size_t kMostDeltas = 65'536;
constexpr std::uint64_t kMostKeptBaseBytes = std::uint64_t{1} << 20;
// No deflated stream is more than this many times shorter than what it holds (zlib's "Technical Details").
constexpr std::uint64_t kMostDeflated = 1032;

[[noreturn]] void throw_damaged_entry(std::uint64_t offset, const char* what) {
  throw Error(Errc::damaged_repository, "the entry at byte " + std::to_string(offset) + " is damaged: " + what);
}

// One thread's zlib state, which costs more to make than to inflate a small object.
class ThreadInflater {
 public:
  static ThreadInflater& of_this_thread() {
    thread_local ThreadInflater inflater;
    if (inflateReset(&inflater.stream_) != Z_OK) throw std::bad_alloc();
    return inflater;
  }
  ThreadInflater() {
    if (inflateInit(&stream_) != Z_OK) throw std::bad_alloc();
  }
  ~ThreadInflater() { inflateEnd(&stream_); }
  ThreadInflater(const ThreadInflater&) = delete;
  ThreadInflater& operator=(const ThreadInflater&) = delete;
  z_stream& stream() noexcept { return stream_; }

 private:
  z_stream stream_{};
};

// An entry of a pack, of which the first bytes have been read.
class PackEntry {
 public:
  PackEntry(const PackFile& pack, std::uint64_t offset, std::size_t first_bytes = kFirstReadBytes)
      : pack_(pack), offset_(offset) {
    header_ = pack.header_at(offset, std::span(piece_).first(first_bytes), filled_);
    // Nothing is allocated for a length that the rest of the pack cannot hold.
    if (header_.size_bytes / kMostDeflated > pack_.end() - header_.data_offset)
      throw_damaged_entry(offset, "it claims more bytes than its pack can hold");
  }
  const EntryHeader& header() const noexcept { return header_; }
  bool is_delta() const noexcept {
    return header_.type == ObjectType::offset_delta || header_.type == ObjectType::reference_delta;
  }

  // Where the base of a delta is.
  std::uint64_t base() const {
    if (header_.type == ObjectType::offset_delta) return header_.base_offset;
    const auto index = pack_.find(header_.base_id);
    if (!index) throw_damaged_entry(offset_, "its base is not in the pack");
    return pack_.offset_at(*index);
  }

  // The whole content.
  std::string content() const {
    std::string out(static_cast<std::size_t>(header_.size_bytes), '\0');
    if (header_.size_bytes <= kMostAtOnceBytes && inflate_at_once(out)) return out;
    if (inflate_into(out.data(), out.size()) != Z_STREAM_END)
      throw_damaged_entry(offset_, "it holds more bytes than it says");
    return out;
  }

  // Of a delta.
  DeltaSizes delta_sizes() const {
    std::array<char, kDeltaSizesBytes> out{};
    const std::size_t wanted = static_cast<std::size_t>(std::min<std::uint64_t>(header_.size_bytes, out.size()));
    inflate_into(out.data(), wanted);
    const DeltaSizes sizes = read_delta_sizes(std::string_view(out.data(), wanted));
    if (sizes.result_bytes > most_that_a_delta_makes(header_.size_bytes))
      throw_damaged_entry(offset_, "its delta claims more bytes than it can make");
    return sizes;
  }

 private:
  // False: it has more than expected, or is damaged, which inflate_into() tells apart.
  bool inflate_at_once(std::string& out) const {
    const auto skipped = static_cast<std::size_t>(header_.data_offset - offset_);
    // Text is seldom four times as long as what it is deflated to.
    const bool may_be_whole = out.size() / 4 < filled_;
    if (may_be_whole && inflate_exactly(std::span(piece_).first(filled_).subspan(skipped), out)) return true;
    // Incompressible bytes become a little longer.
    const std::size_t most = skipped + out.size() + out.size() / 256 + 64;
    if (most <= filled_) return false;
    thread_local std::vector<std::uint8_t> whole;
    whole.resize(std::max(whole.size(), most));
    const auto count = ::pread(pack_.fd(), whole.data(), most, static_cast<off_t>(offset_));
    return count > static_cast<ssize_t>(skipped) &&
           inflate_exactly(std::span(whole).first(static_cast<std::size_t>(count)).subspan(skipped), out);
  }

  // Fills all of `out`; returns Z_STREAM_END when that was all there is, verified (Adler-32).
  int inflate_into(char* out, std::size_t size) const {
    z_stream& stream = ThreadInflater::of_this_thread().stream();
    std::vector<std::uint8_t> more;
    const std::size_t skipped = static_cast<std::size_t>(header_.data_offset - offset_);
    std::uint64_t at = offset_ + filled_;
    stream.next_in = const_cast<Bytef*>(piece_.data() + skipped);  // zlib's interface predates const
    stream.avail_in = static_cast<uInt>(filled_ - skipped);
    stream.next_out = reinterpret_cast<Bytef*>(out);
    stream.avail_out = static_cast<uInt>(size);
    for (;;) {
      const int code = inflate(&stream, Z_NO_FLUSH);
      if (code == Z_MEM_ERROR) throw std::bad_alloc();
      if (code != Z_OK && code != Z_BUF_ERROR && code != Z_STREAM_END)
        throw_damaged_entry(offset_, "its compressed bytes are not valid");
      if (code == Z_STREAM_END && stream.avail_out > 0)
        throw_damaged_entry(offset_, "it holds fewer bytes than it says");
      // Without room zlib still takes what ends the stream.
      if (code == Z_STREAM_END || stream.avail_in > 0) return code;
      if (at >= pack_.end()) throw_damaged_entry(offset_, "its compressed bytes end too early");
      more.resize(kNextReadBytes);
      const auto count = ::pread(pack_.fd(), more.data(),
                                 static_cast<std::size_t>(std::min<std::uint64_t>(more.size(), pack_.end() - at)),
                                 static_cast<off_t>(at));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw system_error(errno, "read " + pack_.stem() + ".pack");
      if (count == 0) throw_damaged_entry(offset_, "the file became shorter");
      at += static_cast<std::uint64_t>(count);
      stream.next_in = more.data();
      stream.avail_in = static_cast<uInt>(count);
    }
  }

  const PackFile& pack_;
  const std::uint64_t offset_;
  EntryHeader header_{};
  std::array<std::uint8_t, kFirstReadBytes> piece_;
  std::size_t filled_ = 0;
};

}  // namespace

template <typename Question>
auto PackedObjects::ask(const ObjectId& id, Question question) const
    -> decltype(question(std::declval<const PackFile&>(), std::uint64_t{})) {
  auto packs = directory_.recent();
  std::string damage;
  while (packs) {
    for (const auto& pack : *packs) {
      try {
        const auto index = pack->find(id);
        if (!index) continue;
        directory_.open(*pack);
        if (!pack->fits_index()) {
          throw Error(Errc::damaged_repository, "its index was made for another pack, or the pack is damaged");
        }
        return question(*pack, pack->offset_at(*index));
      } catch (const Error& error) {
        if (error.code() == Errc::not_found) continue;  // it has just been removed: the object is elsewhere by now
        if (damage.empty()) damage = pack->stem() + ".pack: " + error.what();
      }
    }
    // Another pack may have been made meanwhile, and be whole.
    packs = directory_.more_than(packs);
  }
  if (!damage.empty()) {
    throw Error(Errc::input_output,
                "the object " + id.hex() + " cannot be read from " + damage + "; run escrow verify");
  }
  return {};
}

bool PackedObjects::contains(const ObjectId& id) const {
  // As it is at this moment: others conclude from it what may be left out or removed.
  const auto packs = directory_.current();
  return std::any_of(packs->begin(), packs->end(), [&](const auto& pack) {
    try {
      return pack->find(id).has_value();
    } catch (const Error&) {
      return false;  // the index became shorter
    }
  });
}

std::optional<std::pair<ObjectType, std::uint64_t>> PackedObjects::header(const ObjectId& id) const {
  return ask(id, [](const PackFile& pack, std::uint64_t offset) {
    std::optional<std::uint64_t> size_bytes;
    for (std::size_t depth = 0; depth <= kMostDeltas; ++depth) {
      const PackEntry entry(pack, offset, kHeaderReadBytes);
      if (!entry.is_delta()) return std::optional(std::pair(entry.header().type,
                                                            size_bytes.value_or(entry.header().size_bytes)));
      if (!size_bytes) size_bytes = entry.delta_sizes().result_bytes;
      offset = entry.base();
    }
    throw_damaged_entry(offset, "its deltas lead to no object");
  });
}

std::optional<RawObject> PackedObjects::read(const ObjectId& id, std::uint64_t most_bytes) const {
  return ask(id, [&](const PackFile& pack, std::uint64_t offset) {
    auto object = read_at(pack, offset, std::min(most_bytes, kMostPackedBytes));
    if (object && hash_object(object->type, object->content) != id)
      throw_damaged_entry(offset, "its content is another object's");
    return object;
  });
}

// Down to an object that is whole, or a base that is kept, and up again.
std::optional<RawObject> PackedObjects::read_at(const PackFile& pack, std::uint64_t offset,
                                                std::uint64_t most_bytes) const {
  struct Delta {
    std::uint64_t offset;
    std::string content;
  };
  std::vector<Delta> deltas;
  std::uint64_t deltas_bytes = 0;
  Object base{};
  for (std::uint64_t at = offset; !base.content;) {
    if (auto kept = kept_base({pack.serial(), at})) {
      base = std::move(*kept);
      break;
    }
    const PackEntry entry(pack, at);
    if (!entry.is_delta()) {
      const bool is_wanted = deltas.empty();
      if (entry.header().size_bytes > (is_wanted ? most_bytes : kMostPackedBytes)) return std::nullopt;
      if (is_wanted) return RawObject{entry.header().type, entry.content()};
      base = {entry.header().type, std::make_shared<const std::string>(entry.content())};
      keep_base({pack.serial(), at}, base);
      break;
    }
    deltas_bytes += entry.header().size_bytes;
    if (deltas.size() == kMostDeltas) throw_damaged_entry(offset, "its deltas lead to no object");
    if (deltas_bytes > kMostPackedBytes) return std::nullopt;
    deltas.push_back({at, entry.content()});
    const std::uint64_t most = deltas.size() == 1 ? most_bytes : kMostPackedBytes;
    if (check_delta(deltas.back().content).result_bytes > most) return std::nullopt;
    at = entry.base();
  }
  if (deltas.empty()) {
    if (base.content->size() > most_bytes) return std::nullopt;
    return RawObject{base.type, *base.content};
  }
  for (; deltas.size() > 1; deltas.pop_back()) {
    const Delta& delta = deltas.back();
    base.content = std::make_shared<const std::string>(apply_delta(*base.content, delta.content));
    keep_base({pack.serial(), delta.offset}, base);
  }
  return RawObject{base.type, apply_delta(*base.content, deltas.front().content)};
}

std::optional<PackedObjects::Object> PackedObjects::kept_base(const Key& key) const {
  auto bases = bases_.lock();
  const auto found = bases->by_key.find(key);
  if (found == bases->by_key.end()) return std::nullopt;
  bases->recent.splice(bases->recent.begin(), bases->recent, found->second);
  return found->second->second;
}

void PackedObjects::keep_base(const Key& key, const Object& object) const {
  if (object.content->size() > kMostKeptBaseBytes) return;
  constexpr std::uint64_t kOwnBytes = sizeof(Bases::Entry) + 64;
  auto bases = bases_.lock();
  if (bases->by_key.contains(key)) return;
  bases->recent.emplace_front(key, object);
  bases->by_key[key] = bases->recent.begin();
  bases->bytes += object.content->size() + kOwnBytes;
  while (bases->bytes > kBasesBytes) {
    const auto& [oldest, least_recent] = bases->recent.back();
    bases->bytes -= least_recent.content->size() + kOwnBytes;
    bases->by_key.erase(oldest);
    bases->recent.pop_back();
  }
}

}  // namespace escrow::storage
