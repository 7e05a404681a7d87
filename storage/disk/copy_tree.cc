#include "storage/disk/copy_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/limits.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "session/base/repo_path.h"
#include "storage/disk/beneath.h"
#include "storage/disk/copy_budget.h"
#include "storage/disk/durable_file.h"

namespace escrow::storage {

namespace {

constexpr std::uint64_t kCopyAtOnce_bytes = CopyBudget::kSmallCopy_bytes;
constexpr std::uint64_t kBlock_bytes = 512;  // of st_blocks
constexpr off_t kToItsEnd = std::numeric_limits<off_t>::max();

class TreeCopy {
 public:
  // `options` must outlive it.
  TreeCopy(int to_root, const CopyOptions& options)
      : to_root_(to_root), options_(options), budget_(options.most_bytes) {}

  void directory(int from, int to, const std::string& path) {
    const UniqueFd listing = opened([&] { return open_beneath(from, ".", O_RDONLY | O_DIRECTORY); });
    if (!listing) fail(path);
    for (const std::string& name : names_in(listing.get(), path)) {
      const std::string below = path.empty() ? name : path + '/' + name;
      const UniqueFd found = opened([&] { return open_beneath(from, name.c_str(), O_PATH); });
      if (!found && (errno == ENOENT || errno == EXDEV || errno == ELOOP)) continue;  // gone, or another file system
      if (!found) fail(below);
      entry(found.get(), to, name, below);
    }
    struct stat status {};
    if (::fstat(listing.get(), &status) != 0) fail(path);
    attributes(listing.get(), to, status, path);
    finish(to, status, path);
  }

  void file(int from, int to, const std::string& name, const struct stat& status, const std::string& path,
            bool with_bytes = true) {
    const UniqueFd source = opened(
        [&] { return UniqueFd(::open(descriptor_path(from).data(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)); });
    if (!source) fail(path);
    const UniqueFd copy(::openat(to, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!copy) fail(path);
    budget_.check_going_on(path);
    if (with_bytes) {
      const bool is_cloned = ::ioctl(copy.get(), FICLONE, source.get()) == 0;
      is_cloned ? budget_.count(static_cast<std::uint64_t>(status.st_blocks) * kBlock_bytes)
                : bytes(source.get(), copy.get(), path);
    }
    attributes(source.get(), copy.get(), status, path);
    finish(copy.get(), status, path);
  }

  static void special(int from, int to, const std::string& name, const struct stat& status) {
    if (S_ISLNK(status.st_mode)) return link(from, to, name, status, name);
    const timespec times[2] = {status.st_atim, status.st_mtim};
    if (::mknodat(to, name.c_str(), (status.st_mode & S_IFMT) | 0600, 0) != 0 ||
        (::geteuid() == 0 && ::fchownat(to, name.c_str(), status.st_uid, status.st_gid, AT_SYMLINK_NOFOLLOW) != 0) ||
        ::fchmodat(to, name.c_str(), status.st_mode & 07777, 0) != 0 ||
        ::utimensat(to, name.c_str(), times, AT_SYMLINK_NOFOLLOW) != 0)
      fail(name);
  }

  static void directory_attributes(int from, int to, const struct stat& status) {
    attributes(from, to, status, ".");
    finish(to, status, ".");
  }

 private:
  [[noreturn]] static void fail(const std::string& path, int error = errno) {
    throw system_error(error, "copy '" + session::quote_path(path) + "'");
  }

  static std::array<char, 32> descriptor_path(int descriptor) {
    std::array<char, 32> text;
    std::snprintf(text.data(), text.size(), "/proc/self/fd/%d", descriptor);
    return text;
  }

  static std::vector<std::string> names_in(int listing, const std::string& path) {
    UniqueFd again(::fcntl(listing, F_DUPFD_CLOEXEC, 3));
    const std::unique_ptr<DIR, int (*)(DIR*)> stream(again ? ::fdopendir(again.get()) : nullptr, ::closedir);
    if (!stream) fail(path);
    again.release();  // the stream's now
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(stream.get())) {
      const std::string_view name(entry->d_name);
      if (name != "." && name != "..") names.emplace_back(name);
      errno = 0;
    }
    if (errno != 0) fail(path);
    return names;
  }

  void entry(int found, int to, const std::string& name, const std::string& path) {
    struct stat status {};
    if (::fstat(found, &status) != 0) fail(path);
    if (!S_ISDIR(status.st_mode) && status.st_nlink > 1) {
      const auto [known, is_new] = links_.emplace(std::pair(status.st_dev, status.st_ino), path);
      if (!is_new) {
        if (::linkat(to_root_, known->second.c_str(), to, name.c_str(), 0) != 0) fail(path);
        return;
      }
    }
    if (S_ISDIR(status.st_mode)) {
      if (::mkdirat(to, name.c_str(), 0700) != 0) fail(path);
      const UniqueFd made = open_beneath(to, name.c_str(), O_RDONLY | O_DIRECTORY);
      if (!made) fail(path);
      directory(found, made.get(), path);
    } else if (S_ISREG(status.st_mode)) {
      file(found, to, name, status, path);
    } else if (S_ISLNK(status.st_mode)) {
      link(found, to, name, status, path);
    }
  }

  static void link(int found, int to, const std::string& name, const struct stat& status, const std::string& path) {
    std::array<char, PATH_MAX> target;
    const ssize_t size = ::readlinkat(found, "", target.data(), target.size() - 1);
    if (size < 0) fail(path);
    target[static_cast<std::size_t>(size)] = '\0';
    if (::symlinkat(target.data(), to, name.c_str()) != 0) fail(path);
    if (::geteuid() == 0 && ::fchownat(to, name.c_str(), status.st_uid, status.st_gid, AT_SYMLINK_NOFOLLOW) != 0)
      fail(path);
    const timespec times[2] = {status.st_atim, status.st_mtim};
    if (::utimensat(to, name.c_str(), times, AT_SYMLINK_NOFOLLOW) != 0) fail(path);
  }

  void bytes(int from, int to, const std::string& path) {
    struct stat now {};
    if (::fstat(from, &now) != 0) fail(path);
    if (now.st_size == 0) return static_cast<void>(stretch(from, to, 0, kToItsEnd, path));  // procfs says so of any
    off_t end = 0;
    while (const auto data = next_data(from, end, path)) {
      if (::lseek(to, data->first, SEEK_SET) < 0) fail(path);
      end = stretch(from, to, data->first, data->second, path);
      if (end < data->second) return;
    }
    if (::fstat(from, &now) != 0 || (now.st_size > end && ::ftruncate(to, now.st_size) != 0)) fail(path);
  }

  // Where the next data behind `at` begins and ends, with the file's position at its begin; nullopt: there is none.
  static std::optional<std::pair<off_t, off_t>> next_data(int from, off_t at, const std::string& path) {
    const off_t begin = ::lseek(from, at, SEEK_DATA);
    if (begin < 0 && (errno == EINVAL || errno == EOPNOTSUPP)) return std::pair(at, kToItsEnd);  // it cannot say
    const off_t end = begin < 0 ? begin : ::lseek(from, begin, SEEK_HOLE);
    if (end < 0 && errno == ENXIO) return std::nullopt;
    if (end < 0 || ::lseek(from, begin, SEEK_SET) < 0) fail(path);
    return std::pair(begin, end);
  }

  // Where it ended: before `end` where the file does.
  off_t stretch(int from, int to, off_t at, off_t end, const std::string& path) {
    while (at < end) {
      const std::uint64_t piece = std::min(kCopyAtOnce_bytes, static_cast<std::uint64_t>(end - at));
      budget_.check_going_on(path);
      budget_.check_room(to, piece, path);
      const ssize_t sent = ::sendfile(to, from, nullptr, piece);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0) fail(path);
      if (sent == 0) break;
      at += sent;
      budget_.count(static_cast<std::uint64_t>(sent));
    }
    return at;
  }

