#include "storage/objects/blob_cache.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <vector>

#include "storage/disk/byte_sources.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/make_directories.h"
#include "storage/git/object_format.h"

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using session::Errc;
using session::Error;
using session::ObjectId;

// A temporary file older than this was left by a process that died.
constexpr auto kAbandoned = std::chrono::hours(24);

void write_all(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error(errno, "write " + path);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

// Unlinks its file unless told that it has its final name.
struct TemporaryFile {
  std::string path;
  bool kept = false;
  ~TemporaryFile() {
    if (!kept) ::unlink(path.c_str());
  }
};

}  // namespace

std::shared_ptr<const session::ByteSource> BlobCache::open_cached(const std::string& path,
                                                                  std::uint64_t size_bytes) const {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return nullptr;
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0 || static_cast<std::uint64_t>(status.st_size) != size_bytes) return nullptr;
  ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // most recently opened
  return std::make_shared<FileBytes>(std::move(fd), size_bytes, path);
}

std::shared_ptr<const session::ByteSource> BlobCache::open(const ObjectId& id, std::uint64_t size_bytes,
                                                           const Producer& produce) {
  const std::string path = directory_ + "/" + id.hex();
  {
    auto filling = filling_.lock();
    filled_.wait(filling.lock(), [&] { return !filling->contains(id); });
    if (auto source = open_cached(path, size_bytes)) {
      ++hits_;
      return source;
    }
    ++misses_;
    filling->insert(id);
  }
  struct Done {
    BlobCache& cache;
    const ObjectId& id;
    ~Done() {
      cache.filling_.lock()->erase(id);
      cache.filled_.notify_all();
    }
  } const done{*this, id};
  fill(id, size_bytes, path, produce);
  auto source = open_cached(path, size_bytes);
  if (!source) throw Error(Errc::input_output, "the cached file " + path + " vanished while it was being opened");
  evict(path);
  return source;
}

void BlobCache::fill(const ObjectId& id, std::uint64_t size_bytes, const std::string& path, const Producer& produce) {
  make_directories(directory_);
  TemporaryFile temporary{directory_ + "/tmp_XXXXXX"};
  const UniqueFd fd(::mkostemp(temporary.path.data(), O_CLOEXEC));
  if (!fd) {
    temporary.kept = true;
    throw system_error(errno, "make a file in " + directory_);
  }
  Sha1 hash = object_hash(ObjectType::blob, size_bytes);
  produce([&](std::span<const std::byte> bytes) {
    hash.update(bytes);
    write_all(fd.get(), bytes, temporary.path);
  });
  if (hash.finish() != id) {
    throw Error(Errc::input_output, "the blob " + id.hex() + " is damaged: its content does not match its name");
  }
  if (::fdatasync(fd.get()) != 0) throw system_error(errno, "write " + temporary.path);
  if (::rename(temporary.path.c_str(), path.c_str()) != 0) throw system_error(errno, "rename a file to " + path);
  temporary.kept = true;
}

void BlobCache::evict(const std::string& keep) const {
  struct Cached {
    fs::file_time_type opened;
    std::uint64_t size_bytes;
    fs::path path;
  };
  std::vector<Cached> files;
  std::uint64_t total = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory_, error)) {
    std::error_code gone;
    const auto opened = entry.last_write_time(gone);
    const auto size = entry.file_size(gone);
    if (gone) continue;
    if (entry.path().filename().string().starts_with("tmp_")) {
      if (fs::file_time_type::clock::now() - opened > kAbandoned) fs::remove(entry.path(), gone);
      continue;
    }
    total += size;
    if (entry.path() != keep) files.push_back({opened, size, entry.path()});
  }
  std::sort(files.begin(), files.end(), [](const Cached& a, const Cached& b) { return a.opened < b.opened; });
  for (const Cached& file : files) {
    if (total <= limit_bytes_) break;
    std::error_code gone;
    if (fs::remove(file.path, gone)) total -= file.size_bytes;
  }
}

}  // namespace escrow::storage
