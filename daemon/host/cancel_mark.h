// The file by which a run is cancelled: `cancel` in the directory of the run. It is there as long as the directory, so
// neither a restart of the one who asks nor of the one who is asked loses it, and it is there before anybody is told
// that the run is being cancelled: whatever ends after that is found cancelled.
//
// Thread-safe. Source: inotify(7).
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "daemon/process/file_descriptor.h"

namespace escrow::daemon {

// On disk when it returns. Throws Error.
void mark_cancelled(const std::string& directory);
bool is_marked_cancelled(const std::string& directory);

// Calls `cancelled` once, on a thread of its own, when the mark is there or comes.
class CancelWatch {
 public:
  // Throws Error{unavailable}.
  CancelWatch(const std::string& directory, std::function<void()> cancelled);
  ~CancelWatch();
  CancelWatch(const CancelWatch&) = delete;
  CancelWatch& operator=(const CancelWatch&) = delete;

 private:
  void watch();

  const std::string directory_;            // constant, as all here
  const std::function<void()> cancelled_;
  const FileDescriptor events_;            // of the directory
  const FileDescriptor stop_;
  std::thread thread_;
};

}  // namespace escrow::daemon
