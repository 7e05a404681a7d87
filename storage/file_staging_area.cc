#include "storage/file_staging_area.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "storage/durable_file.h"

namespace escrow::storage {

using session::Errc;
using session::Error;
using session::SeekTarget;
using session::StagingId;

namespace {

class OpenStagingFile final : public session::RawFile {
 public:
  explicit OpenStagingFile(UniqueFd fd) : fd_(std::move(fd)) {}
  int descriptor() const override { return fd_.get(); }

 private:
  UniqueFd fd_;
};

enum class Lease { taken, refused, impossible };

// A read lease is given only while nobody has the file open for writing; a shared mapping counts as long as it lives
// (fcntl(2), F_SETLEASE). It is given back at once: who opens the file meanwhile waits for that, and the kernel tells
// us so by a signal, which must be one that is ignored by default.
Lease try_lease(int fd) {
  if (::fcntl(fd, F_SETSIG, SIGURG) != 0 || ::fcntl(fd, F_SETLEASE, F_RDLCK) != 0)
    return errno == EAGAIN ? Lease::refused : Lease::impossible;
  ::fcntl(fd, F_SETLEASE, F_UNLCK);
  return Lease::taken;
}

}  // namespace

FileStagingArea::FileStagingArea(std::string directory, std::size_t descriptors)
    : directory_(std::move(directory)), shard_capacity_(std::max<std::size_t>(1, descriptors / kShards)) {}

std::string FileStagingArea::file_name(StagingId id) {
  char name[17];
  std::snprintf(name, sizeof name, "%llx", static_cast<unsigned long long>(id.value));
  return name;
}

std::optional<StagingId> FileStagingArea::id_of(const char* file_name) {
  char* end = nullptr;
  const StagingId id{std::strtoull(file_name, &end, 16)};
  if (!id || *end != '\0' || FileStagingArea::file_name(id) != file_name) return std::nullopt;
  return id;
}

Error FileStagingArea::failure(int error, const char* verb, StagingId id) const {
  return system_error(error, std::string(verb) + " the staging file " + directory_ + '/' + file_name(id));
}

int FileStagingArea::directory_fd() const {
  if (const int fd = fd_.load(std::memory_order_acquire); fd >= 0) return fd;
  auto opened = opened_.lock();
  if (!*opened) {
    UniqueFd fd(::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd && errno == ENOENT) return -1;
    if (!fd) throw system_error(errno, "open the staging directory " + directory_);
    *opened = std::move(fd);
    fd_.store(opened->get(), std::memory_order_release);
  }
  return opened->get();
}

int FileStagingArea::create_directory() {
  if (const int fd = directory_fd(); fd >= 0) return fd;
  if (::mkdir(directory_.c_str(), 0700) == 0)
    parent_unsynced_ = true;
  else if (errno != EEXIST)
    throw system_error(errno, "create the staging directory " + directory_);
  return directory_fd();
}

FileStagingArea::Descriptor FileStagingArea::remember(StagingId id, UniqueFd fd) const {
  auto descriptor = std::make_shared<const UniqueFd>(std::move(fd));
  std::list<Shard::Entry> evicted;  // outlives the guard: closed without the lock
  auto guard = shard(id).lock();
  if (const auto found = guard->index.find(id); found != guard->index.end()) return found->second->second;
  guard->recent.emplace_front(id, descriptor);
  guard->index.emplace(id, guard->recent.begin());
  if (guard->index.size() > shard_capacity_) {
    guard->index.erase(guard->recent.back().first);
    evicted.splice(evicted.end(), guard->recent, std::prev(guard->recent.end()));
  }
  return descriptor;
}

FileStagingArea::Descriptor FileStagingArea::descriptor(StagingId id) const {
  {
    auto guard = shard(id).lock();
    if (const auto found = guard->index.find(id); found != guard->index.end()) {
      guard->recent.splice(guard->recent.begin(), guard->recent, found->second);
      return found->second->second;
    }
  }
  return remember(id, open(id, O_RDWR));
}

UniqueFd FileStagingArea::open(StagingId id, int flags) const {
  const int directory = directory_fd();
  UniqueFd fd(directory < 0 ? -1 : ::openat(directory, file_name(id).c_str(), flags | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) throw failure(directory < 0 ? ENOENT : errno, "open", id);
  return fd;
}

void FileStagingArea::forget(StagingId id) const {
  Descriptor evicted;  // outlives the guard: closed without the lock
  auto guard = shard(id).lock();
  const auto found = guard->index.find(id);
  if (found == guard->index.end()) return;
  evicted = std::move(found->second->second);
  guard->recent.erase(found->second);
  guard->index.erase(found);
}

void FileStagingArea::create(StagingId id) {
  UniqueFd fd(::openat(create_directory(), file_name(id).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) throw failure(errno, "create", id);
  names_unsynced_ = true;
  remember(id, std::move(fd));
}

void FileStagingArea::create_with(StagingId id, std::span<const std::byte> bytes, bool durable) {
  const int directory = create_directory();
  const std::string name = file_name(id);
  const std::string unfinished = name + ".new";
  UniqueFd fd(::openat(directory, unfinished.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd) throw failure(errno, "create", id);
  write_all(fd.get(), id, 0, bytes);
  if (durable && ::fdatasync(fd.get()) != 0) throw failure(errno, "sync", id);
  if (::renameat(directory, unfinished.c_str(), directory, name.c_str()) != 0) throw failure(errno, "create", id);
  names_unsynced_ = true;
  remember(id, std::move(fd));
  if (durable) sync_directory();
}

void FileStagingArea::remove(StagingId id) {
  forget(id);
  const int directory = directory_fd();
  if (directory >= 0 && ::unlinkat(directory, file_name(id).c_str(), 0) != 0 && errno != ENOENT)
    throw failure(errno, "remove", id);
}

std::vector<StagingId> FileStagingArea::list() const {
  std::vector<StagingId> ids;
  DIR* const stream = ::opendir(directory_.c_str());
  if (stream == nullptr) {
    if (errno == ENOENT) return ids;
    throw system_error(errno, "list the staging directory " + directory_);
  }
  const std::unique_ptr<DIR, int (*)(DIR*)> owner(stream, ::closedir);
  while (const dirent* entry = ::readdir(stream))
    if (const auto id = id_of(entry->d_name)) ids.push_back(*id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

session::StagingUsage FileStagingArea::usage(StagingId id) const {
  struct stat status;
  if (::fstat(descriptor(id)->get(), &status) != 0) throw failure(errno, "examine", id);
  return {static_cast<std::uint64_t>(status.st_size),
          static_cast<std::uint64_t>(status.st_blocks),
          {status.st_mtim.tv_sec, static_cast<std::uint32_t>(status.st_mtim.tv_nsec)}};
}

std::size_t FileStagingArea::read(StagingId id, std::uint64_t offset, std::span<std::byte> out) const {
  const Descriptor file = descriptor(id);
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t count =
        ::pread(file->get(), out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw failure(errno, "read", id);
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

void FileStagingArea::write(StagingId id, std::uint64_t offset, std::span<const std::byte> bytes) {
  write_all(descriptor(id)->get(), id, offset, bytes);
}

void FileStagingArea::write_all(int fd, StagingId id, std::uint64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw failure(errno, "write", id);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
}

void FileStagingArea::truncate(StagingId id, std::uint64_t size_bytes) {
  if (::ftruncate(descriptor(id)->get(), static_cast<off_t>(size_bytes)) != 0) throw failure(errno, "resize", id);
}

bool FileStagingArea::try_fallocate(StagingId id, int fd, int mode, std::uint64_t offset, std::uint64_t length) const {
  int result;
  do {
    result = ::fallocate(fd, mode, static_cast<off_t>(offset), static_cast<off_t>(length));
  } while (result != 0 && errno == EINTR);
  if (result == 0) return true;
  if (errno == EOPNOTSUPP) return false;
  throw failure(errno, "allocate space in", id);
}

void FileStagingArea::allocate(StagingId id, std::uint64_t offset, std::uint64_t length, bool extend) {
  if (!try_fallocate(id, descriptor(id)->get(), extend ? 0 : FALLOC_FL_KEEP_SIZE, offset, length))
    throw failure(EOPNOTSUPP, "allocate space in", id);
}

void FileStagingArea::punch_hole(StagingId id, std::uint64_t offset, std::uint64_t length) {
  if (!try_fallocate(id, descriptor(id)->get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, length))
    write_zeroes(id, offset, length);
}

void FileStagingArea::zero_range(StagingId id, std::uint64_t offset, std::uint64_t length, bool extend) {
  const Descriptor file = descriptor(id);
  if (try_fallocate(id, file->get(), FALLOC_FL_ZERO_RANGE | (extend ? 0 : FALLOC_FL_KEEP_SIZE), offset, length))
    return;
  // tmpfs knows no ZERO_RANGE: a hole reads the same.
  punch_hole(id, offset, length);
  if (extend && usage(id).size_bytes < offset + length) truncate(id, offset + length);
}

void FileStagingArea::write_zeroes(StagingId id, std::uint64_t offset, std::uint64_t length) {
  static constexpr std::array<std::byte, 65536> kZeroes{};
  const std::uint64_t size = usage(id).size_bytes;
  if (offset >= size) return;
  const std::uint64_t end = length < size - offset ? offset + length : size;
  for (std::uint64_t position = offset; position < end;) {
    const std::size_t part = std::min<std::uint64_t>(kZeroes.size(), end - position);
    write(id, position, std::span(kZeroes).first(part));
    position += part;
  }
}

std::optional<std::uint64_t> FileStagingArea::seek(StagingId id, std::uint64_t offset, SeekTarget target) const {
  const Descriptor file = descriptor(id);
  const off_t found =
      ::lseek(file->get(), static_cast<off_t>(offset), target == SeekTarget::data ? SEEK_DATA : SEEK_HOLE);
  if (found >= 0) return static_cast<std::uint64_t>(found);
  if (errno == ENXIO) return std::nullopt;
  throw failure(errno, "seek in", id);
}

std::unique_ptr<session::RawFile> FileStagingArea::raw(StagingId id) {
  UniqueFd fd = open(id, O_RDONLY);
  if (try_lease(fd.get()) == Lease::impossible) return nullptr;
  return std::make_unique<OpenStagingFile>(std::move(fd));
}

bool FileStagingArea::has_writers(StagingId id) const {
  forget(id);  // our own descriptor can write
  return try_lease(open(id, O_RDONLY).get()) != Lease::taken;
}

void FileStagingArea::sync(StagingId id) {
  if (::fdatasync(descriptor(id)->get()) != 0) throw failure(errno, "sync", id);
}

void FileStagingArea::sync_directory() {
  if (!names_unsynced_.exchange(false)) return;
  if (::fsync(directory_fd()) != 0) {
    names_unsynced_ = true;
    throw system_error(errno, "sync the staging directory " + directory_);
  }
  if (parent_unsynced_) {
    storage::sync_directory(parent_of(directory_));
    parent_unsynced_ = false;
  }
}

void FileStagingArea::sync_all() {
  const int directory = directory_fd();
  if (directory < 0) return;
  if (::syncfs(directory) != 0) throw system_error(errno, "sync the file system of " + directory_);
  parent_unsynced_ = false;
}

session::StagingArea::FreeSpace FileStagingArea::free_space() const {
  struct statvfs status;
  if (::statvfs(directory_fd() >= 0 ? directory_.c_str() : parent_of(directory_).c_str(), &status) != 0)
    throw system_error(errno, "examine the file system of " + directory_);
  return {status.f_frsize, status.f_blocks, status.f_bfree, status.f_bavail, status.f_files, status.f_ffree};
}

}  // namespace escrow::storage
