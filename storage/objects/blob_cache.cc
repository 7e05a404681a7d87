#include "storage/objects/blob_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <optional>
#include <vector>

#include "session/base/still_wanted.h"
#include "storage/disk/byte_sources.h"
#include "storage/disk/copy_budget.h"
#include "storage/disk/disk_era.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/file_lookup.h"
#include "storage/disk/make_directories.h"
#include "storage/disk/sparse_writer.h"
#include "storage/git/object_format.h"
#include "storage/objects/unplaced_blob.h"

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using session::Errc;
using session::Error;
using session::ObjectId;

constexpr std::size_t kAtOnce_bytes = std::size_t{256} << 10;
// A temporary file older than this was left by a process that died.
constexpr auto kAbandoned = std::chrono::hours(24);
constexpr std::size_t kMostUnplaced = 4;
// How soon a thread that waits for another one's blob notices that its own caller is gone.
constexpr std::chrono::milliseconds kWantedPause{100};

struct Cached {
  fs::file_time_type opened;
  std::uint64_t size_bytes;  // that it takes of the disk
  fs::path path;
};

bool is_temporary(const fs::path& path) { return path.filename().string().starts_with("tmp_"); }

// Least recently opened first. An entry that cannot be examined is left to the next call, with those behind one that
// cannot be listed.
std::vector<Cached> files_in(const std::string& directory) {
  std::vector<Cached> files;
  std::error_code failed;
  for (fs::directory_iterator at(directory, failed), end; !failed && at != end; at.increment(failed)) {
    struct stat status {};
    std::error_code gone;
    const auto opened = at->last_write_time(gone);
    if (gone || ::stat(at->path().c_str(), &status) != 0) continue;
    const std::uint64_t taken = std::min<std::uint64_t>(status.st_size, std::uint64_t{512} * status.st_blocks);
    files.push_back({opened, taken, at->path()});
  }
  std::sort(files.begin(), files.end(), [](const Cached& a, const Cached& b) { return a.opened < b.opened; });
  return files;
}

// Open to be read; none when it is not there or has another size.
UniqueFd open_if_whole(const std::string& path, std::uint64_t size_bytes) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  const bool is_whole = fd && ::fstat(fd.get(), &status) == 0 && S_ISREG(status.st_mode) &&
                        static_cast<std::uint64_t>(status.st_size) == size_bytes;
  return is_whole ? std::move(fd) : UniqueFd();
}

// Calls `visit` with each piece, as long as they are wanted.
template <typename Visit>
void read_all(const BlobCache::Pull& pull, const ObjectId& id, Visit visit) {
  std::vector<std::byte> buffer(kAtOnce_bytes);
  for (std::size_t count = buffer.size(); count == buffer.size();) {
    session::require_still_wanted("reading the blob " + id.hex());
    count = pull(buffer);
    visit(std::span<const std::byte>(buffer).first(count));
  }
}

bool has_content_of(const session::ByteSource& source, const ObjectId& id) {
  Sha1 hash = object_hash(ObjectType::blob, source.size());
  const auto pull = [&source, at = std::uint64_t{0}](std::span<std::byte> out) mutable {
    const std::size_t count = source.read(at, out);
    at += count;
    return count;
  };
  try {
    read_all(pull, id, [&](std::span<const std::byte> bytes) { hash.update(bytes); });
  } catch (const Error& error) {
    if (error.code() != Errc::input_output) throw;
    return false;  // the disk cannot read it any more
  }
  return hash.finish() == id;
}

bool is_want_of_room(const Error& error) {
  return error.code() == Errc::no_space || error.code() == Errc::quota_exceeded;
}

}  // namespace

