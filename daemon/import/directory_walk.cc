#include "daemon/import/directory_walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

#include "daemon/console/text_output.h"
#include "daemon/import/file_source.h"
#include "daemon/process/descriptor_limit.h"
#include "session/base/error.h"
#include "session/base/repo_path.h"
#include "session/trees/git_file_rules.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;
using session::GitMode;
using session::OmissionKind;

namespace {

constexpr int kMaxDepth = 1024;

struct CloseDirectory {
  void operator()(DIR* stream) const noexcept { closedir(stream); }
};

[[noreturn]] void refuse_changing(const std::string& path) {
  throw Error(Errc::busy, "cannot import " + session::quote_path(path) +
                              ": it was replaced or removed meanwhile; stop what writes there and try again; nothing "
                              "was changed");
}

[[noreturn]] void refuse_file(const std::string& path, int error) {
  // It was there when its directory was listed, and what it was then.
  if (error == ENOENT || error == ENOTDIR || error == ELOOP) refuse_changing(path);
  const std::string shown = path.empty() ? "the directory" : session::quote_path(path);
  const bool is_denied = error == EACCES || error == EPERM || error == EXDEV;
  const bool is_exhausted = error == EMFILE || error == ENFILE || error == ENOMEM;
  const std::string why = error == EXDEV ? "another file system is mounted there" : std::strerror(error);
  const Errc code = is_denied          ? Errc::access_denied
                    : is_exhausted     ? Errc::unavailable
                    : error == EAGAIN  ? Errc::busy  // somebody has a lease on it (fcntl(2))
                                       : Errc::input_output;
  throw Error(code, "cannot import " + shown + ": " + why + "; nothing was changed");
}

[[noreturn]] void refuse_size(const std::string& path, const std::string& why) {
  const std::string shown = path.empty() ? "the directory" : session::quote_path(path.substr(0, 200));
  throw Error(Errc::bad_request, "cannot import " + shown + ": " + why + "; nothing was changed");
}

// `left` is how many more names there may be.
std::vector<std::string> names_in(const FileDescriptor& directory, const std::string& path, std::uint64_t& left) {
  const int copy = fcntl(directory.get(), F_DUPFD_CLOEXEC, 3);
  const std::unique_ptr<DIR, CloseDirectory> stream(copy >= 0 ? fdopendir(copy) : nullptr);
  if (stream == nullptr) {
    const int error = errno;
    if (copy >= 0) close(copy);
    refuse_file(path, error);
  }
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(stream.get())) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (left-- == 0) refuse_size(path, "there are more entries than can be imported at once");
    names.push_back(name);
  }
  if (errno != 0) refuse_file(path, errno);
  return names;
}

OmissionKind kind_of_special(mode_t mode) {
  if (S_ISSOCK(mode)) return OmissionKind::socket;
  if (S_ISFIFO(mode)) return OmissionKind::fifo;
  return OmissionKind::device;
}

// How much a progress bar will have to show. What cannot be read is not counted.
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

}  // namespace

FileDescriptor open_inside(int directory, const std::string& name, int flags) {
  return FileDescriptor(openat(directory, name.c_str(), flags | O_CLOEXEC));
}

DirectoryWalk::DirectoryWalk(DirectoryVisitor& visitor, const std::string& skipped_directory, Progress progress,
                             OpenInside open, Limits limits, ImportFilter filter)
    : visitor_(visitor),
      progress_(std::move(progress)),
      open_(std::move(open)),
      limits_(limits),
      filter_(std::move(filter)),
      omitted_(limits.omitted_bytes),
      on_read_([this](std::uint64_t position) {
        if (progress_) progress_({.files = result_.size.files, .bytes = result_.size.bytes + position});
      }) {
  struct stat about {};
  if (stat(skipped_directory.c_str(), &about) == 0) skipped_ = {about.st_dev, about.st_ino};
}

WalkedDirectory DirectoryWalk::run(const std::string& directory) {
  FileDescriptor root(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root) refuse_file(directory, errno);
  return run(std::move(root));
}

WalkedDirectory DirectoryWalk::run(FileDescriptor directory) {
  FilteredDirectory filtered(filter_, [&](std::string_view name) { return read_rules_file(directory, "", name); });
  walk(directory, "", 0, filtered);
  result_.omitted = omitted_.take();
  return std::move(result_);
}

void DirectoryWalk::walk(const FileDescriptor& directory, const std::string& path, int depth,
                         FilteredDirectory& filtered) {
  if (depth > kMaxDepth) {
    throw Error(Errc::name_too_long, "cannot import " + session::quote_path(path.substr(0, 200)) +
                                         "...: directories are nested more than 1024 deep");
  }
  for (const std::string& name : names_in(directory, path, limits_.entries)) {
    look_at(directory.get(), name, session::join_path(path, name), depth, filtered);
  }
}

