// A FileSystem that shows a host directory: what the adapter passes on is what the host's kernel does, so a difference
// between the mount and a plain directory is the adapter's. For tests; one descriptor per node, not for hostile input.
// Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "session/base/synchronized.h"
#include "session/interfaces/file_system.h"

namespace escrow::support {

class HostFileSystem final : public session::FileSystem {
 public:
  explicit HostFileSystem(const std::string& root);
  ~HostFileSystem() override;

  std::optional<session::Attributes> lookup(session::NodeId directory, std::string_view name) override;
  session::Attributes attributes(session::NodeId node) override;
  session::Attributes change_attributes(session::NodeId node, const session::AttributeChange& change) override;
  std::string read_link(session::NodeId node) override;
  session::Attributes make_node(session::NodeId directory, std::string_view name, std::uint32_t mode,
                                std::uint32_t rdev, const session::Caller& caller) override;
  session::Attributes make_symlink(session::NodeId directory, std::string_view name, std::string_view target,
                                   const session::Caller& caller) override;
  session::Attributes link(session::NodeId node, session::NodeId directory, std::string_view name) override;
  void unlink(session::NodeId directory, std::string_view name) override;
  void remove_directory(session::NodeId directory, std::string_view name) override;
  void rename(session::NodeId directory, std::string_view name, session::NodeId new_directory,
              std::string_view new_name, session::RenameMode mode) override;
  std::unique_ptr<session::RawFile> open(session::NodeId, session::OpenIntent) override { return nullptr; }
  void close(session::NodeId, session::OpenIntent) override {}
  std::size_t read(session::NodeId node, std::uint64_t offset, std::span<std::byte> out) override;
  void write(session::NodeId node, std::uint64_t offset, std::span<const std::byte> bytes,
             session::WriteOrigin origin) override;
  void allocate(session::NodeId node, session::AllocateMode mode, std::uint64_t offset,
                std::uint64_t length) override;
  std::optional<std::uint64_t> seek(session::NodeId node, std::uint64_t offset, session::SeekTarget target) override;
  void sync_file(session::NodeId node) override;
  void sync_directory(session::NodeId node) override;
  void list(session::NodeId directory, std::uint64_t cookie,
            const std::function<bool(const Entry&)>& visit) override;
  std::optional<std::string> xattr(session::NodeId node, std::string_view name) override;
  std::vector<std::string> xattr_names(session::NodeId node) override;
  void set_xattr(session::NodeId node, std::string_view name, std::string_view value,
                 session::XattrMode mode) override;
  void remove_xattr(session::NodeId node, std::string_view name) override;
  session::StagingArea::FreeSpace free_space() override;
  void retain(session::NodeId node) override;
  void release(session::NodeId node) override;

  std::vector<session::NodeId> files();
  // Nodes that are retained now.
  std::size_t retained() const;
  std::uint64_t page_cache_writes() const;

 private:
  struct State {
    std::unordered_map<session::NodeId, int> descriptors;  // O_PATH; kept to the end
    std::unordered_map<session::NodeId, int> retained;
    std::uint64_t page_cache_writes = 0;
  };
  int descriptor(session::NodeId node) const;
  std::string path(session::NodeId node) const;
  session::Attributes found(session::NodeId directory, const std::string& name);
  session::Attributes owned(session::NodeId directory, const std::string& name, const session::Caller& caller);
  session::Attributes attributes_of(int number, session::NodeId node) const;

  mutable session::Synchronized<State> state_;  // self-locking
  std::uint64_t root_inode_ = 0;                // constant
};

}  // namespace escrow::support
