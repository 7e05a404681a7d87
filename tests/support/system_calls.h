// The system calls by which files are changed, one by one: a test acts before each of them, makes it fail, or dies
// there.
//
// A program that links system_calls.cc has its own open(), link(), fsync() and so on in front of the C library's, for
// itself and for its libraries (dlsym(3), RTLD_NEXT). One watcher at a time, for the thread that set it; what the
// watcher itself does is not watched.
#pragma once

#include <functional>
#include <string>

namespace escrow::support {

struct SystemCall {
  int number;        // from 1 on, since the watcher was set
  std::string name;  // "open" (that may create or write), "link", "fsync", ...
  std::string path;  // the one that is changed; of a descriptor, what it is open as
};

// An errno to fail with instead of being called; 0: go on.
using SystemCallWatcher = std::function<int(const SystemCall&)>;

// Watches from construction to destruction.
class WatchedSystemCalls {
 public:
  explicit WatchedSystemCalls(SystemCallWatcher watcher);
  ~WatchedSystemCalls();
  WatchedSystemCalls(const WatchedSystemCalls&) = delete;
  WatchedSystemCalls& operator=(const WatchedSystemCalls&) = delete;
  int count() const;
};

}  // namespace escrow::support
