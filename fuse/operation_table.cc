#include "fuse/operation_table.h"

#include "fuse/operations_attributes.h"
#include "fuse/operations_directory.h"
#include "fuse/operations_file.h"
#include "fuse/operations_lookup.h"
#include "fuse/passthrough.h"
#include "fuse/reply.h"

namespace escrow::fuse {
namespace {

constexpr unsigned kMaxMessage_bytes = 1u << 20;
// How many readaheads and page write-backs may be under way; the kernel's 12 starve four threads.
constexpr unsigned kMaxBackground = 64;

// The kernel's behaviour that the operations rely on. Not among it, on purpose: ATOMIC_O_TRUNC (with opens answered
// ENOSYS an O_TRUNC would be lost), HANDLE_KILLPRIV (the kernel clears set-user-id bits itself), AUTO_INVAL_DATA,
// locks (the kernel keeps them per mount), WRITEBACK_CACHE (it would delay ENOSPC and take over the times).
void init(void* user_data, fuse_conn_info* connection) {
  connection->want = connection->capable &
                     (FUSE_CAP_ASYNC_READ | FUSE_CAP_READDIRPLUS | FUSE_CAP_ASYNC_DIO | FUSE_CAP_NO_OPEN_SUPPORT |
                      FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_CACHE_SYMLINKS | FUSE_CAP_NO_OPENDIR_SUPPORT);
  connection->max_write = kMaxMessage_bytes;
  connection->max_readahead = kMaxMessage_bytes;
  connection->max_background = kMaxBackground;
  connection->congestion_threshold = kMaxBackground * 3 / 4;
  if (static_cast<Service*>(user_data)->io.data == Data::passthrough) ask_for_passthrough(*connection);
}

}  // namespace

fuse_lowlevel_ops operation_table() {
  fuse_lowlevel_ops table{};
  table.init = init;
  table.lookup = lookup;
  table.forget = forget;
  table.forget_multi = forget_multi;
  table.getattr = getattr;
  table.setattr = setattr;
  table.readlink = readlink;
  table.mknod = mknod;
  table.mkdir = mkdir;
  table.unlink = unlink;
  table.rmdir = rmdir;
  table.symlink = symlink;
  table.rename = rename;
  table.link = link;
  table.open = open;
  table.release = release;
  table.read = read;
  table.write = write;
  table.fsync = fsync;
  table.opendir = opendir;
  table.releasedir = releasedir;
  table.readdir = readdir;
  table.readdirplus = readdirplus;
  table.fsyncdir = fsyncdir;
  table.statfs = statfs;
  table.setxattr = setxattr;
  table.getxattr = getxattr;
  table.listxattr = listxattr;
  table.removexattr = removexattr;
  table.create = create;
  table.ioctl = ioctl;
  table.poll = poll;
  table.fallocate = fallocate;
  table.lseek = lseek;
  table.copy_file_range = copy_file_range;
  return table;
}

}  // namespace escrow::fuse
