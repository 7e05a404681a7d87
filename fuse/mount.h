// One FUSE mount of one FileSystem: mounted and served by its own threads from construction until unmounted.
//
// Thread-safe. How opens and data travel is chosen per mount: see IoMode and SEMANTICS.md. flush(), invalidate_entry()
// and try_unmount() must not be called from a thread that serves requests, and are not. Throws Error{unavailable} when
// the machine does not allow it, Error{bad_request} for the mountpoint. Sources: fuse(4), libfuse's
// fuse_lowlevel.h, the kernel's fs/fuse.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fuse/operation.h"
#include "session/file_system.h"
#include "session/log.h"

namespace escrow::fuse {

// Whether open(2) sends a message. none: ENOSYS is the answer to the first OPEN and OPENDIR, and there is no other.
enum class Opens { none, daemon };
// cached: by the kernel's page cache, written through. passthrough: by the kernel to the staging file, where a file's
// bytes are all in one; else cached. It needs opens to reach the daemon.
enum class Data { cached, passthrough };
struct IoMode {
  Opens opens = Opens::none;
  Data data = Data::cached;
};
const char* name_of(Opens opens);
const char* name_of(Data data);

struct MountOptions {
  std::string mountpoint;       // absolute, an existing directory
  std::string source;           // shown in /proc/mounts, for example "escrow:3f9c..."
  bool allow_other = false;     // users other than the one that mounts may use it (root may always ask for it)
  bool read_only = false;       // the kernel answers EROFS by itself
  bool xattrs = false;          // user.* is served; it costs a message per write(2), see SEMANTICS.md
  bool io_uring = true;         // where the machine allows it (io_uring_support.h)
  IoMode io;
  // Whether the kernel may keep them: not where what may be listed or read depends on a path that can change.
  bool cache_listings = true, cache_links = true;
  unsigned threads = 4;         // that read /dev/fuse, at most: one more whenever none is left to read
  std::vector<std::string> extra_options;  // passed to the kernel as they are, from mount(8) -o
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

  // umount2(2): writes back every dirty page first. False when something still holds the mount (EBUSY).
  bool try_unmount();
  // MNT_DETACH: no new path reaches the mount; what holds it is served until it lets go or this object is destroyed.
  void detach();
  bool is_mounted() const;
  // Whether the kernel has let go of it by then: after unmounting it can still be shown in another mount namespace.
  bool wait_for_end(std::chrono::milliseconds patience) const;
  // Whether requests have come over io_uring.
  bool uses_io_uring() const;

  // Everything the kernel holds dirty (mmap) has been written to the file system on return. `files` are the regular
  // files it may hold (Overlay::held_files()); where opens reach the daemon it is known which of them may be dirty.
  void flush(const std::vector<session::NodeId>& files);

  // The kernel forgets what it cached under these names, and the contents and attributes of these nodes.
  void invalidate_entry(session::NodeId directory, const std::string& name);
  void invalidate_node(session::NodeId node);

  // Requests served so far, by kind, those with a count only.
  std::vector<OperationCount> counts() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace escrow::fuse
