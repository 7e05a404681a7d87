// One FUSE mount of one FileSystem: mounted and served by its own threads from construction until unmounted.
//
// Thread-safe. How opens and data travel is chosen per mount: see IoMode and SEMANTICS.md. flush(), invalidate() and
// try_unmount() must not be called from a thread that serves requests, and are not. None of them waits for an answer of
// the mount: a helper process does (mount_visits.h), so that SIGKILL ends this process at once, whatever it is doing.
// Throws Error{unavailable} when the machine does not allow it, Error{bad_request} for the mountpoint. Sources:
// fuse(4), libfuse's fuse_lowlevel.h, the kernel's fs/fuse.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fuse/mount_visits.h"
#include "fuse/operation.h"
#include "session/base/log.h"
#include "session/interfaces/file_system.h"

namespace escrow::fuse {

// Whether open(2) sends a message. none: ENOSYS is the answer to the first OPEN (of a directory, OPENDIR), and there is
// no other.
enum class Opens { none, daemon };
// cached: by the kernel's page cache, written through. writeback: by the page cache, which has the last word on sizes
// and times and writes back at close(2), fsync(2) and when it sees fit; nobody else may change a file's size meanwhile.
// passthrough: by the kernel to the staging file, where a file's bytes are all in one; else cached. It needs opens to
// reach the daemon.
enum class Data { cached, writeback, passthrough };
struct IoMode {
  Opens opens = Opens::none;  // of files
  Data data = Data::cached;
  Opens listings = opens;     // opens of directories
};
const char* name_of(Opens opens);
const char* name_of(Data data);

struct MountOptions {
  std::string mountpoint;       // absolute, an existing directory
  bool is_fresh_mountpoint = false;  // this process has just made it, and has no other mount
  std::string source;           // shown in /proc/mounts, for example "escrow:3f9c..."
  bool allow_other = false;     // users other than the one that mounts may use it (root may always ask for it)
  mode_t root_mask = 0;         // permission bits that its root directory shows to nobody
  bool read_only = false;       // the kernel answers EROFS by itself
  bool xattrs = false;          // user.* is served; it costs a message per write(2), see SEMANTICS.md
  bool io_uring = true;         // where the machine allows it (io_uring_support.h)
  IoMode io;
  // Whether the kernel may keep them: not where what may be listed or read depends on a path that can change.
  bool cache_listings = true, cache_links = true;
  unsigned threads = 4;         // that read /dev/fuse, at most: one more whenever none is left to read
  std::vector<std::string> extra_options;  // passed to the kernel as they are, from mount(8) -o
  MountVisits::PathsOf paths_of;  // for processes that may not open files by handle
  // Of a node that changes without a call here: the kernel asks for its names and attributes each time, and drops its
  // pages when it is opened. Such nodes need opens and listings that reach the daemon. Empty: there are none.
  std::function<bool(session::NodeId)> is_volatile;
};

struct OperationCount {
  std::string name;
  std::uint64_t count;
  OperationTimes times;
};

class Mount {
 public:
  // `file_system` must outlive the mount. `on_unmounted` is called once, from a thread of the mount, when the kernel
  // has let go of it, whoever unmounted it.
  Mount(session::FileSystem& file_system, const MountOptions& options, session::Log& log,
        std::function<void()> on_unmounted = {});
  // Detaches it if it is still mounted, and waits for the threads.
  ~Mount();

  // umount2(2): writes back every dirty page first, unless another mount namespace has a copy of the mount, which is
  // served until it goes or this object is destroyed. False when something here still holds the mount (EBUSY).
  bool try_unmount();
  // MNT_DETACH: no new path reaches the mount; what holds it is served until it lets go or this object is destroyed.
  void detach();
  bool is_mounted() const;  // or a copy of it, in another mount namespace
  // try_unmount() has unmounted it. Not of one that the kernel let go of because somebody else unmounted it.
  bool is_unmounted() const;
  // Whether the kernel has let go of it by then: after unmounting it can still be shown in another mount namespace.
  bool wait_for_end(std::chrono::milliseconds patience) const;
  dev_t device() const;  // of all files in it, as stat(2) says
  IoMode io() const;
  // Whether requests have come over io_uring.
  bool uses_io_uring() const;

  // Everything the kernel holds dirty (mmap) has been written to the file system on return. `files` are the regular
  // files it may hold (Overlay::held_files()); where opens reach the daemon it is known which of them may be dirty.
  // unreachable: the mount is gone from every place that this process can see, with whoever could have mapped anything.
  // late: not done within `patience`, as far as it goes.
  Flushed flush(const std::vector<session::NodeId>& files,
                std::chrono::milliseconds patience = HelperProcess::kForEver);

  // A request is going to wait until what this returns is gone: so long another thread than the options say may read
  // requests, among them those that the wait may depend on. Not beyond a few hundred of them.
  std::shared_ptr<void> begin_to_wait();

  // The kernel looks these names up again, and lists their directories anew.
  void invalidate(const std::vector<NameInDirectory>& names);
  // It forgets the attributes and pages of a regular file; dirty pages are written first.
  void invalidate_file(session::NodeId file);

  // Whether it was asked for anything since it was mounted. The first look at its root counts: the kernel has to ask.
  bool was_used() const;

  // WRITE requests so far.
  std::uint64_t writes() const;
  // Requests served so far, by kind, those with a count only.
  std::vector<OperationCount> counts() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace escrow::fuse
