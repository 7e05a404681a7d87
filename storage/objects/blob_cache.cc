#include "storage/objects/blob_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <optional>
#include <vector>

#include "session/base/still_wanted.h"
#include "storage/disk/byte_sources.h"
#include "storage/disk/copy_budget.h"
#include "storage/disk/durable_file.h"
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

BlobCache::Source BlobCache::open_cached(const std::string& path, std::uint64_t size_bytes) const {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return nullptr;
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0 || static_cast<std::uint64_t>(status.st_size) != size_bytes) return nullptr;
  ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // most recently opened
  return std::make_shared<FileBytes>(std::move(fd), size_bytes, path);
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
  const std::string path = directory_ + "/" + id.hex();
  {
    auto opening = opening_.lock();
    while (!filled_.wait_for(opening.lock(), kWantedPause, [&] { return !opening->filling.contains(id); }))
      session::require_still_wanted("reading the blob " + id.hex());
    Source source = open_cached(path, size_bytes);
    if (!source) source = open_unplaced(*opening, id, size_bytes);
    if (source) {
      ++hits_;
      return source;
    }
    ++misses_;
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
  Source source = fill(id, size_bytes, path, begin);
  if (source) {
    evict(path);
    return source;
  }
  source = std::make_shared<UnplacedBlob>(id, size_bytes, begin);
  auto opening = opening_.lock();
  opening->unplaced.emplace_front(id, source);
  if (opening->unplaced.size() > kMostUnplaced) opening->unplaced.pop_back();
  return source;
}

// nullptr: the blob is whole, and there is no room for it.
BlobCache::Source BlobCache::fill(const ObjectId& id, std::uint64_t size_bytes, const std::string& path,
                                  const Begin& begin) {
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
  const Pull pull = begin();
  std::vector<std::byte> buffer(kAtOnce_bytes);
  for (std::size_t count = buffer.size(); count == buffer.size();) {
    session::require_still_wanted("reading the blob " + id.hex());
    count = pull(buffer);
    const auto bytes = std::span<const std::byte>(buffer).first(count);
    hash.update(bytes);
    if (file) as_far_as_there_is_room([&] { file->append(bytes); });
  }
  if (hash.finish() != id) {
    throw Error(Errc::input_output, "the blob " + id.hex() + " is damaged: its content does not match its name");
  }
  Source source;
  if (file) as_far_as_there_is_room([&] { source = file->finish(path, size_bytes); });
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
