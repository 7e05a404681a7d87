#include "storage/objects/quarantine.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "session/base/error.h"
#include "storage/disk/byte_sources.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/make_directories.h"
#include "storage/git/git_error.h"
#include "storage/git/merge_text.h"
#include "storage/objects/zlib_stream.h"

#include <fcntl.h>

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using session::ByteSource;
using session::Commit;
using session::Errc;
using session::Error;
using session::ObjectId;
using session::Tree;

constexpr int kFastestLevel = 1;
// A session's own large blobs are read back only to show what it did.
constexpr std::uint64_t kLargeBlobsLimitBytes = std::uint64_t{1} << 30;

// Of a session's entries; the others go to a file.
constexpr std::uint64_t kInMemoryBytes = std::uint64_t{256} << 10;

UniqueFd memory_file() {
  UniqueFd fd(::memfd_create("escrow-objects", MFD_CLOEXEC));
  if (!fd) throw system_error(errno, "make a file in memory for the session's objects");
  return fd;
}

UniqueFd incoming_file(const std::string& directory) {
  make_directories(directory);
  const std::string path = directory + "/incoming.pack";
  return open_or_throw(AT_FDCWD, path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600, "make " + path);
}

constexpr char kObjects[] = "to the session's objects";  // of what is written, for messages

