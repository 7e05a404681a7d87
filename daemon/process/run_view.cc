#include "daemon/process/run_view.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "daemon/process/fresh_mountpoint.h"
#include "fuse/place.h"
#include "session/base/error.h"

namespace escrow::daemon {
namespace {

constexpr const char* kSession = "/session";
constexpr unsigned long kNoPrograms = MS_NOSUID | MS_NODEV | MS_NOEXEC;
constexpr std::string_view kWhyAFile =
    "The command of `escrow run --cache` sees its session below this path, and nothing else does. For a container, "
    "name the session's directory with --mountpoint.\n";

// In /tmp another user may have made it.
FileDescriptor make_base(const std::string& base) {
  if (::mkdir(base.c_str(), 0700) != 0 && errno != EEXIST) return {};
  FileDescriptor directory(::open(base.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat about {};
  if (directory && (::fstat(directory.get(), &about) != 0 || about.st_uid != ::geteuid())) directory.reset();
  return directory;
}

// A run in a run finds the directory of the other's view, which is read-only.
bool is_view(const FileDescriptor& base) {
  struct statvfs about {};
  return ::fstatvfs(base.get(), &about) == 0 && (about.f_flag & ST_RDONLY) != 0;
}

bool put_file_in_the_way(const FileDescriptor& base) {
  const char* const name = kSession + 1;
  const FileDescriptor file(::openat(base.get(), name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (file) return ::write(file.get(), kWhyAFile.data(), kWhyAFile.size()) >= 0;
  struct stat about {};
  return ::fstatat(base.get(), name, &about, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(about.st_mode);
}

bool make_namespace() {
  return ::unshare(CLONE_NEWNS) == 0 && ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

bool mount_empty(const std::string& path, unsigned long flags, const char* mode) {
  return ::mount("none", path.c_str(), "tmpfs", kNoPrograms | flags, mode) == 0;
}

// For every user, past the umask.
bool make_directory(const std::string& path) {
  return ::mkdir(path.c_str(), 0755) == 0 && ::chmod(path.c_str(), 0755) == 0;
}

// A directory BASE/session/KEY, in this namespace only, with the mount in it.
bool show_at(const std::string& mountpoint, const std::string& path) {
  const std::string session = path.substr(0, path.rfind('/')), base = session.substr(0, session.rfind('/'));
  return mount_empty(base, 0, "mode=0755") && make_directory(session) && make_directory(path) &&
         ::mount(mountpoint.c_str(), path.c_str(), nullptr, MS_BIND, nullptr) == 0 &&
         ::mount(nullptr, base.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | kNoPrograms, nullptr) == 0;
}

// Where something else is on top of it, or this user may not go, there is nothing to hide.
bool hide(const fuse::MountedPath& session) {
  if (fuse::device_of(session.path) != session.device) return true;
  const bool is_gone = ::umount2(session.path.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0;
  if (mount_empty(session.path, MS_RDONLY, "mode=0555")) return true;
  if (is_gone || errno != ENOTDIR) return is_gone;
  return ::mount("/dev/null", session.path.c_str(), nullptr, MS_BIND, nullptr) == 0;  // one file of a session
}

}  // namespace

std::string FixedPath::base() {
  const uid_t uid = ::geteuid();
  if (uid == 0) return "/run/escrow-runs";
  const std::string directory = base_directory(uid);
  return directory + (directory == "/tmp" ? "/escrow-runs-" + std::to_string(uid) : "/escrow-runs");
}

FixedPath::FixedPath(std::string_view key) {
  lock_ = make_base(base());
  if (!lock_) return;
  ::flock(lock_.get(), LOCK_SH | LOCK_NB);  // if a clean-up holds it at this moment, the directory is too new to go
  if (is_view(lock_) || put_file_in_the_way(lock_)) path_ = base() + kSession + '/' + name_of_key(key);
}

bool may_make_view(MountAccess access) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      if (access != MountAccess::direct) enter_user_namespace();
      ::_exit(make_namespace() && mount_empty("/tmp", 0, "mode=0755") ? 0 : 1);
    } catch (const session::Error&) {
      ::_exit(1);
    }
  }
  int status = -1;
  while (child > 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status == 0;
}

int enter_view(const std::string& mountpoint, const std::string& path) try {
  if (!make_namespace()) return errno;
  const std::vector<fuse::MountedPath> mounted = fuse::mounted_paths();
  if (path != mountpoint && !show_at(mountpoint, path)) return errno;
  // The last one of a place is on top.
  for (auto one = mounted.rbegin(); one != mounted.rend(); ++one) {
    if (one->type == fuse::kMountType && one->path != path && !hide(*one)) return errno;
  }
  return 0;
} catch (const session::Error&) {
  return errno == 0 ? EIO : errno;  // the table of the mounts cannot be read
}

}  // namespace escrow::daemon
