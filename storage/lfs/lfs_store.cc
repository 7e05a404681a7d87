#include "storage/lfs/lfs_store.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "session/base/error.h"
#include "storage/disk/byte_sources.h"
#include "storage/disk/durable_file.h"
#include "storage/git/git_directory.h"
#include "storage/git/git_error.h"
#include "storage/git/git_handle.h"
#include "storage/lfs/sha256.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::Error;
using session::LfsPointer;

constexpr char kStorageKey[] = "lfs.storage";
constexpr char kNotHere[] = "objects of Git LFS are not for repositories in object storage yet: use a local "
                            "repository; `--lfs off` shows the pointers, and what .gitattributes do not name for Git "
                            "LFS is committed as it is";

std::string read_directory(const std::string& git_directory) {
  const std::string path = git_directory + "/config";
  const GitConfig config = open_config(path);
  git_config_entry* raw = nullptr;
  const int code = git_config_get_entry(&raw, config.get(), kStorageKey);
  const GitConfigEntry entry(raw);
  if (code != GIT_ENOTFOUND) check_git(code, std::string("reading ") + kStorageKey + " in " + path);
  const std::string given = code == GIT_ENOTFOUND || raw->value == nullptr ? "" : raw->value;
  if (given.empty()) return git_directory + "/lfs/objects";
  return (given.front() == '/' ? given : git_directory + "/" + given) + "/objects";
}

bool is_whole(const struct stat& about, const LfsPointer& pointer) {
  return S_ISREG(about.st_mode) && static_cast<std::uint64_t>(about.st_size) == pointer.size_bytes;
}

}  // namespace

std::string LfsStore::directory() const {
  auto known = directory_.lock();
  if (known->empty()) *known = read_directory(git_directory_);
  return *known;
}

std::string LfsStore::path_of(const LfsPointer& pointer) const {
  return directory() + "/" + pointer.oid.substr(0, 2) + "/" + pointer.oid.substr(2, 2) + "/" + pointer.oid;
}

bool LfsStore::has(const LfsPointer& pointer) const {
  struct stat about {};
  return is_here_ && ::stat(path_of(pointer).c_str(), &about) == 0 && is_whole(about, pointer);
}

std::shared_ptr<const session::ByteSource> LfsStore::open(const LfsPointer& pointer) const {
  if (!is_here_) throw Error(Errc::input_output, kNotHere);
  const std::string path = path_of(pointer);
  // Another thing than a file would make opening wait.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const int error = errno;
  if (!fd && error != ENOENT && error != ENOTDIR) throw system_error(error, "read " + path);
  if (!fd) {
    throw Error(Errc::input_output, "the object " + pointer.oid + " of Git LFS is not in " + directory() +
                                        "; `git lfs fetch --all` in the repository brings it, `--lfs off` shows "
                                        "pointers");
  }
  struct stat about {};
  if (::fstat(fd.get(), &about) != 0) throw system_error(errno, "read " + path);
  if (!is_whole(about, pointer)) {
    throw Error(Errc::input_output, "the object " + pointer.oid + " of Git LFS has " + std::to_string(about.st_size) +
                                        " bytes in place of " + std::to_string(pointer.size_bytes) + "; remove " +
                                        path + " and bring it again with `git lfs fetch --all`");
  }
  return std::make_shared<FileBytes>(std::move(fd), pointer.size_bytes, path);
}

void LfsStore::require_here() const {
  if (!is_here_) throw Error(Errc::not_supported, kNotHere);
}

std::optional<std::string> LfsStore::fault_of(const LfsPointer& pointer) const {
  try {
    Sha256 hash;
    for_each_piece(*open(pointer), [&](std::span<const std::byte> bytes) { hash.update(bytes); });
    if (hash.finish() == pointer.oid) return std::nullopt;
    return "its bytes are not those that its name says; remove " + path_of(pointer) +
           " and bring it again with `git lfs fetch --all`";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace escrow::storage
