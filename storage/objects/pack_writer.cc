#include "storage/objects/pack_writer.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>

#include "storage/disk/byte_sources.h"
#include "storage/disk/durable_file.h"
#include "storage/objects/zlib_stream.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::Error;
using session::ObjectId;

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
constexpr int kFastest = 1;
constexpr int kStored = 0;

void put_big_endian_32(std::string& out, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<char>(value >> shift & 0xff));
}

// Never an old file written over: that may be a pack of the repository by another name.
UniqueFd make_file(const std::string& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) throw system_error(errno, "remove " + path);
  return open_or_throw(AT_FDCWD, path.c_str(), O_RDWR | O_CREAT | O_EXCL, 0444, "make " + path);
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void append_id(std::string& out, const ObjectId& id) {
  out.append(reinterpret_cast<const char*>(id.bytes().data()), ObjectId::kSize);
}

// Whether the first bytes shrink: media and archives do not, and zlib is slow on them.
bool worth_deflating(const session::ByteSource& source) {
  std::vector<std::byte> sample(std::size_t{64} << 10);
  sample.resize(source.read(0, sample));
  return deflate(kFastest, sample).size() < sample.size() - sample.size() / 32;
}

}  // namespace

PackWriter::PackWriter(std::string stem, std::uint32_t count) : stem_(std::move(stem)) {
  fd_ = make_file(stem_ + ".pack");
  std::string header("PACK\0\0\0\2", 8);
  put_big_endian_32(header, count);
  append(header);
}

PackWriter::~PackWriter() {
  ::unlink((stem_ + ".pack").c_str());
  ::unlink((stem_ + ".idx").c_str());
}

void PackWriter::begin(const ObjectId& id) { entries_.push_back({id, offset_, 0}); }

void PackWriter::append(std::span<const std::byte> bytes) {
  hash_.update(bytes);
  if (!entries_.empty()) {
    std::uint32_t& crc = entries_.back().crc;
    crc = static_cast<std::uint32_t>(
        ::crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
  }
  offset_ += bytes.size();
  buffer_ += as_text(bytes);
  if (buffer_.size() >= kBufferBytes) flush();
}

// When it throws, the same bytes go to the same place next time.
void PackWriter::flush() {
  write_at(fd_.get(), buffer_, written_, stem_ + ".pack");
  written_ += buffer_.size();
  buffer_.clear();
}

void PackWriter::add_copy(const ObjectId& id, int fd, std::uint64_t offset, std::uint64_t length) {
  add_copy(id, {}, fd, offset, length);
}

void PackWriter::add_copy(const ObjectId& id, const std::string& header, int fd, std::uint64_t offset,
                          std::uint64_t length) {
  begin(id);
  append(header);
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min<std::uint64_t>(length, kBufferBytes)));
  while (length > 0) {
    const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(length, piece.size()));
    const ssize_t count = ::pread(fd, piece.data(), wanted, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error(errno, "read the object " + id.hex());
    if (count == 0) throw Error(Errc::input_output, "the file that holds the object " + id.hex() + " is cut short");
    append(std::span<const std::byte>(piece).first(static_cast<std::size_t>(count)));
    offset += static_cast<std::uint64_t>(count);
    length -= static_cast<std::uint64_t>(count);
  }
}

void PackWriter::add_object(const ObjectId& id, ObjectType type, const std::string& content) {
  begin(id);
  append(encode_entry_header(type, content.size()));
  append(deflate(kFastest, std::as_bytes(std::span(content.data(), content.size()))));
}

ObjectId PackWriter::add_blob(const session::ByteSource& source) {
  begin({});
  append(encode_entry_header(ObjectType::blob, source.size()));
  Sha1 id = object_hash(ObjectType::blob, source.size());
  Deflater deflater(worth_deflating(source) ? kFastest : kStored, [this](auto bytes) { append(bytes); });
  for_each_piece(source, [&](std::span<const std::byte> bytes) {
    id.update(bytes);
    deflater.write(bytes);
  });
  deflater.finish();
  entries_.back().id = id.finish();
  return entries_.back().id;
}

void PackWriter::finish() {
  if (finished_) return;
  if (!checksum_) {
    checksum_ = hash_.finish();
    append_id(buffer_, *checksum_);
  }
  flush();
  sync_pack();
  write_pack_index(stem_ + ".idx", entries_, *checksum_);
  finished_ = true;
}

void PackWriter::sync_pack() {
  if (sync_failed_) write_again();
  if (::fsync(fd_.get()) == 0) return;
  sync_failed_ = true;
  throw system_error(errno, "sync " + stem_ + ".pack");
}

