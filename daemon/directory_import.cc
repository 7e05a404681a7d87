#include "daemon/directory_import.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

#include "daemon/file_source.h"
#include "session/error.h"
#include "session/repo_path.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;
using session::GitMode;
using session::ObjectId;
using session::OmissionKind;
using session::TreeEntry;

namespace {

constexpr int kMaxDepth = 1024;

struct CloseDirectory {
  void operator()(DIR* stream) const noexcept { closedir(stream); }
};

[[noreturn]] void refuse(const std::string& path, int error) {
  const std::string shown = path.empty() ? "the directory" : session::quote_path(path);
  const Errc code = error == EACCES || error == EPERM ? Errc::access_denied
                    : error == ENOENT                 ? Errc::not_found
                                                      : Errc::input_output;
  throw Error(code, "cannot import " + shown + ": " + std::strerror(error) + "; nothing was changed");
}

FileDescriptor open_below(int directory, const std::string& name, int flags, const std::string& path) {
  FileDescriptor opened(openat(directory, name.c_str(), flags | O_CLOEXEC | O_NOFOLLOW));
  if (!opened) refuse(path, errno);
  return opened;
}

std::vector<std::string> names_in(const FileDescriptor& directory, const std::string& path) {
  const int copy = fcntl(directory.get(), F_DUPFD_CLOEXEC, 3);
  const std::unique_ptr<DIR, CloseDirectory> stream(copy >= 0 ? fdopendir(copy) : nullptr);
  if (stream == nullptr) {
    const int error = errno;
    if (copy >= 0) close(copy);
    refuse(path, error);
  }
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(stream.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  if (errno != 0) refuse(path, errno);
  return names;
}

OmissionKind kind_of_special(mode_t mode) {
  if (S_ISSOCK(mode)) return OmissionKind::socket;
  if (S_ISFIFO(mode)) return OmissionKind::fifo;
  return OmissionKind::device;
}

}  // namespace

DirectoryImport::DirectoryImport(session::Quarantine& quarantine, const std::string& skipped_directory,
                                 Progress progress)
    : quarantine_(quarantine), progress_(std::move(progress)), on_read_([this](std::uint64_t count) {
        result_.size.bytes += count;
        if (progress_) progress_(result_.size);
      }) {
  struct stat about {};
  if (stat(skipped_directory.c_str(), &about) == 0) skipped_ = {about.st_dev, about.st_ino};
}

ImportedTree DirectoryImport::run(const std::string& directory) {
  FileDescriptor root(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root) refuse(directory, errno);
  result_.tree = import_directory(std::move(root), "", 0);
  return std::move(result_);
}

std::optional<ObjectId> DirectoryImport::import_directory(FileDescriptor directory, const std::string& path,
                                                          int depth) {
  if (depth > kMaxDepth) {
    throw Error(Errc::name_too_long, "cannot import " + session::quote_path(path.substr(0, 200)) +
                                         "...: directories are nested more than 1024 deep");
  }
  session::Tree tree;
  for (const std::string& name : names_in(directory, path)) {
    const std::string below = session::join_path(path, name);
    if (std::optional<TreeEntry> entry = import_entry(directory.get(), name, below, depth)) {
      tree.push_back(*std::move(entry));
    }
  }
  if (tree.empty()) return std::nullopt;
  std::sort(tree.begin(), tree.end(), session::tree_order_less);
  return quarantine_.put_tree(tree);
}

std::optional<TreeEntry> DirectoryImport::import_entry(int directory, const std::string& name, const std::string& path,
                                                       int depth) {
  struct stat about {};
  if (fstatat(directory, name.c_str(), &about, AT_SYMLINK_NOFOLLOW) != 0) refuse(path, errno);
  const bool is_skipped = about.st_dev == skipped_.device && about.st_ino == skipped_.inode;
  const bool is_refused_link = S_ISLNK(about.st_mode) && session::is_gitmodules_name(name);
  if (is_skipped || is_refused_link || session::git_refuses_name(name)) {
    omit(path, OmissionKind::git_name);
    return std::nullopt;
  }
  if (S_ISDIR(about.st_mode)) {
    FileDescriptor child = open_below(directory, name, O_RDONLY | O_DIRECTORY, path);
    const std::size_t omitted_before = result_.omitted.size();
    std::optional<ObjectId> tree = import_directory(std::move(child), path, depth + 1);
    if (tree) return TreeEntry{.name = name, .mode = GitMode::tree, .id = *tree};
    if (result_.omitted.size() == omitted_before) omit(path, OmissionKind::empty_directory);
    return std::nullopt;
  }
  if (S_ISLNK(about.st_mode)) {
    return TreeEntry{.name = name, .mode = GitMode::symlink, .id = import_link(directory, name, path)};
  }
  if (S_ISREG(about.st_mode)) {
    const GitMode mode = (about.st_mode & S_IXUSR) != 0 ? GitMode::executable : GitMode::regular;
    const std::uint64_t size = static_cast<std::uint64_t>(about.st_size);
    return TreeEntry{.name = name, .mode = mode, .id = import_file(directory, name, path, size)};
  }
  omit(path, kind_of_special(about.st_mode));
  return std::nullopt;
}

ObjectId DirectoryImport::import_file(int directory, const std::string& name, const std::string& path,
                                      std::uint64_t size) {
  // O_NONBLOCK: should it have become a fifo since it was looked at, opening must not wait.
  FileDescriptor file = open_below(directory, name, O_RDONLY | O_NONBLOCK, path);
  posix_fadvise(file.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  const ObjectId id = quarantine_.put_blob(FileSource(std::move(file), size, path, on_read_));
  ++result_.size.files;
  if (progress_) progress_(result_.size);
  return id;
}

ObjectId DirectoryImport::import_link(int directory, const std::string& name, const std::string& path) {
  std::string target(4096, '\0');
  const ssize_t length = readlinkat(directory, name.c_str(), target.data(), target.size());
  if (length < 0) refuse(path, errno);
  target.resize(static_cast<std::size_t>(length));
  ++result_.size.files;
  return quarantine_.put_blob(StringSource(std::move(target)));
}

void DirectoryImport::omit(const std::string& path, OmissionKind kind) {
  result_.omitted.push_back({.path = path, .kind = kind});
}

DirectorySize measure_directory(const std::string& directory) {
  namespace fs = std::filesystem;
  DirectorySize size;
  std::error_code failed;
  fs::recursive_directory_iterator at(directory, fs::directory_options::skip_permission_denied, failed), end;
  for (; !failed && at != end; at.increment(failed)) {
    std::error_code ignored;
    if (at->is_symlink(ignored) || !at->is_regular_file(ignored)) continue;
    ++size.files;
    if (const std::uintmax_t bytes = at->file_size(ignored); !ignored) size.bytes += bytes;
  }
  return size;
}

}  // namespace escrow::daemon
