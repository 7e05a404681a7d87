#include "fuse/operation_table.h"

#include <pthread.h>

#include "fuse/io_uring.h"
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
// locks (the kernel keeps them per mount), and, unless it was asked for, WRITEBACK_CACHE (it delays ENOSPC and takes
// over sizes and times).
void init(void* user_data, fuse_conn_info* connection) {
  connection->want = connection->capable &
                     (FUSE_CAP_ASYNC_READ | FUSE_CAP_READDIRPLUS | FUSE_CAP_ASYNC_DIO | FUSE_CAP_NO_OPEN_SUPPORT |
                      FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_CACHE_SYMLINKS | FUSE_CAP_NO_OPENDIR_SUPPORT |
                      io_uring_flag());
  if (!static_cast<Service*>(user_data)->caches_links) connection->want &= ~FUSE_CAP_CACHE_SYMLINKS;
  connection->max_write = kMaxMessage_bytes;
  connection->max_readahead = kMaxMessage_bytes;
  connection->max_background = kMaxBackground;
  connection->congestion_threshold = kMaxBackground * 3 / 4;
  const Data data = static_cast<Service*>(user_data)->io.data;
  if (data == Data::passthrough) ask_for_passthrough(*connection);
  if (data == Data::writeback) connection->want |= connection->capable & FUSE_CAP_WRITEBACK_CACHE;
}

// libfuse ends the threads it makes for io_uring with pthread_cancel(3), also in the middle of an operation. They end
// by themselves between two, so they need not be open to that.
void prepare_thread(fuse_req_t request) {
  thread_local bool is_prepared = false;
  if (is_prepared) return;
  is_prepared = true;
  if (!came_over_io_uring(request)) return;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
  service_of(request).over_io_uring = true;
}

template <auto Function>
struct Served;
template <typename... Arguments, void (*Function)(fuse_req_t, Arguments...)>
struct Served<Function> {
  static void call(fuse_req_t request, Arguments... arguments) {
    prepare_thread(request);
    Function(request, arguments...);
  }
};
template <auto Function>
constexpr auto served = Served<Function>::call;

}  // namespace

fuse_lowlevel_ops operation_table() {
  fuse_lowlevel_ops table{};
  table.init = init;
  table.lookup = served<lookup>;
  table.forget = served<forget>;
  table.forget_multi = served<forget_multi>;
  table.getattr = served<getattr>;
  table.setattr = served<setattr>;
  table.readlink = served<readlink>;
  table.mknod = served<mknod>;
  table.mkdir = served<mkdir>;
  table.unlink = served<unlink>;
  table.rmdir = served<rmdir>;
  table.symlink = served<symlink>;
  table.rename = served<rename>;
  table.link = served<link>;
  table.open = served<open>;
  table.release = served<release>;
  table.read = served<read>;
  table.write = served<write>;
  table.fsync = served<fsync>;
  table.opendir = served<opendir>;
  table.releasedir = served<releasedir>;
  table.readdir = served<readdir>;
  table.readdirplus = served<readdirplus>;
  table.fsyncdir = served<fsyncdir>;
  table.statfs = served<statfs>;
  table.setxattr = served<setxattr>;
  table.getxattr = served<getxattr>;
  table.listxattr = served<listxattr>;
  table.removexattr = served<removexattr>;
  table.create = served<create>;
  table.ioctl = served<ioctl>;
  table.poll = served<poll>;
  table.fallocate = served<fallocate>;
  table.lseek = served<lseek>;
  table.copy_file_range = served<copy_file_range>;
  return table;
}

}  // namespace escrow::fuse
