#include "storage/caches/cache_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "session/base/error.h"
#include "session/base/repo_path.h"
#include "storage/disk/beneath.h"
#include "storage/disk/copy_tree.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/file_lookup.h"
#include "storage/disk/lock_file.h"
#include "storage/disk/remove_tree.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::Error;

constexpr char kTreeOfCache[] = "/tree", kMarks[] = "/marks", kSeveral[] = "/several", kCopies[] = "/copies",
               kOwn[] = "/own", kChanged[] = "/changed", kLockOfCache[] = "/lock", kCopy[] = "copy";
constexpr std::size_t kDeepest = 2048;
constexpr std::uint64_t kBlock_bytes = 512;

std::array<char, 32> descriptor_path(int descriptor) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "/proc/self/fd/%d", descriptor);
  return text;
}

[[noreturn]] void fail(const char* doing, const std::string& path, int error = errno) {
  throw system_error(error, std::string(doing) + " '" + session::quote_path(path) + "' of a cache");
}

UniqueFd open_directory(const std::string& path) {
  return open_or_throw(AT_FDCWD, path.c_str(), O_PATH | O_DIRECTORY, 0, "open a directory of a cache");
}

std::uint64_t number(std::string_view text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// "inode names" a line.
std::unordered_map<std::uint64_t, std::uint64_t> read_several(const std::string& generation) {
  std::unordered_map<std::uint64_t, std::uint64_t> several;
  if (generation.empty()) return several;
  for_each_line(generation + kSeveral, [&](std::string_view line) {
    const std::size_t space = line.find(' ');
    if (space != std::string_view::npos) several.emplace(number(line), number(line.substr(space + 1)));
  });
  return several;
}

std::vector<std::string> names_of(int directory) {
  UniqueFd again(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(again ? ::fdopendir(again.get()) : nullptr, ::closedir);
  if (!stream) fail("list", "a directory");
  again.release();  // the stream's now
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(stream.get())) {
    const std::string_view name(entry->d_name);
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  if (errno != 0) fail("list", "a directory");
  return names;
}

// A directory that its owner cannot look into or change is opened up for a moment.
class Opened {
 public:
  explicit Opened(int directory) : descriptor_(open_beneath(directory, ".", O_RDONLY | O_DIRECTORY)) {
    if (!descriptor_ && errno == EACCES && ::chmod(descriptor_path(directory).data(), S_IRWXU) == 0)
      descriptor_ = open_beneath(directory, ".", O_RDONLY | O_DIRECTORY);
    if (!descriptor_) fail("open", "a directory");
  }
  int get() const { return descriptor_.get(); }

 private:
  UniqueFd descriptor_;
};

}  // namespace

void CacheTree::prepare(const std::string& directory, const std::string& generation) {
  for (const char* name : {kTreeOfCache, kMarks, kSeveral, kCopies}) {
    if (::mkdir((directory + name).c_str(), 0700) != 0 && errno != EEXIST)
      throw system_error(errno, "create a session's directory for a cache");
  }
  if (generation.empty()) return;
  const UniqueFd below =
      open_or_throw(AT_FDCWD, (generation + kTreeOfCache).c_str(), O_RDONLY | O_DIRECTORY, 0, "open what a cache has");
  const UniqueFd here = open_or_throw(AT_FDCWD, (directory + kTreeOfCache).c_str(), O_RDONLY | O_DIRECTORY, 0,
                                      "open a session's directory for a cache");
  copy_directory_attributes(below.get(), here.get());
  struct stat status {};
  if (::fstat(here.get(), &status) != 0) fail("examine", ".");
  const std::string mark = directory + kMarks + '/' + std::to_string(status.st_ino);
  if (::symlink(".", mark.c_str()) != 0 && errno != EEXIST) fail("mark", ".");
}

CacheTree::CacheTree(const std::string& directory, const std::string& generation)
    : here_(open_directory(directory)),
      directory_(descriptor_path(here_.get()).data()),
      marks_(open_directory(directory + kMarks)),
      copies_(open_directory(directory + kCopies)),
      below_(generation.empty() ? UniqueFd() : open_directory(generation + kTreeOfCache)),
      several_below_(read_several(generation)),
      changed_(was_changed(directory)) {
  auto state = state_.lock();
  for_each_line(directory + kOwn, [&](std::string_view line) { state->own.insert(number(line)); });
}

bool CacheTree::was_changed(const std::string& directory) { return is_there(directory + kChanged); }

// ---- filling ----

bool CacheTree::fill(int directory, std::uint64_t inode) {
  const std::string mark = std::to_string(inode);
  std::array<char, PATH_MAX> text;
  if (::faccessat(marks_.get(), mark.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return false;
    fail("find the mark of", "a directory");
  }
  const UniqueFd turn = lock_file(directory_ + kLockOfCache, LockKind::exclusive);
  const ssize_t size = ::readlinkat(marks_.get(), mark.c_str(), text.data(), text.size());
  if (size < 0 && errno == ENOENT) return true;  // another was faster
  if (size < 0) fail("read the mark of", "a directory");
  const std::string path(text.data(), static_cast<std::size_t>(size));
  const UniqueFd below = open_beneath(below_.get(), path.c_str(), O_RDONLY | O_DIRECTORY);
  if (!below) fail("open", path);
  const Opened here(directory);
  struct stat now {};
  if (::fstat(here.get(), &now) != 0) fail("examine", path);
  if ((now.st_mode & S_IRWXU) != S_IRWXU && ::fchmod(here.get(), now.st_mode | S_IRWXU) != 0) fail("open up", path);
  for (const std::string& name : names_of(below.get())) {
    struct stat status {};
    if (::fstatat(below.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) fail("examine", path + '/' + name);
    if (S_ISDIR(status.st_mode)) {
      enter(here.get(), path == "." ? name : path + '/' + name, status, name.c_str());
    } else {
      place(here.get(), below.get(), status, name.c_str());
    }
  }
  copy_directory_attributes(below.get(), here.get());
  if (::unlinkat(marks_.get(), mark.c_str(), 0) != 0) fail("take the mark off", path);
  return true;
}

// A directory that is not looked into yet.
void CacheTree::enter(int here, const std::string& path, const struct stat& status, const char* name) {
  if (::mkdirat(here, name, 0700) != 0 && errno != EEXIST) fail("make", path);
  struct stat made {};
  if (::fstatat(here, name, &made, AT_SYMLINK_NOFOLLOW) != 0) fail("examine", path);
  const timespec times[2] = {status.st_atim, status.st_mtim};
  if ((::geteuid() == 0 && ::fchownat(here, name, status.st_uid, status.st_gid, AT_SYMLINK_NOFOLLOW) != 0) ||
      ::fchmodat(here, name, status.st_mode & 07777, 0) != 0 ||
      ::utimensat(here, name, times, AT_SYMLINK_NOFOLLOW) != 0)
    fail("make", path);
  if (::symlinkat(path.c_str(), marks_.get(), std::to_string(made.st_ino).c_str()) != 0 && errno != EEXIST)
    fail("mark", path);
}

void CacheTree::place(int here, int below, const struct stat& status, const char* name) {
  if (::faccessat(here, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0) return;  // of a time before, that was cut short
  if (const auto several = several_below_.find(status.st_ino); several != several_below_.end()) {
    const std::string names = directory_ + kSeveral + '/' + std::to_string(status.st_ino);
    if (!is_directory(names)) copy_several(below, status, name, names);
    for (const std::string& left : names_in(names))
      if (::renameat(AT_FDCWD, (names + '/' + left).c_str(), here, name) == 0) return;
    fail("name", name, ENOENT);
  }
  if (S_ISREG(status.st_mode)) {
    if (::linkat(below, name, here, name, 0) == 0) return;
    if (errno != EMLINK) fail("link", name);
  }
  const UniqueFd from = open_beneath(below, name, O_PATH);
  if (!from) fail("open", name);
  S_ISREG(status.st_mode) ? copy_file(from.get(), here, name) : copy_special(from.get(), here, name);
}

// All of its names at once, so that its link count is right from the first on.
void CacheTree::copy_several(int below, const struct stat& status, const char* name, const std::string& names) {
  const std::string unfinished = directory_ + kCopies + "/several";
  remove_tree(unfinished);
  if (::mkdir(unfinished.c_str(), 0700) != 0) fail("copy", name);
  const UniqueFd to = open_directory(unfinished), from = open_beneath(below, name, O_PATH);
  if (!from) fail("open", name);
  S_ISREG(status.st_mode) ? copy_file(from.get(), to.get(), "0") : copy_special(from.get(), to.get(), "0");
  struct stat made {};
  if (::fstatat(to.get(), "0", &made, AT_SYMLINK_NOFOLLOW) != 0) fail("examine", name);
  note_own(made.st_ino);
  const std::uint64_t count = several_below_.at(status.st_ino);
  for (std::uint64_t one = 1; one < count; ++one)
    if (::linkat(to.get(), "0", to.get(), std::to_string(one).c_str(), 0) != 0) fail("link", name);
  if (::rename(unfinished.c_str(), names.c_str()) != 0) fail("copy", name);
}

// ---- changing ----

bool CacheTree::is_shared(std::uint64_t inode, std::uint32_t mode, std::uint64_t links) const {
  if (!S_ISREG(mode)) return false;
  const auto state = state_.lock();
  return (links > 1 && !state->own.contains(inode)) || state->hidden.contains(inode);
}

void CacheTree::hide(std::uint64_t inode) { state_.lock()->hidden.insert(inode); }

UniqueFd CacheTree::own_copy(int file, int directory, const std::string& name, bool with_bytes) {
  if (::unlinkat(copies_.get(), kCopy, 0) != 0 && errno != ENOENT) fail("copy", name);
  try {
    copy_file(file, copies_.get(), kCopy, with_bytes);
  } catch (...) {
    ::unlinkat(copies_.get(), kCopy, 0);  // a full disk is not made fuller
    throw;
  }
  UniqueFd copy = open_beneath(copies_.get(), kCopy, O_PATH);
  if (!copy) fail("copy", name);
  if (directory < 0) {
    ::unlinkat(copies_.get(), kCopy, 0);
    return copy;
  }
  struct stat in {};
  if (::fstat(directory, &in) != 0) fail("examine", name);
  if (::renameat(copies_.get(), kCopy, directory, name.c_str()) != 0) fail("copy", name);
  const timespec times[2] = {in.st_atim, in.st_mtim};  // nobody has renamed anything
  if (::utimensat(AT_FDCWD, descriptor_path(directory).data(), times, 0) != 0) fail("copy", name);
  return copy;
}

void CacheTree::note_own(std::uint64_t inode) {
  auto state = state_.lock();
  if (state->own.contains(inode)) return;
  const UniqueFd file = open_or_throw(AT_FDCWD, (directory_ + kOwn).c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600,
                                      "note a file of a cache");
  const std::string line = std::to_string(inode) + '\n';
  if (::write(file.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    throw system_error(errno, "note a file of a cache");
  state->own.insert(inode);
}

void CacheTree::note_changed() {
  if (changed_.load(std::memory_order_relaxed)) return;
  open_or_throw(AT_FDCWD, (directory_ + kChanged).c_str(), O_WRONLY | O_CREAT, 0600, "note the change of a cache");
  changed_.store(true, std::memory_order_relaxed);
}

bool CacheTree::is_changed() const { return changed_; }

// ---- by itself ----

CacheTotals CacheTree::complete() {
  const UniqueFd root = open_directory(directory_ + kTreeOfCache);
  std::unordered_map<std::uint64_t, std::uint64_t> several;
  const CacheTotals totals = total(root.get(), 0, several);
  std::string lines;
  for (const auto& [inode, names] : several) lines += std::to_string(inode) + ' ' + std::to_string(names) + '\n';
  remove_tree(directory_ + kSeveral);
  remove_tree(directory_ + kCopies + "/several");
  put_file(directory_ + kSeveral, directory_ + kCopies + "/several", lines, 0600);
  return totals;
}

CacheTotals CacheTree::total(int directory, std::size_t depth,
                             std::unordered_map<std::uint64_t, std::uint64_t>& several) {
  if (depth > kDeepest)
    throw Error(Errc::bad_request, "it has directories more than " + std::to_string(kDeepest) + " deep");
  struct stat status {};
  if (::fstat(directory, &status) != 0) fail("examine", "a directory");
  fill(directory, status.st_ino);
  const Opened here(directory);
  CacheTotals totals{static_cast<std::uint64_t>(status.st_blocks) * kBlock_bytes, 1};
  for (const std::string& name : names_of(here.get())) {
    struct stat found {};
    if (::fstatat(here.get(), name.c_str(), &found, AT_SYMLINK_NOFOLLOW) != 0) fail("examine", name);
    totals.has_git = totals.has_git || session::git_refuses_name(name);
    if (S_ISDIR(found.st_mode)) {
      const UniqueFd below = open_beneath(here.get(), name.c_str(), O_PATH | O_DIRECTORY);
      if (!below) fail("open", name);
      const CacheTotals more = total(below.get(), depth + 1, several);
      totals.bytes += more.bytes;
      totals.entries += more.entries;
      totals.has_git = totals.has_git || more.has_git;
      continue;
    }
    ++totals.entries;
    const bool has_several = found.st_nlink > 1 && !is_shared(found.st_ino, found.st_mode, found.st_nlink);
    if (has_several && !several.emplace(found.st_ino, found.st_nlink).second) continue;
    totals.bytes += static_cast<std::uint64_t>(found.st_blocks) * kBlock_bytes;
  }
  struct stat after {};
  if (::fstat(here.get(), &after) != 0 ||
      (after.st_mode != status.st_mode && ::fchmod(here.get(), status.st_mode) != 0))
    fail("complete", "a directory");
  return totals;
}

}  // namespace escrow::storage