  static void attributes(int from, int to, const struct stat& status, const std::string& path) {
    if (::geteuid() == 0 && ::fchown(to, status.st_uid, status.st_gid) != 0) fail(path);
    std::string names(XATTR_LIST_MAX, '\0');
    const ssize_t size = ::flistxattr(from, names.data(), names.size());
    if (size <= 0) return;
    names.resize(static_cast<std::size_t>(size));
    for (std::size_t at = 0; at < names.size();) {
      const std::string name(names.c_str() + at);
      at += name.size() + 1;
      if (!name.starts_with("user.")) continue;
      std::string value(XATTR_SIZE_MAX, '\0');
      const ssize_t length = ::fgetxattr(from, name.c_str(), value.data(), value.size());
      if (length >= 0) ::fsetxattr(to, name.c_str(), value.data(), static_cast<std::size_t>(length), 0);
    }
  }

  // Times come last.
  static void finish(int to, const struct stat& status, const std::string& path) {
    const timespec times[2] = {status.st_atim, status.st_mtim};
    if (::fchmod(to, status.st_mode & 07777) != 0 || ::futimens(to, times) != 0) fail(path);
  }

  template <typename Open>
  UniqueFd opened(Open open) const {
    if (!options_.access) return open();
    UniqueFd result;
    options_.access([&] { result = open(); });
    return result;
  }

  const int to_root_;
  const CopyOptions& options_;
  CopyBudget budget_;
  std::map<std::pair<dev_t, ino_t>, std::string> links_;  // the first name of each file that has several
};

}  // namespace

void copy_tree(int from, int to, const CopyOptions& options) {
  const UniqueFd opened = open_beneath(to, ".", O_RDONLY | O_DIRECTORY);
  if (!opened) throw system_error(errno, "open the copy of a directory");
  TreeCopy(opened.get(), options).directory(from, opened.get(), "");
}

namespace {

struct stat status_of_copied(int from, const std::string& name) {
  struct stat status {};
  if (::fstat(from, &status) != 0) throw system_error(errno, "examine '" + session::quote_path(name) + "'");
  return status;
}

}  // namespace

void copy_file(int from, int to_directory, const std::string& name, bool with_bytes, const CopyOptions& options) {
  TreeCopy(to_directory, options).file(from, to_directory, name, status_of_copied(from, name), name, with_bytes);
}

void copy_special(int from, int to_directory, const std::string& name) {
  TreeCopy::special(from, to_directory, name, status_of_copied(from, name));
}

void copy_directory_attributes(int from, int to) {
  TreeCopy::directory_attributes(from, to, status_of_copied(from, "."));
}

}  // namespace escrow::storage
