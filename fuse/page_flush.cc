#include "fuse/page_flush.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace escrow::fuse {
namespace {

// FILEID_INO64_GEN, the kernel's file handle for FUSE: node id (high, low word) and generation.
constexpr int kHandleType = 0x81;
constexpr unsigned kHandleWords = 3;

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

// close(2) of a FUSE file writes its dirty pages in large pieces and waits for them. False when this process may not
// open files by handle (it takes CAP_DAC_READ_SEARCH).
bool flush_by_closing(int mount, session::NodeId file) {
  alignas(file_handle) unsigned char memory[sizeof(file_handle) + kHandleWords * sizeof(std::uint32_t)];
  auto* const handle = reinterpret_cast<file_handle*>(memory);
  handle->handle_bytes = kHandleWords * sizeof(std::uint32_t);
  handle->handle_type = kHandleType;
  const std::uint32_t words[kHandleWords] = {static_cast<std::uint32_t>(file.value >> 32),
                                             static_cast<std::uint32_t>(file.value), 0};
  std::memcpy(memory + sizeof(file_handle), words, sizeof words);
  const Descriptor opened(open_by_handle_at(mount, handle, O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  // ESTALE: the kernel does not hold it.
  return opened.number() >= 0 || errno == ESTALE;
}

}  // namespace

void flush_pages(fuse_session* session, const std::string& mountpoint, dev_t device,
                 const std::vector<session::NodeId>& files) {
  const Descriptor mount(open(mountpoint.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // The path may lead elsewhere while another mount namespace still shows this file system.
  struct stat status {};
  bool may_open = mount.number() >= 0 && fstat(mount.number(), &status) == 0 && status.st_dev == device;
  for (const session::NodeId file : files) {
    may_open = may_open && flush_by_closing(mount.number(), file);
    // Unmaps the pages and launders the dirty ones, one by one, before it drops them.
    if (!may_open) fuse_lowlevel_notify_inval_inode(session, file.value, 0, 0);
  }
}

}  // namespace escrow::fuse
