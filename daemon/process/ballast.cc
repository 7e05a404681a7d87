#include "daemon/process/ballast.h"

#include <fcntl.h>
#include <unistd.h>

#include "daemon/process/file_descriptor.h"

namespace escrow::daemon {

Ballast::Ballast(const std::string& directory) : path_(directory + "/ballast") {
  const FileDescriptor file(::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  // Blocks are allocated, not written.
  if (file && ::fallocate(file.get(), 0, 0, kBallastBytes) == 0) return;
  ::unlink(path_.c_str());
  path_.clear();
}

bool Ballast::release() {
  if (path_.empty()) return false;
  const bool removed = ::unlink(path_.c_str()) == 0;
  path_.clear();
  return removed;
}

}  // namespace escrow::daemon
