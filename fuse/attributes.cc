#include "fuse/attributes.h"

namespace escrow::fuse {
namespace {

constexpr blksize_t kPreferredBlock_bytes = 4096;

timespec timespec_of(const session::Timestamp& time) {
  timespec result{};
  result.tv_sec = time.seconds;
  result.tv_nsec = time.nanoseconds;
  return result;
}

session::Timestamp timestamp_of(const timespec& time) {
  return {time.tv_sec, static_cast<std::uint32_t>(time.tv_nsec)};
}

}  // namespace

double attributes_timeout_s(const session::Attributes& attributes, Data data) {
  if (attributes.volatile_bytes) return 0;
  return data == Data::writeback && S_ISREG(attributes.mode) ? 1 : kForever_s;
}

struct stat stat_of(const session::Attributes& attributes) {
  struct stat result {};
  result.st_ino = attributes.node.value;
  result.st_mode = attributes.mode;
  result.st_nlink = attributes.links;
  result.st_uid = attributes.uid;
  result.st_gid = attributes.gid;
  result.st_rdev = attributes.rdev;
  result.st_size = static_cast<off_t>(attributes.size_bytes);
  result.st_blksize = kPreferredBlock_bytes;
  result.st_blocks = static_cast<blkcnt_t>(attributes.blocks);
  result.st_atim = timespec_of(attributes.accessed);
  result.st_mtim = timespec_of(attributes.modified);
  result.st_ctim = timespec_of(attributes.changed);
  return result;
}

fuse_entry_param entry_of(const session::Attributes& attributes, Data data) {
  fuse_entry_param entry{};
  entry.ino = attributes.node.value;
  entry.attr = stat_of(attributes);
  entry.attr_timeout = attributes_timeout_s(attributes, data);
  entry.entry_timeout = kForever_s;
  return entry;
}

session::AttributeChange change_of(const struct stat& values, int to_set) {
  session::AttributeChange change;
  if (to_set & FUSE_SET_ATTR_MODE) change.mode = values.st_mode & 07777;
  if (to_set & FUSE_SET_ATTR_UID) change.uid = values.st_uid;
  if (to_set & FUSE_SET_ATTR_GID) change.gid = values.st_gid;
  if (to_set & FUSE_SET_ATTR_SIZE) change.size_bytes = static_cast<std::uint64_t>(values.st_size);
  // The kernel sets ATIME beside ATIME_NOW.
  if (to_set & FUSE_SET_ATTR_ATIME_NOW) {
    change.accessed_now = true;
  } else if (to_set & FUSE_SET_ATTR_ATIME) {
    change.accessed = timestamp_of(values.st_atim);
  }
  if (to_set & FUSE_SET_ATTR_MTIME_NOW) {
    change.modified_now = true;
  } else if (to_set & FUSE_SET_ATTR_MTIME) {
    change.modified = timestamp_of(values.st_mtim);
  }
  if (to_set & FUSE_SET_ATTR_CTIME) change.changed = timestamp_of(values.st_ctim);  // only with a write-back cache
  return change;
}

}  // namespace escrow::fuse
