#include "storage/disk/remove_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>

#include "session/base/error.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/unique_fd.h"

namespace escrow::storage {
namespace {

class Removal {
 public:
  // What `directory` has under this name.
  void remove(int directory, const std::string& name, const std::string& path) {
    if (::unlinkat(directory, name.c_str(), 0) == 0) {
      removed_ = true;
      return;
    }
    // A program may have taken the permissions of its own directories away.
    if (errno == EACCES && ::fchmod(directory, S_IRWXU) == 0 && ::unlinkat(directory, name.c_str(), 0) == 0) {
      removed_ = true;
      return;
    }
    // EPERM is POSIX's answer for a directory, and also that of a file which may not be removed.
    if (errno == ENOENT) return;
    const int error = errno;
    if (error != EISDIR && error != EPERM) return note(path, error);
    constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    UniqueFd below(::openat(directory, name.c_str(), kFlags));
    if (!below && errno == EACCES && ::fchmodat(directory, name.c_str(), S_IRWXU, 0) == 0)
      below.reset(::openat(directory, name.c_str(), kFlags));
    if (!below && errno == ENOENT) return;
    if (!below) return note(path, errno == ENOTDIR ? error : errno);
    remove_inside(std::move(below), path, {});
    if (::unlinkat(directory, name.c_str(), AT_REMOVEDIR) == 0) removed_ = true;
    else if (errno != ENOENT) note(path, errno);
  }

  void remove_inside(UniqueFd directory, const std::string& path, const std::vector<std::string_view>& but_for) {
    const int descriptor = directory.get();
    const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(descriptor), ::closedir);
    if (!stream) return note(path, errno);
    directory.release();  // the stream's now
    // First the names: what is removed while a directory is read may hide others.
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(stream.get())) {
      const std::string_view name(entry->d_name);
      if (name != "." && name != ".." && std::find(but_for.begin(), but_for.end(), name) == but_for.end())
        names.emplace_back(name);
      errno = 0;
    }
    if (errno != 0) note(path, errno);
    for (const std::string& name : names) remove(descriptor, name, path + '/' + name);
  }

  bool finish() const {
    if (failed_) throw *failed_;
    return removed_;
  }

  void note(const std::string& path, int error) {
    if (!failed_) failed_ = system_error(error, "remove " + path);
  }

 private:
  bool removed_ = false;
  std::optional<session::Error> failed_;  // the first
};

}  // namespace

bool remove_tree(const std::string& path) {
  Removal removal;
  removal.remove(AT_FDCWD, path, path);
  return removal.finish();
}

bool remove_inside(const std::string& directory, const std::vector<std::string_view>& but_for) {
  Removal removal;
  UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd) removal.remove_inside(std::move(fd), directory, but_for);
  else if (errno != ENOENT) removal.note(directory, errno);
  return removal.finish();
}

}  // namespace escrow::storage
