#include "storage/lfs/lfs_holding.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "session/base/error.h"
#include "storage/disk/byte_sources.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/file_lookup.h"
#include "storage/disk/make_directories.h"
#include "storage/disk/sparse_writer.h"
#include "storage/git/shared_permissions.h"
#include "storage/lfs/sha256.h"

namespace escrow::storage {
namespace {

using session::LfsPointer;
using session::ObjectId;

constexpr mode_t kMode = 0444;  // as git's own objects: nobody writes to it again

// Removed unless it was kept.
class Temporary {
 public:
  explicit Temporary(std::string path) : path_(std::move(path)) {}
  ~Temporary() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  void keep() { path_.clear(); }

 private:
  std::string path_;
};

// Calls `also` with each piece. Pieces of zeroes become holes.
void write_all(int fd, const session::ByteSource& source, const std::string& path,
               const std::function<void(std::span<const std::byte>)>& also) {
  std::uint64_t offset = 0;
  for_each_piece(source, [&](std::span<const std::byte> bytes) {
    also(bytes);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (!is_all_zero(bytes)) write_at(fd, text, offset, path);
    offset += bytes.size();
  });
  if (::ftruncate(fd, static_cast<off_t>(offset)) != 0) throw system_error(errno, "write " + path);
}

UniqueFd make_file(const std::string& path) {
  return open_or_throw(AT_FDCWD, path.c_str(), O_RDWR | O_CREAT | O_EXCL, kMode, "make " + path);
}

// Above the objects, as far as git-lfs and others make it.
std::string top_of(const LfsStore& store) {
  const std::string objects = store.directory();
  const std::string& git = store.git_directory();
  return objects.starts_with(git + "/") ? git : parent_of(parent_of(objects));
}

}  // namespace

LfsHolding::LfsHolding(const LfsStore& store, std::string directory)
    : store_(store), directory_(std::move(directory)) {}

LfsPointer LfsHolding::write(const session::ByteSource& source, const std::string& path) const {
  const UniqueFd fd = make_file(path);
  Sha256 hash;
  LfsPointer pointer;
  write_all(fd.get(), source, path, [&](std::span<const std::byte> bytes) {
    hash.update(bytes);
    pointer.size_bytes += bytes.size();
  });
  pointer.oid = hash.finish();
  return pointer;
}

LfsPointer LfsHolding::put(const session::ByteSource& source) {
  store_.require_here();
  make_directories(directory_);
  const std::string path = directory_ + "/incoming-" + std::to_string(next_file_++);
  Temporary temporary(path);
  const LfsPointer pointer = write(source, path);
  const std::string own = own_path(pointer);
  if (is_there(own)) return pointer;
  // Linked, it takes no more room; where that cannot be (another file system, another user's) there are two.
  if (has_bytes_of(pointer, path) && ::link(store_.path_of(pointer).c_str(), own.c_str()) == 0) return pointer;
  if (::rename(path.c_str(), own.c_str()) != 0) throw system_error(errno, "make " + own);
  temporary.keep();
  return pointer;
}

// Whether the repository has the object with the right bytes: a damaged one is replaced, not relied on. `own` may be
// another name of it.
bool LfsHolding::has_bytes_of(const LfsPointer& pointer, const std::string& own) const {
  if (!store_.has(pointer)) return false;
  const std::string path = store_.path_of(pointer);
  struct stat mine {}, theirs {};
  if (::stat(own.c_str(), &mine) == 0 && ::stat(path.c_str(), &theirs) == 0 && mine.st_dev == theirs.st_dev &&
      mine.st_ino == theirs.st_ino)
    return true;
  return !store_.fault_of(pointer);
}

void LfsHolding::hold(const ObjectId& blob, const LfsPointer& pointer) { held_.lock()->emplace(blob, pointer); }

std::uint64_t LfsHolding::held_bytes() const {
  const auto held = held_.lock();
  std::uint64_t bytes = 0;
  for (const auto& [blob, pointer] : *held) bytes += pointer.size_bytes;
  return bytes;
}

void LfsHolding::publish(const std::vector<ObjectId>& blobs) {
  std::set<std::string> directories;
  const std::string top = blobs.empty() ? "" : top_of(store_);
  for (const ObjectId& blob : blobs) {
    LfsPointer pointer;
    {
      const auto held = held_.lock();
      const auto found = held->find(blob);
      if (found == held->end()) continue;
      pointer = found->second;
    }
    publish(pointer);
    for (std::string at = parent_of(store_.path_of(pointer)); at.size() >= top.size() && at.size() > 1;
         at = parent_of(at))
      directories.insert(at);
  }
  // Also where others made the names: theirs may not be on disk yet. The deepest first.
  for (auto at = directories.rbegin(); at != directories.rend(); ++at) sync_directory(*at);
}

void LfsHolding::publish(const LfsPointer& pointer) {
  const std::string own = own_path(pointer);
  if (has_bytes_of(pointer, own)) return;
  const std::string path = store_.path_of(pointer), directory = parent_of(path);
  const SharedPermissions permissions = SharedPermissions::of(store_.git_directory());
  permissions.make_directories(top_of(store_), directory);
  const UniqueFd fd = open_or_throw(AT_FDCWD, own.c_str(), O_RDONLY | O_NOFOLLOW, 0, "read " + own);
  permissions.apply(fd.get(), own, directory);
  if (!sync_data(fd.get())) throw system_error(errno, "sync " + own);
  // What has the name and not the bytes is damaged.
  if (is_there(path) && ::unlink(path.c_str()) != 0) throw system_error(errno, "replace " + path);
  if (::link(own.c_str(), path.c_str()) == 0 || errno == EEXIST) return;
  if (errno != EXDEV && errno != EPERM && errno != EMLINK && errno != EOPNOTSUPP)
    throw system_error(errno, "make " + path);
  publish_copy(own, pointer, path);
}

void LfsHolding::publish_copy(const std::string& own, const LfsPointer& pointer, const std::string& path) {
  // The name that git-lfs has for its own, which it removes when they are old.
  const std::string temporaries = parent_of(store_.directory()) + "/tmp";
  const SharedPermissions permissions = SharedPermissions::of(store_.git_directory());
  permissions.make_directories(parent_of(store_.directory()), temporaries);
  const std::string copy = temporaries + "/" + pointer.oid + "-escrow-" + std::to_string(::getpid());
  ::unlink(copy.c_str());
  Temporary temporary(copy);
  const UniqueFd to = make_file(copy);
  UniqueFd from = open_or_throw(AT_FDCWD, own.c_str(), O_RDONLY | O_NOFOLLOW, 0, "read " + own);
  write_all(to.get(), FileBytes(std::move(from), pointer.size_bytes, own), copy, [](std::span<const std::byte>) {});
  permissions.apply(to.get(), copy, parent_of(path));
  if (!sync_data(to.get())) throw system_error(errno, "sync " + copy);
  if (::rename(copy.c_str(), path.c_str()) != 0) throw system_error(errno, "make " + path);
  temporary.keep();
}

}  // namespace escrow::storage
