// One file of another entry, as an entry of its own: what is mounted over a path is then a file. Its root is the file.
// As thread-safe as what it passes calls on to, and throws what that throws.
#pragma once

#include <memory>
#include <string_view>

#include "session/decorators/mount_table.h"

namespace escrow::session {

class SingleFile final : public EntryFileSystem {
 public:
  // Throws Error{not_found} unless the root of `files` has the name.
  SingleFile(std::shared_ptr<EntryFileSystem> files, std::string_view name);
  ~SingleFile() override;

  Overlay::Names names(NodeId node) override;
  std::vector<NodeId> held_files() override;
  std::optional<Attributes> lookup(NodeId directory, std::string_view name) override;
  Attributes attributes(NodeId node) override;
  Attributes change_attributes(NodeId node, const AttributeChange& change) override;
  std::string read_link(NodeId node) override;
  Attributes make_node(NodeId directory, std::string_view name, std::uint32_t mode, std::uint32_t rdev,
                       const Caller& caller) override;
  Attributes make_symlink(NodeId directory, std::string_view name, std::string_view target,
                          const Caller& caller) override;
  Attributes link(NodeId node, NodeId directory, std::string_view name) override;
  void unlink(NodeId directory, std::string_view name) override;
  void remove_directory(NodeId directory, std::string_view name) override;
  void rename(NodeId directory, std::string_view name, NodeId new_directory, std::string_view new_name,
              RenameMode mode) override;
  std::unique_ptr<RawFile> open(NodeId node, OpenIntent intent) override;
  void close(NodeId node, OpenIntent intent) override;
  std::size_t read(NodeId node, std::uint64_t offset, std::span<std::byte> out) override;
  void write(NodeId node, std::uint64_t offset, std::span<const std::byte> bytes, WriteOrigin origin) override;
  void allocate(NodeId node, AllocateMode mode, std::uint64_t offset, std::uint64_t length) override;
  std::optional<std::uint64_t> seek(NodeId node, std::uint64_t offset, SeekTarget target) override;
  void sync_file(NodeId node) override;
  void sync_directory(NodeId node) override;
  void list(NodeId directory, std::uint64_t cookie, const std::function<bool(const Entry&)>& visit) override;
  std::optional<std::string> xattr(NodeId node, std::string_view name) override;
  std::vector<std::string> xattr_names(NodeId node) override;
  void set_xattr(NodeId node, std::string_view name, std::string_view value, XattrMode mode) override;
  void remove_xattr(NodeId node, std::string_view name) override;
  StagingArea::FreeSpace free_space() override;
  void retain(NodeId) override {}
  void release(NodeId) override {}

 private:
  const std::shared_ptr<EntryFileSystem> files_;  // constant; self-locking
  const NodeId file_;                             // constant; held
};

}  // namespace escrow::session
