#include "fuse/place.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <string_view>

#include "fuse/helper_process.h"
#include "session/base/error.h"

namespace escrow::fuse {
namespace {

// mountinfo writes space, tab, newline and backslash as three octal digits.
std::string unescaped_mountinfo(const std::string& field) {
  std::string result;
  for (std::size_t i = 0; i < field.size(); ++i) {
    if (field[i] == '\\' && i + 3 < field.size()) {
      result += static_cast<char>(std::stoi(field.substr(i + 1, 3), nullptr, 8));
      i += 3;
    } else {
      result += field[i];
    }
  }
  return result;
}

// Of a call on a mount: ENOTCONN and, while the kernel takes the connection down, ECONNABORTED or, for a request on its
// way over io_uring, ECANCELED.
bool means_dead_host(int error) { return error == ENOTCONN || error == ECONNABORTED || error == ECANCELED; }

// Whole, or empty when there is no such process or it is not ours to look at.
std::string table_of_mounts(const std::string& path) {
  std::string text;
  const int table = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ssize_t size = table < 0 ? -1 : 0;
  char piece[16384];
  while (table >= 0 && ((size = ::read(table, piece, sizeof piece)) > 0 || (size < 0 && errno == EINTR)))
    if (size > 0) text.append(piece, static_cast<std::size_t>(size));
  const int error = size < 0 ? errno : 0;
  if (table >= 0) ::close(table);
  // Whoever took it for empty would mount where another session is mounted.
  if (is_the_machines(error)) {
    throw session::Error(session::Errc::unavailable, "cannot read the table of the mounts, " + path + ": " +
                                                         std::strerror(error) + "; try again");
  }
  return error == 0 ? text : std::string();
}

// ---- System calls only: in a helper nothing else may be done.

bool is_empty_directory(int directory) {
  alignas(dirent64) char buffer[1024];
  const int listing = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (listing < 0) return false;
  bool is_empty = true;
  for (;;) {
    const long size = ::syscall(SYS_getdents64, listing, buffer, sizeof buffer);
    if (size < 0) is_empty = false;
    if (size <= 0) break;
    for (long at = 0; at < size;) {
      const auto* const entry = reinterpret_cast<const dirent64*>(buffer + at);
      is_empty = is_empty && (std::strcmp(entry->d_name, ".") == 0 || std::strcmp(entry->d_name, "..") == 0);
      at += entry->d_reclen;
    }
  }
  const int error = errno;
  ::close(listing);
  errno = error;
  return is_empty;
}

struct Seen {
  std::int32_t error = 0;
  bool has_dead_host = false, is_directory = false, is_empty = false, is_on_fuse = false;
};

Seen see(int place) {
  Seen seen;
  struct statfs space {};
  if (::fstatfs(place, &space) != 0) {
    seen.error = errno;
    seen.has_dead_host = means_dead_host(errno);
    return seen;
  }
  seen.is_on_fuse = space.f_type == FUSE_SUPER_MAGIC;
  struct stat about {};
  if (::fstat(place, &about) != 0) {
    seen.error = errno;
    return seen;
  }
  seen.is_directory = S_ISDIR(about.st_mode);
  errno = 0;
  if (seen.is_directory) seen.is_empty = is_empty_directory(place);
  if (seen.is_directory && !seen.is_empty) seen.error = errno;
  return seen;
}

// What was seen, and after it the path without symbolic links: their size.
using PlaceMessage = char[sizeof(Seen) + PATH_MAX];
std::size_t look(const std::string& path, PlaceMessage& message) {
  std::size_t size = sizeof(Seen);
  Seen seen;
  const int place = ::open(path.c_str(), O_PATH | O_CLOEXEC);
  if (place < 0) {
    seen.error = errno;
    seen.has_dead_host = means_dead_host(errno);
  } else {
    seen = see(place);
    char link[32] = "/proc/self/fd/";  // zeros after it
    std::to_chars(link + std::strlen(link), link + sizeof link - 1, place);
    const ssize_t length = ::readlink(link, message + sizeof seen, sizeof message - sizeof seen);
    if (length < 0 && seen.error == 0) seen.error = errno;
    if (length > 0) size += static_cast<std::size_t>(length);
  }
  std::memcpy(message, &seen, sizeof seen);
  return size;
}

Place place_of(std::string_view message) {
  Place place;
  Seen seen;
  std::memcpy(&seen, message.data(), sizeof seen);
  place.error = seen.error;
  place.has_dead_host = seen.has_dead_host;
  place.is_directory = seen.is_directory;
  place.is_empty = seen.is_empty;
  place.is_on_fuse = seen.is_on_fuse;
  place.path = message.substr(sizeof seen);
  return place;
}

}  // namespace

Place look_at(const std::string& path) {
  HelperProcess helper([&path](const HelperProcess::Report& report) {
    PlaceMessage message;
    report.add(message, look(path, message));
  });
  const auto reported = helper.finish(kPlacePatience);
  if (reported && reported->size() == 1 && reported->front().size() >= sizeof(Seen)) return place_of(reported->front());
  Place place;
  place.answered = false;
  return place;
}

Place look_at_fresh(const std::string& path) {
  PlaceMessage message;
  return place_of({message, look(path, message)});
}

bool is_the_machines(int error) {
  switch (error) {
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOBUFS:
    case EAGAIN:
    case EINTR:
    case EIO:
    case ENOSPC:
    case EDQUOT:
    case ETIMEDOUT: return true;
    default: return false;
  }
}

bool is_dead_mount(const std::string& path, std::chrono::milliseconds patience) {
  HelperProcess helper([&path](const HelperProcess::Report& report) {
    struct statfs space {};
    const std::int32_t error = ::statfs(path.c_str(), &space) == 0 ? 0 : errno;
    report.add(&error, sizeof error);
  });
  const auto reported = helper.finish(patience);
  std::int32_t error = 0;
  if (reported && reported->size() == 1 && reported->front().size() == sizeof error)
    std::memcpy(&error, reported->front().data(), sizeof error);
  return means_dead_host(error);
}

std::optional<dev_t> device_of(const std::string& path) {
  struct statx attributes {};
  if (::statx(AT_FDCWD, path.c_str(), AT_STATX_DONT_SYNC | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, 0, &attributes) != 0)
    return std::nullopt;
  return makedev(attributes.stx_dev_major, attributes.stx_dev_minor);
}

std::vector<MountedPath> mounted_paths(const std::string& table) {
  std::vector<MountedPath> found;
  std::istringstream lines(table_of_mounts(table));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string device, word;
    MountedPath mounted;
    fields >> mounted.id >> mounted.parent >> device >> mounted.root >> mounted.path;
    while (fields >> word && word != "-") {
    }
    fields >> mounted.type >> mounted.source;
    unsigned major_number = 0, minor_number = 0;
    if (std::sscanf(device.c_str(), "%u:%u", &major_number, &minor_number) != 2) continue;
    mounted.device = makedev(major_number, minor_number);
    mounted.root = unescaped_mountinfo(mounted.root);
    mounted.path = unescaped_mountinfo(mounted.path);
    mounted.source = unescaped_mountinfo(mounted.source);
    found.push_back(std::move(mounted));
  }
  return found;
}

}  // namespace escrow::fuse