// After a failed fsync another one of the same file succeeds, and says nothing of what was written before (fsync(2)).
// Who reads fd() meanwhile reads the same bytes from either file.
void PackWriter::write_again() {
  const std::string path = stem_ + ".pack", again = stem_ + ".again";
  const UniqueFd copy = make_file(again);
  try {
    Sha1 hash;
    std::string piece(kBufferBytes, '\0');
    for (std::uint64_t at = 0; at < written_;) {
      const ssize_t count = ::pread(fd_.get(), piece.data(), std::min<std::uint64_t>(piece.size(), written_ - at),
                                    static_cast<off_t>(at));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) throw system_error(count < 0 ? errno : EIO, "read " + path);
      const std::string_view read = std::string_view(piece).substr(0, static_cast<std::size_t>(count));
      const std::uint64_t hashed = written_ - ObjectId::kSize;
      if (at < hashed) hash.update(read.substr(0, std::min<std::uint64_t>(read.size(), hashed - at)));
      write_at(copy.get(), read, at, again);
      at += read.size();
    }
    if (hash.finish() != *checksum_)
      throw Error(Errc::input_output, "the file " + path + " was damaged on its way to the disk; mount the session "
                                      "again and commit: the pack is then made anew from the session's files");
    if (::rename(again.c_str(), path.c_str()) != 0) throw system_error(errno, "rename " + again);
    if (::dup3(copy.get(), fd_.get(), O_CLOEXEC) < 0) throw system_error(errno, "read " + path);
  } catch (...) {
    ::unlink(again.c_str());
    throw;
  }
  sync_failed_ = false;
}

void write_pack_index(const std::string& path, std::vector<PackedEntry> entries, const ObjectId& checksum) {
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  std::string out("\377tOc\0\0\0\2", 8);
  std::size_t at = 0;
  for (unsigned first = 0; first < 256; ++first) {
    while (at < entries.size() && entries[at].id.bytes()[0] <= first) ++at;
    put_big_endian_32(out, static_cast<std::uint32_t>(at));
  }
  for (const PackedEntry& entry : entries) append_id(out, entry.id);
  for (const PackedEntry& entry : entries) put_big_endian_32(out, entry.crc);
  std::string large;
  for (const PackedEntry& entry : entries) {
    if (entry.offset < 0x80000000u) {
      put_big_endian_32(out, static_cast<std::uint32_t>(entry.offset));
      continue;
    }
    put_big_endian_32(out, 0x80000000u | static_cast<std::uint32_t>(large.size() / 8));
    put_big_endian_32(large, static_cast<std::uint32_t>(entry.offset >> 32));
    put_big_endian_32(large, static_cast<std::uint32_t>(entry.offset));
  }
  out += large;
  append_id(out, checksum);
  Sha1 hash;
  hash.update(out);
  append_id(out, hash.finish());
  const UniqueFd fd = make_file(path);
  write_at(fd.get(), out, 0, path);
  if (::fsync(fd.get()) != 0) throw system_error(errno, "sync " + path);
}

void write_keep_file(const std::string& path, std::string_view more) {
  const UniqueFd fd = open_or_throw(AT_FDCWD, path.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0644, "make " + path);
  try {
    write_at(fd.get(), std::string(kKeepMark) + std::string(more), 0, path);
    // A name without its mark would be somebody else's .keep file after a power loss, and protect the pack for ever.
    if (!sync_data(fd.get())) throw system_error(errno, "sync " + path);
  } catch (...) {
    ::unlink(path.c_str());
    throw;
  }
}

// 40 hexadecimal digits, as git wants.
std::string new_pack_stem(const std::string& objects_directory) {
  ObjectId::Bytes bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw system_error(errno, "get random bytes");
  }
  return objects_directory + "/pack/pack-" + ObjectId(bytes).hex();
}

void install_pack(const std::string& stem, const std::string& installed, const std::string& keep, bool link,
                  const SharedPermissions& permissions) {
  const std::string directory = parent_of(installed);
  permissions.make_directories(parent_of(directory), directory);
  const std::string installed_keep = installed + ".keep";
  if (keep.empty() || ::link(keep.c_str(), installed_keep.c_str()) != 0) write_keep_file(installed_keep);
  try {
    permissions.apply(installed_keep);
    for (const char* extension : {".pack", ".idx"}) {
      const std::string from = stem + extension;
      const std::string to = installed + extension;
      permissions.apply(from, directory);
      const int code = link ? ::link(from.c_str(), to.c_str()) : ::rename(from.c_str(), to.c_str());
      if (code != 0) throw system_error(errno, "move " + from + " to " + to);
    }
  } catch (...) {
    remove_pack(installed);
    throw;
  }
}

bool release_pack(const std::string& stem) noexcept {
  return ::unlink((stem + ".keep").c_str()) == 0 || errno == ENOENT;
}

bool leave_pack_to_gc(const std::string& stem) noexcept {
  struct stat status {};
  if (::lstat((stem + ".idx").c_str(), &status) != 0 && errno == ENOENT) return remove_pack(stem);
  ::utimensat(AT_FDCWD, (stem + ".pack").c_str(), nullptr, 0);
  return release_pack(stem);
}

bool remove_pack(const std::string& stem) noexcept {
  // The index first: a pack without one is not seen. The .keep file last: it goes on protecting what could not go.
  if (::unlink((stem + ".idx").c_str()) != 0 && errno != ENOENT) return false;
  if (::unlink((stem + ".pack").c_str()) != 0 && errno != ENOENT) return false;
  for (const char* extension : {".rev", ".bitmap", ".mtimes"}) ::unlink((stem + extension).c_str());
  return release_pack(stem);
}

}  // namespace escrow::storage