// Goes again unless it gets its name.
class BlobCache::NewFile {
 public:
  explicit NewFile(const BlobCache& cache)
      : path_(cache.directory_ + "/tmp_XXXXXX"), fd_(make(cache.directory_, path_)),
        writer_(fd_.get(), path_, [this, &cache](std::uint64_t bytes) { cache.make_room(fd_.get(), bytes, path_); }) {}
  ~NewFile() {
    if (!has_name_) ::unlink(path_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void append(std::span<const std::byte> bytes) { writer_.append(bytes); }
  // On disk before it has its name.
  Source finish(const std::string& path, std::uint64_t size_bytes) {
    writer_.finish();
    if (::fdatasync(fd_.get()) != 0) throw system_error(errno, "write " + path_);
    if (::rename(path_.c_str(), path.c_str()) != 0) throw system_error(errno, "rename a file to " + path);
    has_name_ = true;
    return std::make_shared<FileBytes>(std::move(fd_), size_bytes, path);
  }

 private:
  static UniqueFd make(const std::string& directory, std::string& path) {
    make_directories(directory);
    UniqueFd fd(::mkostemp(path.data(), O_CLOEXEC));
    if (!fd) throw system_error(errno, "make a file in " + directory);
    return fd;
  }

  std::string path_;
  UniqueFd fd_;
  SparseWriter writer_;
  bool has_name_ = false;
};

std::string BlobCache::era_suffix() const {
  if (era_ == 0) {
    if (!is_there(directory_)) return {};
    era_ = disk_era(directory_);
  }
  char text[24];
  std::snprintf(text, sizeof text, ".%016llx", static_cast<unsigned long long>(era_.load()));
  return text;
}

BlobCache::Source BlobCache::open_cached(const ObjectId& id, std::uint64_t size_bytes) const {
  const std::string path = path_of(id);
  UniqueFd fd = open_if_whole(path, size_bytes);
  if (!fd) return nullptr;
  ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // most recently opened
  return std::make_shared<FileBytes>(std::move(fd), size_bytes, path);
}

// Also of a version of Escrow that gave files no era.
BlobCache::Source BlobCache::open_of_another_era(const ObjectId& id, std::uint64_t size_bytes) const {
  const std::string hex = id.hex(), path = path_of(id);
  for (const Cached& file : files_in(directory_)) {
    if (!file.path.filename().string().starts_with(hex) || file.path == path) continue;
    if (UniqueFd fd = open_if_whole(file.path, size_bytes)) {
      auto source = std::make_shared<FileBytes>(std::move(fd), size_bytes, path);
      if (has_content_of(*source, id)) {
        ::rename(file.path.c_str(), path.c_str());  // or another process has, and the bytes are the same
        ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
        return source;
      }
    }
    ::unlink(file.path.c_str());
  }
  return nullptr;
}

// nullptr, too, when there is room by now.
BlobCache::Source BlobCache::open_unplaced(Opening& opening, const ObjectId& id, std::uint64_t size_bytes) const {
  auto& unplaced = opening.unplaced;
  const auto found = std::find_if(unplaced.begin(), unplaced.end(), [&](const auto& one) { return one.first == id; });
  if (found == unplaced.end()) return nullptr;
  const UniqueFd directory(::open(directory_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (directory && has_room(directory.get(), size_bytes)) {
    unplaced.erase(found);
    return nullptr;
  }
  unplaced.splice(unplaced.begin(), unplaced, found);
  return unplaced.front().second;
}

BlobCache::Source BlobCache::open(const ObjectId& id, std::uint64_t size_bytes, const Begin& begin) {
  {
    auto opening = opening_.lock();
    while (!filled_.wait_for(opening.lock(), kWantedPause, [&] { return !opening->filling.contains(id); }))
      session::require_still_wanted("reading the blob " + id.hex());
    Source source = open_cached(id, size_bytes);
    if (!source) source = open_unplaced(*opening, id, size_bytes);
    if (source) {
      ++hits_;
      return source;
    }
    opening->filling.insert(id);
  }
  struct Done {
    BlobCache& cache;
    const ObjectId& id;
    ~Done() {
      cache.opening_.lock()->filling.erase(id);
      cache.filled_.notify_all();
    }
  } const done{*this, id};
  if (Source source = open_of_another_era(id, size_bytes)) {
    ++hits_;
    return source;
  }
  ++misses_;
  if (Source source = fill(id, size_bytes, begin)) {
    evict(path_of(id));
    return source;
  }
  auto source = std::make_shared<UnplacedBlob>(id, size_bytes, begin);
  auto opening = opening_.lock();
  opening->unplaced.emplace_front(id, source);
  if (opening->unplaced.size() > kMostUnplaced) opening->unplaced.pop_back();
  return source;
}

// nullptr: the blob is whole, and there is no room for it.
BlobCache::Source BlobCache::fill(const ObjectId& id, std::uint64_t size_bytes, const Begin& begin) const {
  std::optional<NewFile> file;  // none: there is no room
  const auto as_far_as_there_is_room = [&](const auto& write) {
    try {
      write();
    } catch (const Error& error) {
      if (!is_want_of_room(error)) throw;
      file.reset();
    }
  };
  as_far_as_there_is_room([&] { file.emplace(*this); });
  Sha1 hash = object_hash(ObjectType::blob, size_bytes);
  read_all(begin(), id, [&](std::span<const std::byte> bytes) {
    hash.update(bytes);
    if (file) as_far_as_there_is_room([&] { file->append(bytes); });
  });
  if (hash.finish() != id) {
    throw Error(Errc::input_output, "the blob " + id.hex() + " is damaged: its content does not match its name");
  }
  Source source;
  if (file) as_far_as_there_is_room([&] { source = file->finish(path_of(id), size_bytes); });
  return source;
}

void BlobCache::make_room(int fd, std::uint64_t bytes, const std::string& path) const {
  if (has_room(fd, bytes)) return;
  for (const Cached& file : files_in(directory_)) {
    if (is_temporary(file.path) || ::unlink(file.path.c_str()) != 0) continue;
    if (has_room(fd, bytes)) return;
  }
  require_room(fd, bytes, "write " + path);
}

void BlobCache::evict(const std::string& keep) const {
  const std::vector<Cached> files = files_in(directory_);
  std::uint64_t total = 0;
  for (const Cached& file : files) total += file.size_bytes;
  for (const Cached& file : files) {
    const bool goes = is_temporary(file.path) ? fs::file_time_type::clock::now() - file.opened > kAbandoned
                                              : total > limit_bytes_ && file.path != keep;
    if (goes && ::unlink(file.path.c_str()) == 0) total -= file.size_bytes;
  }
}

}  // namespace escrow::storage
