#include "storage/staging/file_staging_area.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>

#include "storage/disk/disk_era.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/file_lookup.h"

namespace escrow::storage {

using session::Errc;
using session::Error;
using session::SeekTarget;
using session::StagingId;

namespace {

constexpr unsigned kMode = 0600, kDamagedMode = 0700;
constexpr std::uint64_t kBlockBytes = 512;  // of st_blocks
constexpr std::uint64_t kPageBytes = 4096;
// Ranges of a file that was written in places, apart: more than these are taken together.
constexpr std::size_t kRemembered = 64;

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
    : directory_(std::move(directory)),
      shard_capacity_(std::max<std::size_t>(1, descriptors / kShards)),
      names_(directory_) {}

std::string FileStagingArea::file_name(StagingId id) {
  char name[17];
  std::snprintf(name, sizeof name, "%llx", static_cast<unsigned long long>(id.value));
  return name;
}

std::optional<StagingId> FileStagingArea::id_of(const std::string& file_name) {
  char* end = nullptr;
  const StagingId id{std::strtoull(file_name.c_str(), &end, 16)};
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
    names_.made_directory();
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
  UniqueFd fd = open(id, O_RDWR);
  struct stat status;
  if (::fstat(fd.get(), &status) != 0) throw failure(errno, "examine", id);
  if ((status.st_mode & kDamagedMode) == kDamagedMode) {
    auto files = unsynced(id).lock();
    Unsynced& file = (*files)[id];
    if (!file.is_marked) file.lost.written.add(0, session::ByteRanges::kEnd);
    file.is_marked = true;
  }
  return remember(id, std::move(fd));
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
  UniqueFd fd(::openat(create_directory(), file_name(id).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, kMode));
  if (!fd) throw failure(errno, "create", id);
  names_.made();
  remember(id, std::move(fd));
}

void FileStagingArea::create_with(StagingId id, std::span<const std::byte> bytes, bool durable) {
  const int directory = create_directory();
  const std::string name = file_name(id);
  const std::string unfinished = name + ".new";
  const auto undo = [&](const std::string& made) { ::unlinkat(directory, made.c_str(), 0); };
  UniqueFd fd(::openat(directory, unfinished.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, kMode));
  if (!fd) throw failure(errno, "create", id);
  try {
    write_all(fd.get(), id, 0, bytes);
    if (durable && !sync_data(fd.get())) throw failure(errno, "sync", id);
    if (::renameat(directory, unfinished.c_str(), directory, name.c_str()) != 0) throw failure(errno, "create", id);
  } catch (...) {
    undo(unfinished);
    throw;
  }
  names_.made();
  try {
    if (durable) names_.sync();
  } catch (...) {
    undo(name);
    throw;
  }
  remember(id, std::move(fd));
  if (!durable) end_write(id, Change::written, 0, bytes.size());
}

void FileStagingArea::share(const std::vector<StagingId>& files, const std::string& directory) {
  const int from = directory_fd();
  if (from < 0) return;
  const UniqueFd to = open_or_throw(AT_FDCWD, directory.c_str(), O_RDONLY | O_DIRECTORY, 0, "open " + directory);
  for (const StagingId id : files) {
    const std::string name = file_name(id);
    if (::linkat(from, name.c_str(), to.get(), name.c_str(), 0) != 0 && errno != ENOENT)
      throw failure(errno, "share", id);
  }
}

void FileStagingArea::remove(StagingId id) {
  forget(id);
  unsynced(id).lock()->erase(id);
  const int directory = directory_fd();
  if (directory >= 0 && ::unlinkat(directory, file_name(id).c_str(), 0) != 0 && errno != ENOENT)
    throw failure(errno, "remove", id);
}

std::vector<StagingId> FileStagingArea::list() const {
  std::vector<StagingId> ids;
  for (const std::string& name : names_in(directory_))
    if (const auto id = id_of(name)) ids.push_back(*id);
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
  write(id, Change::written, offset, bytes);
}

void FileStagingArea::write_copy(StagingId id, std::uint64_t offset, std::span<const std::byte> bytes) {
  write(id, Change::copied, offset, bytes);
}

void FileStagingArea::write(StagingId id, Change change, std::uint64_t offset, std::span<const std::byte> bytes) {
  const Descriptor file = descriptor(id);
  begin_write(id, change, offset, offset + bytes.size());
  write_all(file->get(), id, offset, bytes);
  end_write(id, change, offset, offset + bytes.size());
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
  const Descriptor file = descriptor(id);
  if (::ftruncate(file->get(), static_cast<off_t>(size_bytes)) != 0) throw failure(errno, "resize", id);
  note_zeroes(id, size_bytes, session::ByteRanges::kEnd);
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
    return write_zeroes(id, offset, length);
  note_zeroes(id, offset, offset + length);
}

void FileStagingArea::zero_range(StagingId id, std::uint64_t offset, std::uint64_t length, bool extend) {
  const Descriptor file = descriptor(id);
  if (try_fallocate(id, file->get(), FALLOC_FL_ZERO_RANGE | (extend ? 0 : FALLOC_FL_KEEP_SIZE), offset, length))
    return note_zeroes(id, offset, offset + length);
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
  (*unsynced(id).lock())[id].is_exposed = true;
  return std::make_unique<OpenStagingFile>(std::move(fd));
}

bool FileStagingArea::has_writers(StagingId id) const {
  forget(id);  // our own descriptor can write
  return try_lease(open(id, O_RDONLY).get()) != Lease::taken;
}

// ---- durability ----

std::uint64_t FileStagingArea::era() const {
  std::uint64_t era = era_.load();
  if (era == 0) era_ = era = disk_era(parent_of(directory_));
  return era;
}

// The mark is for the next process: this one knows.
void FileStagingArea::mark(StagingId id, Unsynced& file) const noexcept {
  const bool is_damaged = !file.lost.written.empty() || !file.lost.copied.empty();
  if (file.is_marked == is_damaged) return;
  file.is_marked = is_damaged;
  ::fchmodat(directory_fd(), file_name(id).c_str(), is_damaged ? kDamagedMode : kMode, 0);
}

// What is lost is written again. A sync that fails before the bytes are written, too, counts them as lost.
void FileStagingArea::begin_write(StagingId id, Change change, std::uint64_t begin, std::uint64_t end) {
  auto files = unsynced(id).lock();
  Unsynced& file = (*files)[id];
  if (file.is_marked) {
    file.lost.written.subtract(begin, end);
    file.lost.copied.subtract(begin, end);
    mark(id, file);
  }
  file.since.copied.subtract(begin, end);
  (change == Change::copied ? file.since.copied : file.since.written).add(begin, end);
}

// A sync that ended well meanwhile may have begun before.
void FileStagingArea::end_write(StagingId id, Change change, std::uint64_t begin, std::uint64_t end) {
  auto files = unsynced(id).lock();
  Unsynced& file = (*files)[id];
  if (change == Change::copied) return file.since.copied.add(begin, end);
  file.since.written.add(begin, end);
  file.since.written.coarsen(kRemembered);
}

// Of a page that is zeroed in part the rest is written.
void FileStagingArea::note_zeroes(StagingId id, std::uint64_t begin, std::uint64_t end) {
  auto files = unsynced(id).lock();
  const auto found = files->find(id);
  if (found == files->end()) return;
  Unsynced& file = found->second;
  for (Lost* lost : {&file.since, &file.lost}) {
    lost->written.subtract(begin, end);
    lost->copied.subtract(begin, end);
  }
  if (end != session::ByteRanges::kEnd) {
    file.since.written.add(begin, std::min(end, (begin + kPageBytes - 1) / kPageBytes * kPageBytes));
    file.since.written.add(std::max(begin, end / kPageBytes * kPageBytes), end);
  }
  mark(id, file);
}

session::StagingArea::Lost FileStagingArea::lost(StagingId id) const {
  descriptor(id);  // tells of a mark that an earlier process made
  auto files = unsynced(id).lock();
  const auto found = files->find(id);
  return found == files->end() ? Lost{} : found->second.lost;
}

void FileStagingArea::await_sync(session::Synchronized<UnsyncedFiles>::Write& files, StagingId id) {
  sync_ended_.wait(files.lock(), [&] {
    const auto found = files->find(id);
    return found == files->end() || !found->second.is_syncing;
  });
}

void FileStagingArea::begin_sync(StagingId id) {
  auto files = unsynced(id).lock();
  await_sync(files, id);  // one at a time for each file, so that none misses the failure of another
  Unsynced& file = (*files)[id];
  file.is_syncing = true;
  file.under_way = std::exchange(file.since, {});
}

bool FileStagingArea::end_sync(StagingId id, bool failed) noexcept {
  auto files = unsynced(id).lock();
  sync_ended_.notify_all();
  const auto found = files->find(id);
  if (found == files->end()) return true;  // removed meanwhile
  Unsynced& file = found->second;
  file.is_syncing = false;
  const Lost under_way = std::exchange(file.under_way, {});
  if (failed) {
    // The failure may also be of what was written since: nobody will be told of that again.
    for (const Lost* lost : {&under_way, &std::as_const(file.since)}) {
      file.lost.written.add(lost->written);
      file.lost.copied.add(lost->copied);
    }
    const bool is_unknown = file.lost.written.empty() && file.lost.copied.empty();
    if (file.is_exposed || is_unknown) file.lost.written.add(0, session::ByteRanges::kEnd);
    mark(id, file);
  }
  if (file.is_marked) return false;
  if (!file.is_exposed && file.since.written.empty() && file.since.copied.empty()) files->erase(found);
  return true;
}

void FileStagingArea::sync(StagingId id) {
  const Descriptor file = descriptor(id);
  begin_sync(id);
  const int error = sync_data(file->get()) ? 0 : errno;
  const bool is_whole = end_sync(id, error != 0);
  if (error != 0) throw failure(error, "sync", id);
  if (!is_whole)
    throw Error(Errc::input_output, "cannot sync the staging file " + directory_ + '/' + file_name(id) +
                                        ": the disk failed to, earlier, and bytes may be lost; write them again");
  names_.sync();
}

void FileStagingArea::sync_directory() { names_.sync(); }

// A syncfs(2) that fails says nothing of any file, perhaps because of a file that is not ours. The next would succeed,
// though the kernel has dropped what it could not write.
void FileStagingArea::sync_all() {
  const int directory = directory_fd();
  if (directory < 0) return;
  const auto alone = syncing_all_.lock();
  const std::uint64_t names = names_.count();
  std::vector<StagingId> ids, synced_by_others;
  for (auto& shard : unsynced_) {
    auto files = shard.lock();
    for (auto& [id, file] : *files) {
      if (file.is_syncing) {
        synced_by_others.push_back(id);
        continue;
      }
      file.is_syncing = true;
      file.under_way = std::exchange(file.since, {});
      ids.push_back(id);
    }
  }
  int result;
  do {
    result = ::syncfs(directory);
  } while (result != 0 && errno == EINTR);
  for (const StagingId id : synced_by_others) {
    auto files = unsynced(id).lock();
    await_sync(files, id);  // then lost() says what it lost
  }
  if (result == 0) {
    for (const StagingId id : ids) end_sync(id, false);
    return names_.note(names);
  }
  for (const StagingId id : ids) give_up_sync(id);
  std::optional<Error> failure;
  for (const StagingId id : ids) {
    try {
      sync(id);
    } catch (const Error& error) {
      const bool is_there = unsynced(id).lock()->contains(id);  // else it has been removed
      if (is_there && !failure) failure = error;
    }
  }
  if (failure) throw *failure;
  names_.sync();
}

void FileStagingArea::give_up_sync(StagingId id) noexcept {
  auto files = unsynced(id).lock();
  sync_ended_.notify_all();
  const auto found = files->find(id);
  if (found == files->end()) return;
  found->second.is_syncing = false;
  const Lost under_way = std::exchange(found->second.under_way, {});
  found->second.since.written.add(under_way.written);
  found->second.since.copied.add(under_way.copied);
}

// ---- space ----

std::uint64_t FileStagingArea::held_bytes() const {
  std::uint64_t blocks = 0;
  struct stat status;
  for (const StagingId id : list())
    if (::fstatat(directory_fd(), file_name(id).c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0)
      blocks += static_cast<std::uint64_t>(status.st_blocks);
  return blocks * kBlockBytes;
}

session::StagingArea::FreeSpace FileStagingArea::free_space() const {
  struct statvfs status;
  if (::statvfs(directory_fd() >= 0 ? directory_.c_str() : parent_of(directory_).c_str(), &status) != 0)
    throw system_error(errno, "examine the file system of " + directory_);
  return {status.f_frsize, status.f_blocks, status.f_bfree, status.f_bavail, status.f_files, status.f_ffree};
}

}  // namespace escrow::storage
