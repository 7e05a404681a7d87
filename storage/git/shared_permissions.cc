#include "storage/git/shared_permissions.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <tuple>

#include "session/base/error.h"
#include "session/base/synchronized.h"
#include "storage/disk/durable_file.h"
#include "storage/git/git_error.h"
#include "storage/git/git_handle.h"
#include "storage/git/git_repository_pool.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::Error;

constexpr int kGroup = 0660, kEverybody = 0664;
constexpr char kKey[] = "core.sharedrepository";

// As git_config_perm() in setup.c.
int value_of(const char* text) {
  const std::string value = text == nullptr ? "group" : text;
  if (value == "umask") return 0;
  if (value == "group") return kGroup;
  if (value == "all" || value == "world" || value == "everybody") return kEverybody;
  char* end = nullptr;
  const long number = std::strtol(value.c_str(), &end, 8);
  if (*end != '\0' || value.empty()) {
    int is_true = 0;
    check_git(git_config_parse_bool(&is_true, value.c_str()), std::string("reading ") + kKey,
              Errc::unsupported_repository);
    return is_true != 0 ? kGroup : 0;
  }
  switch (number) {
    case 0: return 0;
    case 1: return kGroup;      // what older versions of git wrote
    case 2: return kEverybody;
    default: break;
  }
  if ((number & 0600) == 0600) return -static_cast<int>(number & 0666);
  throw Error(Errc::unsupported_repository, "the value " + value + " of core.sharedRepository takes the owner's own "
                                            "rights away; use group, all, or a number from 0600 on");
}

int read_value(const std::string& git_directory) {
  git_config* raw = nullptr;
  check_git(git_config_open_default(&raw), "reading git's configuration");
  const GitConfig config(raw);
  const std::string path = git_directory + "/config";
  const int code = git_config_add_file_ondisk(raw, path.c_str(), GIT_CONFIG_LEVEL_LOCAL, nullptr, 0);
  if (code != GIT_ENOTFOUND) check_git(code, "reading " + path);
  git_config_entry* entry = nullptr;
  const int found = git_config_get_entry(&entry, raw, kKey);
  if (found == GIT_ENOTFOUND) return 0;
  check_git(found, "reading " + path);
  const std::string value = entry->value == nullptr ? "group" : entry->value;
  git_config_entry_free(entry);
  return value_of(value.c_str());
}

using Stamp = std::tuple<ino_t, off_t, std::int64_t, std::int64_t>;

Stamp stamp_of(const std::string& path) {
  struct stat status {};
  ::stat(path.c_str(), &status);
  return {status.st_ino, status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

}  // namespace

SharedPermissions SharedPermissions::of(const std::string& git_directory) {
  struct Known {
    Stamp stamp;
    int value = 0;
  };
  static session::Synchronized<std::map<std::string, Known>> all_known;
  start_libgit2();
  const Stamp stamp = stamp_of(git_directory + "/config");
  auto known = all_known.lock();
  const auto [found, is_new] = known->try_emplace(git_directory);
  if (is_new || found->second.stamp != stamp) {
    try {
      found->second = {stamp, read_value(git_directory)};
    } catch (...) {
      known->erase(found);
      throw;
    }
  }
  return SharedPermissions(found->second.value);
}

// calc_shared_perm() in path.c, and for directories what adjust_shared_perm() adds.
mode_t SharedPermissions::mode(mode_t mode) const noexcept {
  if (value_ == 0) return mode;
  auto bits = static_cast<mode_t>(value_ < 0 ? -value_ : value_);
  if ((mode & S_IWUSR) == 0) bits &= ~static_cast<mode_t>(0222);
  if ((mode & S_IXUSR) != 0) bits |= (bits & 0444) >> 2;
  mode_t made = value_ < 0 ? (mode & ~static_cast<mode_t>(0777)) | bits : mode | bits;
  if (S_ISDIR(mode)) made |= ((made & 0444) >> 2) | ((made & 060) != 0 ? S_ISGID : 0);
  return made;
}

void SharedPermissions::apply(const std::string& path) const { apply(path, parent_of(path)); }

void SharedPermissions::apply(const std::string& path, const std::string& directory) const {
  if (value_ == 0) return;
  const UniqueFd fd = open_or_throw(AT_FDCWD, path.c_str(), O_RDONLY | O_NOFOLLOW, 0, "share " + path);
  apply(fd.get(), path, directory);
}

void SharedPermissions::apply(int fd, const std::string& path, const std::string& directory) const {
  if (value_ == 0) return;
  struct stat status {};
  struct stat parent {};
  if (::fstat(fd, &status) != 0) throw system_error(errno, "share " + path);
  // Made in a directory of another group, it may be on its way to this one.
  const bool passes_on = ::stat(directory.c_str(), &parent) == 0 && (parent.st_mode & S_ISGID) != 0;
  if (passes_on && parent.st_gid != status.st_gid && ::fchown(fd, static_cast<uid_t>(-1), parent.st_gid) != 0 &&
      errno != EPERM)
    throw system_error(errno, "share " + path);
  const mode_t wanted = mode(status.st_mode);
  if (wanted == status.st_mode) return;
  if (::fchmod(fd, wanted & ~static_cast<mode_t>(S_IFMT)) != 0) throw system_error(errno, "share " + path);
}

void SharedPermissions::make_directories(const std::string& top, const std::string& path) const {
  if (path.size() <= top.size() || ::access(path.c_str(), F_OK) == 0) return;
  make_directories(top, parent_of(path));
  if (::mkdir(path.c_str(), 0777) == 0) return apply(path);
  if (errno != EEXIST) throw system_error(errno, "make the directory " + path);
}

}  // namespace escrow::storage
