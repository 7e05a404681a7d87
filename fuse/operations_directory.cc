#include "fuse/operations_directory.h"

#include <cerrno>
#include <vector>

#include "fuse/attributes.h"
#include "fuse/reply.h"
#include "session/base/error.h"

namespace escrow::fuse {
namespace {

using session::FileSystem;
using session::NodeId;

// One reply's worth of a directory. Until it is handed over it owns the lookups that its entries stand for.
class DirectoryPage {
 public:
  DirectoryPage(fuse_req_t request, Service& service, NodeId directory, std::size_t size)
      : request_(request), inodes_(service.inodes), keeps_names_(!service.is_volatile(directory)),
        buffer_(reply_buffer(request, size)) {}
  ~DirectoryPage() {
    for (const NodeId node : looked_up_) inodes_.forget(node, 1);
  }
  DirectoryPage(const DirectoryPage&) = delete;
  DirectoryPage& operator=(const DirectoryPage&) = delete;

  // False when the page is full.
  bool add(const FileSystem::Entry& entry) {
    name_.assign(entry.name);
    struct stat values {};
    values.st_ino = entry.node.value;
    values.st_mode = entry.mode;
    return advance(fuse_add_direntry(request_, tail(), room(), name_.c_str(), &values, offset_of(entry)));
  }

  // The same, with attributes: the entry counts as a lookup of its node, but for "." and "..".
  bool add_with_attributes(FileSystem& file_system, const FileSystem::Entry& entry) {
    name_.assign(entry.name);
    fuse_entry_param values{};
    const bool is_counted = name_ != "." && name_ != ".." && fill(file_system, entry, values);
    if (!is_counted) {
      values.attr.st_ino = entry.node.value;
      values.attr.st_mode = entry.mode;
    }
    const std::size_t needed =
        fuse_add_direntry_plus(request_, tail(), room(), name_.c_str(), &values, offset_of(entry));
    if (needed > room()) return false;
    if (is_counted) {
      looked_up_.push_back(entry.node);
      count_last();
    }
    return advance(needed);
  }

  void send_to(Service& service) {
    const std::vector<NodeId> handed_over = std::move(looked_up_);
    looked_up_.clear();
    send(request_, service, DirectoryReply{buffer_.first(used_), handed_over});
  }

 private:
  // False when the node went away between the listing and here; the name is then listed without attributes.
  bool fill(FileSystem& file_system, const FileSystem::Entry& entry, fuse_entry_param& values) const {
    try {
      values = entry_of(file_system.attributes(entry.node), service_of(request_).io.data);
      if (!keeps_names_) values.entry_timeout = 0;
      return true;
    } catch (const session::Error& error) {
      // A damaged object must not hide its neighbours: stat(2) of that file alone will tell.
      if (error.code() != session::Errc::not_found && error.code() != session::Errc::input_output) throw;
      return false;
    }
  }

  void count_last() {
    try {
      inodes_.looked_up(looked_up_.back());
    } catch (...) {
      looked_up_.pop_back();
      throw;
    }
  }

  static off_t offset_of(const FileSystem::Entry& entry) { return static_cast<off_t>(entry.next_cookie); }
  char* tail() const { return reinterpret_cast<char*>(buffer_.data()) + used_; }
  std::size_t room() const { return buffer_.size() - used_; }
  bool advance(std::size_t needed) {
    if (needed > room()) return false;
    used_ += needed;
    return true;
  }

  fuse_req_t request_;
  InodeTable& inodes_;
  const bool keeps_names_;
  std::span<std::byte> buffer_;
  std::size_t used_ = 0;
  std::string name_;  // libfuse wants a terminated one
  std::vector<NodeId> looked_up_;
};

template <typename Add>
void answer_page(fuse_req_t request, Operation operation, fuse_ino_t directory, std::size_t size, off_t cookie,
                 Add add) noexcept {
  Service& service = service_of(request);
  service.counts.add(operation);
  try {
    DirectoryPage page(request, service, NodeId{directory}, size);
    service.file_system.list(NodeId{directory}, static_cast<std::uint64_t>(cookie),
                             [&](const FileSystem::Entry& entry) { return add(page, entry); });
    page.send_to(service);
  } catch (...) {
    fuse_reply_err(request, errno_of_current_exception(service, operation));
  }
}

}  // namespace

void opendir(fuse_req_t request, fuse_ino_t directory, fuse_file_info*) {
  Service& service = service_of(request);
  if (service.io.listings == Opens::none) {
    service.counts.add(Operation::opendir);
    fuse_reply_err(request, ENOSYS);
    return;
  }
  answer(request, Operation::opendir, [&](FileSystem& file_system) {
    file_system.open(NodeId{directory}, {.list = true, .permitted = is_from_helper(request)});
    return OpenedDirectoryReply{NodeId{directory}};
  });
}

void releasedir(fuse_req_t request, fuse_ino_t directory, fuse_file_info*) {
  answer(request, Operation::releasedir, [&](FileSystem& file_system) {
    file_system.close(NodeId{directory}, {.list = true});
    return Done{};
  });
}

void readdir(fuse_req_t request, fuse_ino_t directory, std::size_t size, off_t cookie, fuse_file_info*) {
  answer_page(request, Operation::readdir, directory, size, cookie,
              [](DirectoryPage& page, const FileSystem::Entry& entry) { return page.add(entry); });
}

void readdirplus(fuse_req_t request, fuse_ino_t directory, std::size_t size, off_t cookie, fuse_file_info*) {
  FileSystem& file_system = service_of(request).file_system;
  answer_page(request, Operation::readdirplus, directory, size, cookie,
              [&](DirectoryPage& page, const FileSystem::Entry& entry) {
                return page.add_with_attributes(file_system, entry);
              });
}

void fsyncdir(fuse_req_t request, fuse_ino_t directory, int, fuse_file_info*) {
  answer(request, Operation::fsyncdir, [&](FileSystem& file_system) {
    file_system.sync_directory(NodeId{directory});
    return Done{};
  });
}

}  // namespace escrow::fuse
