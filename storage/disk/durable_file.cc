#include "storage/disk/durable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace escrow::storage {

using session::Errc;
using session::Error;

Errc errc_of(int error) noexcept {
  switch (error) {
    case ENOSPC: return Errc::no_space;
    case EDQUOT: return Errc::quota_exceeded;
    case EFBIG: return Errc::file_too_large;
    case EACCES: return Errc::access_denied;
    case EPERM: return Errc::not_permitted;
    case EROFS: return Errc::read_only;
    case EINVAL: return Errc::invalid_argument;
    case EOPNOTSUPP: return Errc::not_supported;
    case ENXIO: return Errc::no_such_offset;
    default: return Errc::input_output;
  }
}

Error system_error(int error, const std::string& doing) {
  const Errc code = errc_of(error);
  std::string message = "cannot " + doing + ": ";
  if (code == Errc::no_space)
    message += "the disk is full; free some space and try again";
  else if (code == Errc::quota_exceeded)
    message += "the disk quota is used up; free some space and try again";
  else
    message += std::strerror(error);
  return Error(code, message);
}

UniqueFd open_or_throw(int directory_fd, const char* path, int flags, unsigned mode, const std::string& doing) {
  int fd;
  do {
    fd = ::openat(directory_fd, path, flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) throw system_error(errno, doing);
  return UniqueFd(fd);
}

void put_file(const std::string& path, const std::string& temporary, std::string_view content, unsigned mode) {
  const std::string doing = "write " + path;
  const auto undo_and_throw = [&](int error) {
    ::unlink(temporary.c_str());
    throw system_error(error, doing);
  };
  {
    const UniqueFd fd = open_or_throw(AT_FDCWD, temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC, mode, doing);
    while (!content.empty()) {
      const ssize_t count = ::write(fd.get(), content.data(), content.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) undo_and_throw(errno);
      content.remove_prefix(static_cast<std::size_t>(count));
    }
    if (::fsync(fd.get()) != 0) undo_and_throw(errno);
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) undo_and_throw(errno);
}

void write_file_durably(const std::string& path, std::string_view content, unsigned mode) {
  put_file(path, path + ".new." + std::to_string(::getpid()), content, mode);
  sync_directory(parent_of(path));
}

std::optional<std::string> read_if_there(const std::string& path, std::uint64_t most_bytes) {
  int descriptor;
  do {
    descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  } while (descriptor < 0 && errno == EINTR);
  const UniqueFd fd(descriptor);
  if (!fd && (errno == ENOENT || errno == ENOTDIR)) return std::nullopt;
  if (!fd) throw system_error(errno, "read " + path);
  std::string content;
  char piece[64 << 10];  // not filled with zeroes first
  while (content.size() < most_bytes) {
    const ssize_t count = ::read(fd.get(), piece, std::min<std::uint64_t>(sizeof piece, most_bytes - content.size()));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error(errno, "read " + path);
    if (count == 0) break;
    content.append(piece, static_cast<std::size_t>(count));
  }
  return content;
}

void write_at(int fd, std::string_view bytes, std::uint64_t offset, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error(errno, "write " + path);
    bytes.remove_prefix(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
}

bool sync_data(int fd) noexcept {
  int result;
  do {
    result = ::fdatasync(fd);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

void sync_directory(const std::string& path) {
  const std::string doing = "sync the directory " + path;
  const UniqueFd fd = open_or_throw(AT_FDCWD, path.c_str(), O_RDONLY | O_DIRECTORY, 0, doing);
  if (::fsync(fd.get()) != 0) throw system_error(errno, doing);
}

void sync_file_system(const std::string& directory) {
  const UniqueFd opened = open_or_throw(AT_FDCWD, directory.c_str(), O_RDONLY | O_DIRECTORY, 0, "open " + directory);
  if (::syncfs(opened.get()) != 0) throw system_error(errno, "sync " + directory);
}

std::string parent_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace escrow::storage
