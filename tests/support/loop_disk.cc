#include "tests/support/loop_disk.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

namespace escrow::support {
namespace {

constexpr off_t kDisk_bytes = off_t{320} << 20;                     // XFS wants 300 MiB; the file is sparse
constexpr unsigned long kShutDown = _IOR('X', 125, std::uint32_t);  // FS_IOC_SHUTDOWN
constexpr std::uint32_t kWithoutTheJournal = 2;                     // FS_SHUTDOWN_FLAGS_NOLOGFLUSH

std::string failure_of(const std::string& action) {
  return "cannot " + action + ": " + std::generic_category().message(errno);
}

void check_disk(bool done, const std::string& action) {
  if (!done) throw std::runtime_error(failure_of(action));
}

}  // namespace

LoopDisk::LoopDisk(const std::string& kind) : kind_(kind) {
  const std::string image = directory_.path() + "/image";
  const storage::UniqueFd file(::open(image.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  check_disk(file && ::ftruncate(file.get(), kDisk_bytes) == 0, "make " + image);
  const std::string make = "mkfs." + kind + " -q " + (kind == "ext4" ? "-F " : "-f ") + image + " >/dev/null 2>&1";
  if (std::system(make.c_str()) != 0) throw NoLoopDisk("mkfs." + kind + " is missing or fails");
  check_disk(::mkdir(path_.c_str(), 0700) == 0, "make " + path_);
  enter_private_mounts();
  attach(image);
  try {
    mount();
  } catch (const std::runtime_error& error) {
    throw NoLoopDisk(error.what());
  }
}

LoopDisk::~LoopDisk() {
  for (; !mounts_.empty(); mounts_.pop_back()) ::umount2(mounts_.back().c_str(), MNT_DETACH);
}

LoopDisk::OldMounts::~OldMounts() {
  if (mounts && ::setns(mounts.get(), CLONE_NEWNS) == 0) static_cast<void>(::fchdir(directory.get()) == 0);
}

void LoopDisk::enter_private_mounts() {
  storage::UniqueFd mounts(::open("/proc/thread-self/ns/mnt", O_RDONLY | O_CLOEXEC));
  old_.directory.reset(::open(".", O_PATH | O_CLOEXEC));
  if (!mounts || ::unshare(CLONE_NEWNS) != 0) throw NoLoopDisk(failure_of("make a mount namespace"));
  old_.mounts = std::move(mounts);
  check_disk(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, "make the mounts private");
}

void LoopDisk::attach(const std::string& image) {
  const storage::UniqueFd control(::open("/dev/loop-control", O_RDWR | O_CLOEXEC));
  const storage::UniqueFd file(::open(image.c_str(), O_RDWR | O_CLOEXEC));
  if (!control) throw NoLoopDisk(failure_of("open /dev/loop-control"));
  loop_config wanted{};
  wanted.fd = static_cast<std::uint32_t>(file.get());
  wanted.info.lo_flags = LO_FLAGS_AUTOCLEAR;
  // Another process may take the device that is free first.
  do {
    device_name_ = "/dev/loop" + std::to_string(::ioctl(control.get(), LOOP_CTL_GET_FREE));
    device_.reset(::open(device_name_.c_str(), O_RDWR | O_CLOEXEC));
    if (!device_) throw NoLoopDisk(failure_of("open " + device_name_));
  } while (::ioctl(device_.get(), LOOP_CONFIGURE, &wanted) != 0 && errno == EBUSY);
  loop_info64 about{};
  if (::ioctl(device_.get(), LOOP_GET_STATUS64, &about) != 0) throw NoLoopDisk(failure_of("attach " + device_name_));
}

void LoopDisk::mount_at(const std::string& where, const std::string& what, unsigned long flags) {
  check_disk(::mount(what.c_str(), where.c_str(), kind_.c_str(), flags, nullptr) == 0, "mount " + where);
  if ((flags & MS_REMOUNT) == 0) mounts_.push_back(where);
}

void LoopDisk::unmount() {
  for (; !mounts_.empty(); mounts_.pop_back())
    check_disk(::umount2(mounts_.back().c_str(), 0) == 0, "unmount " + mounts_.back());
}

void LoopDisk::remount(bool read_only) {
  unsigned long flags = MS_REMOUNT;
  if (read_only) flags |= MS_RDONLY;
  mount_at(path_, device_name_, flags);
}

std::string LoopDisk::bind() {
  std::string where = directory_.path() + "/bind" + std::to_string(mounts_.size());
  check_disk(::mkdir(where.c_str(), 0700) == 0, "make " + where);
  mount_at(where, path_, MS_BIND);
  return where;
}

void LoopDisk::shut_down() {
  const storage::UniqueFd file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  std::uint32_t how = kWithoutTheJournal;
  check_disk(file && ::ioctl(file.get(), kShutDown, &how) == 0, "shut down " + path_);
}

}  // namespace escrow::support
