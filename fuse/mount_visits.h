// What has to be done in a mount the way any other process would do it, by helper processes of its host: bringing in
// the pages that programs dirtied through mmap, and making the kernel look at what changed behind its back.
//
// Notifications cannot do it: INVAL_INODE waits for pages that are being read or written back, INVAL_ENTRY for the lock
// of the directory, which whoever makes a name there holds while it waits for us; either way a thread of the host would
// wait for the host. Files and directories are reached by handle; where that is not allowed (it takes
// CAP_DAC_READ_SEARCH), by path. Thread-safe. Throws Error{unavailable}. Sources: open_by_handle_at(2), the kernel's
// fuse_flush(), filename_create(), fuse_dentry_revalidate() and fuse_file_fallocate().
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "fuse/helper_process.h"
#include "session/base/ids.h"
#include "session/base/synchronized.h"

namespace escrow::fuse {

// Which processes are helpers of a mount: what they ask for is nobody's but Escrow's own. Thread-safe.
class Helpers {
 public:
  void add(pid_t pid);
  // One that did not come to its end may have left a request behind: it counts for another minute.
  void remove(pid_t pid, bool has_finished);
  bool has(pid_t pid) const noexcept;

 private:
  struct Helper {
    pid_t pid;
    std::chrono::steady_clock::time_point until;
  };
  std::atomic<int> count_ = 0;  // so that asking costs nothing while there is none
  mutable session::Synchronized<std::vector<Helper>> helpers_;
};

// The processors whose ring of io_uring (io_uring.h) is blocked: the ring's thread waits inside a request, so requests
// of programs on that processor get no answer meanwhile. Thread-safe. Source: the kernel's fuse_uring_task_to_queue().
class WaitingRings {
 public:
  // The processor that runs the calling thread; a ring's thread is bound to its own.
  static int of_this_thread();
  void add(int processor) { processors_.lock()->insert(processor); }
  void remove(int processor);
  // Restricts the process to the other processors; without effect when it may run on none of them.
  void keep_off(pid_t pid) const noexcept;

 private:
  mutable session::Synchronized<std::multiset<int>> processors_;
};

enum class Flushed { all, unreachable, late };

struct NameInDirectory {
  session::NodeId directory;
  std::string name;
};

class MountVisits {
 public:
  // Every path of a node below the mount's root; none when it was removed.
  using PathsOf = std::function<std::vector<std::string>(session::NodeId)>;

  // `helpers` and `rings` must outlive it. `device` is the mount's; `mountpoint` only a way to it, which an unmount
  // closes.
  MountVisits(std::string mountpoint, dev_t device, PathsOf paths_of, Helpers& helpers,
              const WaitingRings& rings);

  // unreachable and false: the mount can be entered nowhere, by no path and through no other process's.

  // Every page of `files` that was dirty at the call has been written. Nodes that the kernel does not hold are skipped.
  // late: not all of them within `patience`.
  Flushed flush(const std::vector<session::NodeId>& files, std::chrono::milliseconds patience);
  // The kernel has looked each name up again, wherever it held anything of the directory.
  bool look_up_again(const std::vector<NameInDirectory>& names);
  // The kernel holds no page of the regular file `file` that it read before; dirty ones were written.
  // `before_asking` is called where that takes its size to be asked for twice, with two answers that differ.
  bool drop_pages(session::NodeId file, const std::function<void()>& before_asking);

 private:
  struct Target {
    session::NodeId node;
    std::string path;  // empty for a handle
    std::string name;  // of an entry in it
  };
  enum class Purpose { flush, look_up, drop_pages, ask_twice };
  struct Trouble {
    std::uint32_t index;  // of the target
    std::int32_t error;
  };
  struct Found {
    bool entered = false, handles_refused = false, late = false;
    std::vector<Trouble> troubles;
  };
  struct Outcome {
    bool entered = true, late = false;
    int error = 0;  // of the first target that could not be visited
    session::NodeId node;
  };

  Outcome visit(Purpose purpose, std::vector<Target> targets,
                std::chrono::milliseconds patience = HelperProcess::kForEver);
  Found send_helper(Purpose purpose, bool by_handle, const std::vector<std::string>& entrances,
                    const std::vector<Target>& targets, std::chrono::milliseconds patience);
  std::vector<Target> with_paths(const std::vector<Target>& targets) const;

  const std::string mountpoint_;  // constant
  const dev_t device_;            // constant
  const PathsOf paths_of_;        // constant; may be empty
  Helpers& helpers_;              // self-locking
  const WaitingRings& rings_;     // self-locking
  std::atomic<bool> by_handle_ = true;
};

}  // namespace escrow::fuse
