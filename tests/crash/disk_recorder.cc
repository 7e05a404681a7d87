// Serves one file, the image of a disk, and keeps in order what is written to it: a power cut at any instant can be
// made of that afterwards (recorded_disk.py).
//
//   disk_recorder IMAGE RECORD MOUNTPOINT
//
// A file system lies on a loop device over MOUNTPOINT/disk. Linux's loop driver makes a write of the file of each write
// of a block, a hole of each discard, and an fsync of each flush; a block that must be on disk when its write ends
// (REQ_FUA) is followed by a flush, as a loop device says that it cannot do better. No page of the file is cached, so
// what the driver has been told is done is in RECORD. One thread answers: an entry is a single instant.
//
// MOUNTPOINT/position is the number of entries so far: a promise that was made before it was read holds after a cut at
// that place, or a later one. Each entry of RECORD is a Header, then for a write its bytes. The process ends when it is
// unmounted.
#ifndef FUSE_USE_VERSION
#define FUSE_USE_VERSION 314
#endif
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace escrow::test {
namespace {

enum class Kind : std::uint64_t { write = 1, zero = 2, flush = 3 };

struct Header {  // of an entry, in the order of bytes of this machine
  Kind kind;
  std::uint64_t offset, length;
};

constexpr fuse_ino_t kDisk = 2, kPosition = 3;
constexpr double kForEver = 1e9;  // seconds

int checked(int result, const std::string& doing) {
  if (result < 0) throw std::runtime_error(doing + ": " + std::strerror(errno));
  return result;
}

// The state of the one disk of this process; used by one thread.
struct Disk {
  int image = -1, record = -1;
  std::uint64_t position = 0;

  // 0, or an errno: whoever writes to the disk is told, and the record is worth nothing from here on.
  int note(Kind kind, std::uint64_t offset, std::uint64_t length, const char* bytes) {
    Header header{kind, offset, length};
    iovec parts[] = {{&header, sizeof header}, {const_cast<char*>(bytes), bytes == nullptr ? 0 : length}};
    const auto size = static_cast<ssize_t>(parts[0].iov_len + parts[1].iov_len);
    if (::writev(record, parts, 2) != size) return EIO;
    ++position;
    return 0;
  }
};

Disk disk;

struct stat attributes_of(fuse_ino_t node) {
  struct stat status {};
  if (node == kDisk) checked(::fstat(disk.image, &status), "look at the image");
  status.st_ino = node;
  status.st_mode = node == FUSE_ROOT_ID ? S_IFDIR | 0700 : S_IFREG | 0600;
  status.st_nlink = 1;
  return status;
}

void lookup(fuse_req_t request, fuse_ino_t parent, const char* name) {
  const std::string wanted = name;
  fuse_entry_param entry{};
  entry.ino = parent != FUSE_ROOT_ID ? 0 : wanted == "disk" ? kDisk : wanted == "position" ? kPosition : 0;
  if (entry.ino == 0) {
    fuse_reply_err(request, ENOENT);
    return;
  }
  entry.attr = attributes_of(entry.ino);
  entry.attr_timeout = entry.entry_timeout = kForEver;
  fuse_reply_entry(request, &entry);
}

void getattr(fuse_req_t request, fuse_ino_t node, fuse_file_info*) {
  const struct stat status = attributes_of(node);
  fuse_reply_attr(request, &status, kForEver);
}

void open(fuse_req_t request, fuse_ino_t, fuse_file_info* file) {
  file->direct_io = 1;
  fuse_reply_open(request, file);
}

void read(fuse_req_t request, fuse_ino_t node, std::size_t size, off_t offset, fuse_file_info*) {
  if (node == kPosition) {
    const std::string text = std::to_string(disk.position) + '\n';
    const std::size_t begin = std::min(static_cast<std::size_t>(offset), text.size());
    fuse_reply_buf(request, text.data() + begin, std::min(size, text.size() - begin));
    return;
  }
  static std::vector<char> bytes;
  bytes.resize(std::max(bytes.size(), size));
  const ssize_t count = ::pread(disk.image, bytes.data(), size, offset);
  if (count < 0)
    fuse_reply_err(request, errno);
  else
    fuse_reply_buf(request, bytes.data(), static_cast<std::size_t>(count));
}

void write(fuse_req_t request, fuse_ino_t node, const char* bytes, std::size_t size, off_t offset, fuse_file_info*) {
  int error = node == kDisk ? 0 : EACCES;
  if (error == 0 && ::pwrite(disk.image, bytes, size, offset) != static_cast<ssize_t>(size)) error = EIO;
  if (error == 0) error = disk.note(Kind::write, static_cast<std::uint64_t>(offset), size, bytes);
  if (error != 0)
    fuse_reply_err(request, error);
  else
    fuse_reply_write(request, size);
}

// Holes are all that a loop device makes: FALLOC_FL_ZERO_RANGE is answered by zeroes that it writes.
void allocate(fuse_req_t request, fuse_ino_t node, int mode, off_t offset, off_t length, fuse_file_info*) {
  if (node != kDisk || mode != (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)) {
    fuse_reply_err(request, EOPNOTSUPP);
    return;
  }
  int error = ::fallocate(disk.image, mode, offset, length) == 0 ? 0 : errno;
  if (error == 0)
    error = disk.note(Kind::zero, static_cast<std::uint64_t>(offset), static_cast<std::uint64_t>(length), nullptr);
  fuse_reply_err(request, error);
}

void sync(fuse_req_t request, fuse_ino_t node, int, fuse_file_info*) {
  fuse_reply_err(request, node == kDisk ? disk.note(Kind::flush, 0, 0, nullptr) : 0);
}

void serve(const char* image, const char* record, const char* mountpoint, char* program) {
  disk.image = checked(::open(image, O_RDWR | O_CLOEXEC), std::string("open ") + image);
  disk.record = checked(::open(record, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600),
                        std::string("make ") + record);
  // Memory that this process asks for is not had by writing to its own disk. A container may have no right to that
  // (CAP_SYS_RESOURCE); there has to be memory enough, then.
  if (::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) != 0) errno = 0;
  fuse_lowlevel_ops operations{};
  operations.lookup = lookup;
  operations.getattr = getattr;
  operations.open = open;
  operations.read = read;
  operations.write = write;
  operations.fallocate = allocate;
  operations.fsync = sync;
  char* words[] = {program};
  fuse_args arguments = FUSE_ARGS_INIT(1, words);
  fuse_session* session = fuse_session_new(&arguments, &operations, sizeof operations, nullptr);
  fuse_opt_free_args(&arguments);
  if (session == nullptr || fuse_session_mount(session, mountpoint) != 0)
    throw std::runtime_error(std::string("cannot mount ") + mountpoint);
  const int ended = fuse_session_loop(session);
  fuse_session_unmount(session);
  fuse_session_destroy(session);
  if (ended < 0) throw std::runtime_error(std::string("the connection broke: ") + std::strerror(-ended));
}

}  // namespace
}  // namespace escrow::test

int main(int count, char** words) {
  if (count != 4) {
    std::fprintf(stderr, "usage: %s IMAGE RECORD MOUNTPOINT\n", words[0]);
    return 2;
  }
  try {
    escrow::test::serve(words[1], words[2], words[3], words[0]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", words[0], error.what());
    return 1;
  }
}
