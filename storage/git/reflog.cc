#include "storage/git/reflog.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "storage/disk/durable_file.h"
#include "storage/disk/file_lookup.h"
#include "storage/git/shared_permissions.h"

namespace escrow::storage {
namespace {

using session::ObjectId;

std::string path_of(const std::string& git_directory, const std::string& name) {
  return git_directory + "/logs/" + name;
}

// What a writer that died left without an end would make the next entry unreadable, too.
bool ends_in_a_line(int file, long long size) {
  char last = '\n';
  return size == 0 || ::pread(file, &last, 1, size - 1) != 1 || last == '\n';
}

void sync_names_of(const std::string& path) {
  for (std::string directory = parent_of(path); !directory.ends_with("/logs"); directory = parent_of(directory))
    sync_directory(directory);
}

}  // namespace

Reflog::Reflog(const std::string& git_directory, const std::string& name, std::string entries)
    : path_(path_of(git_directory, name)), entries_(std::move(entries)) {
  const std::string doing = "write the reflog " + path_;
  file_.reset(::open(path_.c_str(), O_RDWR | O_APPEND | O_CLOEXEC));
  if (!file_ && errno == ENOENT) {
    const SharedPermissions permissions = SharedPermissions::of(git_directory);
    permissions.make_directories(git_directory, parent_of(path_));
    file_ = open_or_throw(AT_FDCWD, path_.c_str(), O_RDWR | O_CREAT | O_APPEND, 0666, doing);
    permissions.apply(file_.get(), path_, parent_of(path_));
    is_new_ = true;
  }
  if (!file_) throw system_error(errno, doing);
  size_ = ::lseek(file_.get(), 0, SEEK_END);
  if (size_ < 0) throw system_error(errno, doing);
  if (!ends_in_a_line(file_.get(), size_)) entries_.insert(0, "\n");
  // Where the file system knows no such call, a full disk is met by append().
  const auto length = static_cast<off_t>(entries_.size());
  if (::fallocate(file_.get(), FALLOC_FL_KEEP_SIZE, size_, length) != 0 && (errno == ENOSPC || errno == EDQUOT))
    throw system_error(errno, doing);
}

void Reflog::append() {
  const auto undo_and_throw = [&](int error) {
    // Half an entry would be read as another one. What cannot be undone the next writer ends.
    const bool undone = ::ftruncate(file_.get(), size_) == 0;
    throw system_error(error, (undone ? "write the reflog " : "undo what was written of the reflog ") + path_);
  };
  for (std::string_view rest = entries_; !rest.empty();) {
    const ssize_t count = ::write(file_.get(), rest.data(), rest.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) undo_and_throw(errno);
    rest.remove_prefix(static_cast<std::size_t>(count));
  }
  if (::fsync(file_.get()) != 0) undo_and_throw(errno);
  if (is_new_) sync_names_of(path_);
}

void Reflog::sync_names(const std::string& git_directory, const std::string& name) {
  sync_names_of(path_of(git_directory, name));
}

std::string reflog_entry(const ObjectId& before, const ObjectId& after, const std::string& who, long long time_s,
                         int offset_minutes, const std::string& message) {
  const int offset = std::abs(offset_minutes);
  char when[64];
  std::snprintf(when, sizeof when, "%lld %c%02d%02d", time_s, offset_minutes < 0 ? '-' : '+', offset / 60, offset % 60);
  return before.hex() + " " + after.hex() + " " + who + " " + when + "\t" + message + "\n";
}

// "<before> <after> ...": it was at both. An entry that a push wrote may be the only one to name where a commit of ours
// had taken the branch: we may have died before we said so.
bool reflog_has(const std::string& git_directory, const std::string& name, const ObjectId& commit) {
  const std::string path = path_of(git_directory, name);
  const std::string hex = commit.hex();
  bool found = false;
  for_each_line(path, [&](std::string_view line) {
    found = found || line.substr(0, 40) == hex || (line.size() > 81 && line.substr(41, 40) == hex);
  });
  return found;
}

}  // namespace escrow::storage