void copy_bytes(int from, std::uint64_t from_offset, int to, std::uint64_t to_offset, std::uint64_t length) {
  std::string buffer(std::size_t{1} << 20, '\0');
  while (length > 0) {
    const ssize_t count = ::pread(from, buffer.data(), std::min<std::uint64_t>(buffer.size(), length),
                                  static_cast<off_t>(from_offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw system_error(count < 0 ? errno : EIO, "read the session's objects");
    write_at(to, std::string_view(buffer).substr(0, static_cast<std::size_t>(count)), to_offset, kObjects);
    from_offset += static_cast<std::uint64_t>(count);
    to_offset += static_cast<std::uint64_t>(count);
    length -= static_cast<std::uint64_t>(count);
  }
}

// Two different contents under one id: whoever stores the second would get the first.
[[noreturn]] void throw_collision(const ObjectId& id) {
  throw Error(Errc::input_output, "cannot store the object " + id.hex() +
                                      ": the repository has another one of the same SHA-1, which only happens on "
                                      "purpose; change a byte of the file");
}

void expect_own_type(ObjectType found, ObjectType wanted, const ObjectId& id) {
  if (found == wanted) return;
  throw Error(Errc::input_output,
              "the object " + id.hex() + " is a " + name_of(found) + " where a " + name_of(wanted) + " is expected");
}

}  // namespace

GitQuarantine::GitQuarantine(GitRepositoryPool& pool, const GitObjectStore& store, std::string directory,
                             std::string gc_lock_path, std::uint64_t own_pack_bytes)
    : pool_(pool),
      store_(store),
      directory_(std::move(directory)),
      gc_lock_path_(std::move(gc_lock_path)),
      own_pack_bytes_(own_pack_bytes),
      publications_(directory_ + "/published", pool_.git_directory() + "/objects"),
      lfs_store_(pool_.git_directory(), !pool_.has_source()),
      lfs_(lfs_store_, directory_ + "/lfs"),
      large_blobs_(directory_ + "/cache", kLargeBlobsLimitBytes) {
  try {
    clear_files();
  } catch (const Error&) {
    // Nothing here is read again: what is in the way of a new file is named when that is made.
  }
}

GitQuarantine::~GitQuarantine() {
  try {
    release_if_referenced();
  } catch (const std::exception&) {
    // Listed as they are, they are looked at when the session is opened again.
  }
}

std::optional<GitQuarantine::Stored> GitQuarantine::find(const ObjectId& id) const {
  auto contents = contents_.lock();
  const auto found = contents->stored.find(id);
  if (found == contents->stored.end()) return std::nullopt;
  return found->second;
}

// Reading

std::optional<std::pair<ObjectType, std::uint64_t>> GitQuarantine::own_header(const ObjectId& id) const {
  const auto stored = find(id);
  if (!stored) return std::nullopt;
  return std::pair(stored->type, stored->size_bytes);
}

BlobCache::Pull GitQuarantine::pull_own(const ObjectId& id, const Stored& stored) {
  const int fd = stored.own_pack ? stored.own_pack->fd() : stored.file->get();
  const std::size_t header = encode_entry_header(stored.type, stored.size_bytes).size();
  const auto reader = std::make_shared<InflateReader>(
      fd, stored.offset + header, "the object " + id.hex(),
      static_cast<std::size_t>(std::min<std::uint64_t>(stored.length, InflateReader::kBufferBytes)));
  return [stored, reader](std::span<std::byte> out) { return reader->read(out); };
}

void GitQuarantine::stream_own(const ObjectId& id, const Stored& stored,
                               const std::function<void(std::span<const std::byte>)>& sink) const {
  const BlobCache::Pull pull = pull_own(id, stored);
  std::vector<std::byte> piece(
      static_cast<std::size_t>(std::min<std::uint64_t>(stored.size_bytes + 1, std::uint64_t{1} << 20)));
  while (const std::size_t count = pull(piece)) sink(std::span<const std::byte>(piece).first(count));
}

std::optional<RawObject> GitQuarantine::read_own(const ObjectId& id) const {
  const auto stored = find(id);
  if (!stored) return std::nullopt;
  RawObject object{stored->type, {}};
  object.content.reserve(stored->size_bytes);
  stream_own(id, *stored, [&](std::span<const std::byte> bytes) {
    object.content.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  if (hash_object(object.type, object.content) != id) {
    throw Error(Errc::input_output, "the object " + id.hex() + " of the session is damaged on disk");
  }
  return object;
}

RawObject GitQuarantine::read_borrowed(const ObjectId& id) const {
  git_odb* raw_odb = nullptr;
  check_git(git_odb_open(&raw_odb, (directory_ + "/borrowed").c_str()), "opening the session's borrowed objects");
  const GitOdb odb(raw_odb);
  const git_oid oid = to_git(id);
  git_odb_object* raw = nullptr;
  check_git(git_odb_read(&raw, raw_odb, &oid), "reading the object " + id.hex(), Errc::input_output);
  const GitOdbObject object(raw);
  return {static_cast<ObjectType>(git_odb_object_type(raw)),
          std::string(static_cast<const char*>(git_odb_object_data(raw)), git_odb_object_size(raw))};
}

RawObject GitQuarantine::read_raw(const ObjectId& id) const {
  if (auto own = read_own(id)) return std::move(*own);
  const bool borrowed = contents_.lock()->borrowed.contains(id);
  if (borrowed && !store_.contains(id)) return read_borrowed(id);
  return store_.read_object(id);
}

void GitQuarantine::read_through(std::vector<const session::Quarantine*> others) { others_.lock()->swap(others); }

const session::Quarantine* GitQuarantine::other_with(const ObjectId& id) const {
  const auto others = others_.lock_shared();
  for (const session::Quarantine* other : *others) {
    if (other->holds(id) && !holds(id)) return other;
  }
  return nullptr;
}

Tree GitQuarantine::read_tree(const ObjectId& id) const {
  if (const session::Quarantine* other = other_with(id)) return other->read_tree(id);
  const RawObject object = read_raw(id);
  expect_own_type(object.type, ObjectType::tree, id);
  return decode_tree(object.content, id);
}

Commit GitQuarantine::read_commit(const ObjectId& id) const {
  if (const session::Quarantine* other = other_with(id)) return other->read_commit(id);
  const RawObject object = read_raw(id);
  expect_own_type(object.type, ObjectType::commit, id);
  return decode_commit(object.content, id);
}

std::uint64_t GitQuarantine::blob_size(const ObjectId& id) const {
  if (const auto stored = find(id)) return stored->size_bytes;
  return store_.blob_size(id);
}

std::shared_ptr<const ByteSource> GitQuarantine::open_blob(const ObjectId& id) const {
  const auto stored = find(id);
  if (!stored) return store_.open_blob(id);
  expect_own_type(stored->type, ObjectType::blob, id);
  if (stored->size_bytes <= kLargeBlobBytes) return std::make_shared<MemoryBytes>(read_own(id)->content);
  return large_blobs_.open(id, stored->size_bytes,
                           [id, stored = *stored] { return pull_own(id, stored); });
}

bool GitQuarantine::contains(const ObjectId& id) const {
  {
    auto contents = contents_.lock();
    if (contents->stored.contains(id) || contents->borrowed.contains(id)) return true;
  }
  return store_.contains(id);
}

// Putting

ObjectId GitQuarantine::put_tree(const Tree& tree) { return put_small(ObjectType::tree, encode_tree(tree)); }

ObjectId GitQuarantine::put_commit(const Commit& commit) {
  return put_small(ObjectType::commit, encode_commit(commit));
}

std::optional<ObjectId> GitQuarantine::put_merged_text(const ObjectId& base, const ObjectId& ours,
                                                       const ObjectId& theirs) {
  std::array<std::string, 3> texts;
  for (std::size_t side = 0; const ObjectId& id : {base, ours, theirs}) {
    if (blob_size(id) > kLargestMergedText_bytes) return std::nullopt;
    texts[side++] = read_unchanged(*open_blob(id));
  }
  std::optional<std::string> merged = merge_text(texts[0], texts[1], texts[2]);
  if (!merged) return std::nullopt;
  return put_blob(MemoryBytes(std::move(*merged)));
}

ObjectId GitQuarantine::put_blob(const ByteSource& source) {
  if (source.size() > kLargeBlobBytes) return put_large(source);
  return put_small(ObjectType::blob, read_unchanged(source));
}

ObjectId GitQuarantine::put_lfs_file(const ByteSource& source) {
  if (source.size() == 0) return put_blob(source);
  if (source.size() < session::kNoLfsPointer_bytes) {
    const std::string content = read_unchanged(source);
    if (session::is_pointer_to_git_lfs(content)) return put_small(ObjectType::blob, content);
  }
  const session::LfsPointer pointer = lfs_.put(source);
  const ObjectId blob = put_small(ObjectType::blob, encode(pointer));
  lfs_.hold(blob, pointer);
  return blob;
}

// Whether an object of this id, with these bytes, is here or can be borrowed. One that is damaged, or came to the
// repository this very moment, counts for nothing: it is stored once more.
bool GitQuarantine::is_known(const ObjectId& id, ObjectType type, const std::string& content) {
  const bool here = find(id).has_value();
  if (!here && !store_.directory().has_recently(id)) return false;
  RawObject known;
  try {
    known = here ? std::move(*read_own(id)) : store_.read_object(id);
  } catch (const Error&) {
    return false;
  }
  if (known.type != type || known.content != content) throw_collision(id);
  return here || borrow(id);
}

bool GitQuarantine::is_known(const ObjectId& id, PackWriter& blob, std::uint64_t size_bytes) {
  const auto stored = find(id);
  if (!stored && !store_.directory().has_recently(id)) return false;
  blob.flush();
  InflateReader own(blob.fd(), PackWriter::kFirstEntry + encode_entry_header(ObjectType::blob, size_bytes).size(),
                    "the object " + id.hex());
  Sha1 hash = object_hash(ObjectType::blob, size_bytes);
  std::vector<std::byte> piece;
  bool same = true;
  const auto compare = [&](std::span<const std::byte> bytes) {
    hash.update(bytes);
    piece.resize(bytes.size());
    // std::equal would go byte by byte: to libstdc++ a std::byte is no integer.
    same = same && own.read(piece) == bytes.size() && std::memcmp(piece.data(), bytes.data(), bytes.size()) == 0;
  };
  try {
    if (stored) stream_own(id, *stored, compare);
    else store_.stream(id, compare);
  } catch (const Error&) {
    return false;
  }
  std::byte more;
  if (same && own.read(std::span(&more, 1)) == 0) return stored.has_value() || borrow(id);
  if (hash.finish() == id) throw_collision(id);
  return false;
}

ObjectId GitQuarantine::put_small(ObjectType type, const std::string& content) {
  const ObjectId id = hash_object(type, content);
  if (!is_known(id, type, content)) store(id, type, content);
  return id;
}

std::pair<std::shared_ptr<const UniqueFd>, std::uint64_t> GitQuarantine::reserve(std::uint64_t length) {
  auto contents = contents_.lock();
  const bool fits = contents->in_memory.end + length <= kInMemoryBytes;
  Entries& entries = fits ? contents->in_memory : contents->on_disk;
  if (!entries.file) entries.file = std::make_shared<UniqueFd>(fits ? memory_file() : incoming_file(directory_));
  return {entries.file, std::exchange(entries.end, entries.end + length)};
}

std::uint64_t GitQuarantine::held_bytes() const {
  const auto contents = contents_.lock();
  return contents->in_memory.end + contents->on_disk.end + contents->own_packs_bytes + lfs_.held_bytes();
}

void GitQuarantine::store(const ObjectId& id, ObjectType type, const std::string& content) {
  const std::string entry = encode_entry_header(type, content.size()) +
                            deflate(kFastestLevel, std::as_bytes(std::span(content.data(), content.size())));
  const auto [file, offset] = reserve(entry.size());
  write_at(file->get(), entry, offset, kObjects);
  const std::uint32_t crc = crc32_of(entry);
  contents_.lock()->stored.insert_or_assign(id, Stored{type, content.size(), file, offset, entry.size(), crc});
}

std::string GitQuarantine::next_path(const char* kind) {
  make_directories(directory_);
  return directory_ + "/" + kind + std::to_string(contents_.lock()->next_file++);
}

ObjectId GitQuarantine::put_large(const ByteSource& source) {
  auto writer = std::make_shared<PackWriter>(next_path("tmp_large_"), 1);
  const ObjectId id = writer->add_blob(source);
  if (!is_known(id, *writer, source.size())) store_large(std::move(writer), id, source.size());
  return id;
}

void GitQuarantine::store_large(std::shared_ptr<PackWriter> writer, const ObjectId& id, std::uint64_t size_bytes) {
  writer->flush();
  const std::uint64_t length = writer->offset() - PackWriter::kFirstEntry;
  const std::uint32_t crc = writer->last_crc();
  if (length >= own_pack_bytes_) {
    auto contents = contents_.lock();
    contents->stored.insert_or_assign(
        id, Stored{ObjectType::blob, size_bytes, nullptr, PackWriter::kFirstEntry, length, crc, std::move(writer)});
    contents->own_packs_bytes += length;
    return;
  }
  // Many blobs of middling size must not hold a descriptor each: they join the others.
  const auto [file, offset] = reserve(length);
  copy_bytes(writer->fd(), PackWriter::kFirstEntry, file->get(), offset, length);
  contents_.lock()->stored.insert_or_assign(id, Stored{ObjectType::blob, size_bytes, file, offset, length, crc});
}

// Borrowing: the repository's own file, linked, keeps the object whatever gc does before the session is published.

bool GitQuarantine::borrow(const ObjectId& id) {
  const auto place = store_.directory().find(id);
  if (!place || !link_borrowed(*place, id)) return false;
  contents_.lock()->borrowed.insert(id);
  return true;
}

bool GitQuarantine::link_borrowed(const ObjectDirectory::Place& place, const ObjectId& id) {
  const std::string borrowed = directory_ + "/borrowed";
  const auto link = [](const std::string& from, const std::string& to) {
    return ::link(from.c_str(), to.c_str()) == 0 || errno == EEXIST;
  };
  std::error_code error;
  if (!place.pack) {
    const std::string hex = id.hex();
    fs::create_directories(borrowed + "/" + hex.substr(0, 2), error);
    return link(place.loose_path, borrowed + "/" + hex.substr(0, 2) + "/" + hex.substr(2));
  }
  const std::string& stem = place.pack->stem();
  if (contents_.lock()->linked_packs.contains(stem)) return true;
  fs::create_directories(borrowed + "/pack", error);
  const std::string to = borrowed + "/pack/" + fs::path(stem).filename().string();
  if (!link(stem + ".pack", to + ".pack") || !link(stem + ".idx", to + ".idx")) return false;
  contents_.lock()->linked_packs.insert(stem);
  return true;
}

}  // namespace escrow::storage
