// A FileSystem that passes every call on to another: what decorators begin with, each overriding what it is about.
// As thread-safe as what it passes calls on to.
#pragma once

#include "session/interfaces/file_system.h"

namespace escrow::session {

class ForwardingFileSystem : public FileSystem {
 public:
  // `inner` must outlive it.
  explicit ForwardingFileSystem(FileSystem& inner) : inner_(inner) {}

  std::optional<Attributes> lookup(NodeId directory, std::string_view name) override {
    return inner_.lookup(directory, name);
  }
  std::optional<Attributes> own_lookup(NodeId directory, std::string_view name) override {
    return inner_.own_lookup(directory, name);
  }
  Attributes attributes(NodeId node) override { return inner_.attributes(node); }
  Attributes change_attributes(NodeId node, const AttributeChange& change) override {
    return inner_.change_attributes(node, change);
  }
  std::string read_link(NodeId node) override { return inner_.read_link(node); }
  Attributes make_node(NodeId directory, std::string_view name, std::uint32_t mode, std::uint32_t rdev,
                       const Caller& caller) override {
    return inner_.make_node(directory, name, mode, rdev, caller);
  }
  Attributes make_symlink(NodeId directory, std::string_view name, std::string_view target,
                          const Caller& caller) override {
    return inner_.make_symlink(directory, name, target, caller);
  }
  Attributes link(NodeId node, NodeId directory, std::string_view name) override {
    return inner_.link(node, directory, name);
  }
  void unlink(NodeId directory, std::string_view name) override { inner_.unlink(directory, name); }
  void remove_directory(NodeId directory, std::string_view name) override { inner_.remove_directory(directory, name); }
  void rename(NodeId directory, std::string_view name, NodeId new_directory, std::string_view new_name,
              RenameMode mode) override {
    inner_.rename(directory, name, new_directory, new_name, mode);
  }
  std::unique_ptr<RawFile> open(NodeId node, OpenIntent intent) override { return inner_.open(node, intent); }
  void close(NodeId node, OpenIntent intent) override { inner_.close(node, intent); }
  std::size_t read(NodeId node, std::uint64_t offset, std::span<std::byte> out) override {
    return inner_.read(node, offset, out);
  }
  void write(NodeId node, std::uint64_t offset, std::span<const std::byte> bytes, WriteOrigin origin) override {
    inner_.write(node, offset, bytes, origin);
  }
  void pages_lost(NodeId node, std::uint64_t offset, std::uint64_t size_bytes) override {
    inner_.pages_lost(node, offset, size_bytes);
  }
  void allocate(NodeId node, AllocateMode mode, std::uint64_t offset, std::uint64_t length) override {
    inner_.allocate(node, mode, offset, length);
  }
  std::optional<std::uint64_t> seek(NodeId node, std::uint64_t offset, SeekTarget target) override {
    return inner_.seek(node, offset, target);
  }
  void sync_file(NodeId node) override { inner_.sync_file(node); }
  void sync_directory(NodeId node) override { inner_.sync_directory(node); }
  void list(NodeId directory, std::uint64_t cookie, const std::function<bool(const Entry&)>& visit) override {
    inner_.list(directory, cookie, visit);
  }
  std::optional<std::string> xattr(NodeId node, std::string_view name) override { return inner_.xattr(node, name); }
  std::vector<std::string> xattr_names(NodeId node) override { return inner_.xattr_names(node); }
  void set_xattr(NodeId node, std::string_view name, std::string_view value, XattrMode mode) override {
    inner_.set_xattr(node, name, value, mode);
  }
  void remove_xattr(NodeId node, std::string_view name) override { inner_.remove_xattr(node, name); }
  StagingArea::FreeSpace free_space() override { return inner_.free_space(); }
  void retain(NodeId node) override { inner_.retain(node); }
  void release(NodeId node) override { inner_.release(node); }

 private:
  FileSystem& inner_;  // constant
};

}  // namespace escrow::session