// Git follows no link there, and takes nothing but a regular file.
std::string DirectoryWalk::read_rules_file(const FileDescriptor& directory, const std::string& path,
                                           std::string_view name) {
  const std::string below = session::join_path(path, name);
  FileDescriptor file = open_(directory.get(), std::string(name), O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
  if (!file && (errno == ENOENT || errno == ELOOP || errno == ENXIO)) return {};
  struct stat about {};
  if (!file || fstat(file.get(), &about) != 0) refuse_file(below, errno);
  if (!S_ISREG(about.st_mode)) return {};
  const auto size = static_cast<std::uint64_t>(about.st_size);
  const std::function<void(std::uint64_t)> unseen = [](std::uint64_t) {};
  return read_rules(FileSource(std::move(file), size, below, unseen), name, below);
}

void DirectoryWalk::look_at(int directory, const std::string& name, const std::string& path, int depth,
                            FilteredDirectory& filtered) {
  if (path.size() > limits_.path_bytes) refuse_size(path, "its path is too long");
  if (session::git_refuses_name(name)) return omit(path, OmissionKind::git_name);
  FileDescriptor found = open_(directory, name, O_PATH | O_NOFOLLOW);
  struct stat about {};
  if (!found || fstat(found.get(), &about) != 0) refuse_file(path, errno);
  const bool is_skipped = about.st_dev == skipped_.device && about.st_ino == skipped_.inode;
  const bool is_refused_link = S_ISLNK(about.st_mode) && session::is_gitmodules_name(name);
  if (is_skipped || is_refused_link) return omit(path, OmissionKind::git_name);
  if (const auto why = filtered.why_left_out(name, S_ISDIR(about.st_mode))) return omit(path, *why);
  if (S_ISDIR(about.st_mode)) {
    if (session::is_gitmodules_name(name) || session::is_gitattributes_name(name))
      return omit(path, OmissionKind::git_refused);
    found.reset();  // one descriptor for each level
    return look_into(directory, name, path, depth, filtered);
  }
  if (S_ISLNK(about.st_mode)) return read_link(found, path);
  if (S_ISREG(about.st_mode)) return read_file(directory, name, path, filtered);
  omit(path, kind_of_special(about.st_mode));
}

void DirectoryWalk::look_into(int directory, const std::string& name, const std::string& path, int depth,
                              FilteredDirectory& above) {
  const FileDescriptor child = open_(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!child) refuse_file(path, errno);
  const std::uint64_t files_before = result_.size.files;
  const std::size_t omitted_before = omitted_.size();
  visitor_.enter(path);
  FilteredDirectory filtered(above, name, [&](std::string_view file) { return read_rules_file(child, path, file); });
  walk(child, path, depth + 1, filtered);
  visitor_.leave(path);
  const bool has_nothing = result_.size.files == files_before && omitted_.size() == omitted_before;
  if (has_nothing) omit(path, OmissionKind::empty_directory);
}

void DirectoryWalk::read_file(int directory, const std::string& name, const std::string& path,
                              FilteredDirectory& filtered) {
  // O_NONBLOCK: should it have become a fifo since it was looked at, opening must not wait.
  FileDescriptor file = open_(directory, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
  struct stat about {};
  if (!file || fstat(file.get(), &about) != 0) refuse_file(path, errno);
  if (!S_ISREG(about.st_mode)) refuse_changing(path);
  const auto size = static_cast<std::uint64_t>(about.st_size);
  posix_fadvise(file.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  const FileSource content(std::move(file), size, path, on_read_);
  if (session::git_refuses_file(name, content)) return omit(path, OmissionKind::git_refused);
  const GitMode mode = (about.st_mode & S_IXUSR) != 0 ? GitMode::executable : GitMode::regular;
  if (filtered.is_for_lfs(name)) visitor_.lfs_file(path, mode, content);
  else visitor_.leaf(path, mode, content);
  result_.size.bytes += size;
  ++result_.size.files;
  if (progress_) progress_(result_.size);
}

void DirectoryWalk::read_link(const FileDescriptor& link, const std::string& path) {
  std::string target(4096, '\0');
  const ssize_t length = readlinkat(link.get(), "", target.data(), target.size());
  if (length < 0) refuse_file(path, errno);
  target.resize(static_cast<std::size_t>(length));
  visitor_.leaf(path, GitMode::symlink, StringSource(std::move(target)));
  ++result_.size.files;
}

void DirectoryWalk::omit(const std::string& path, OmissionKind kind) { omitted_.add(path, kind); }

void check_directory(const std::string& directory) {
  struct stat about {};
  if (stat(directory.c_str(), &about) != 0) {
    throw Error(Errc::bad_request, "cannot import " + session::quote_path(directory) + ": " + std::strerror(errno));
  }
  if (!S_ISDIR(about.st_mode)) {
    throw Error(Errc::bad_request, "cannot import " + session::quote_path(directory) + ": it is not a directory");
  }
}

ShownWalk::ShownWalk(std::string directory)
    : directory_(std::move(directory)),
      bar_("Importing"),
      total_(bar_.is_shown() ? measure_directory(directory_) : DirectorySize{}) {}

WalkedDirectory ShownWalk::run(DirectoryVisitor& visitor, const std::string& skipped_directory, ImportFilter filter) {
  allow_many_descriptors();
  const auto show = [this](const DirectorySize& done) {
    bar_.update(done.bytes + done.files, total_.bytes + total_.files,
                plural(done.files, "file") + ", " + human_size(done.bytes));
  };
  DirectoryWalk walk(visitor, skipped_directory, show, open_inside, {}, std::move(filter));
  return walk.run(directory_);
}

}  // namespace escrow::daemon
