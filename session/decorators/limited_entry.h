// Keeps what is written to an entry of the mount table below limits of its own: the call that would go beyond them
// fails with Error{quota_exceeded} (EDQUOT), and everything before it stays as it is.
//
// Both limits are cumulative: what is removed gives nothing back. Bytes are those of each write, also over bytes that
// were written before; the first change to the content of a file of a copy that the session did not make counts what
// the file has, too, because a copy-on-write file system would have to copy it. Growth without bytes (truncate(2),
// fallocate(2)) counts as if they were written. Names are files, directories, links of both kinds. A call that fails
// for another reason gives back what it took. Counted from the mount on. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "session/base/synchronized.h"
#include "session/decorators/mount_table.h"

namespace escrow::session {

// 0: none.
struct EntryLimits {
  std::uint64_t write_bytes = 0, entries = 0;
  bool any() const { return write_bytes != 0 || entries != 0; }
};

class LimitedEntry final : public EntryFileSystem {
 public:
  // `copies`: a change to what is there counts what is there, once.
  LimitedEntry(std::shared_ptr<EntryFileSystem> files, EntryLimits limits, bool copies);
  // The same entry with other files, while `before` may be in use still: both count against the same limits.
  LimitedEntry(std::shared_ptr<EntryFileSystem> files, const LimitedEntry& before);

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
  void retain(NodeId node) override;
  void release(NodeId node) override;

 private:
  struct Used {
    std::uint64_t bytes = 0, names = 0;
  };
  // Throws unless so much more may be taken; gives it back unless it is kept.
  class Taking;
  // Of a change to the content of this file: what it has, if that was not counted.
  std::uint64_t copied_bytes(NodeId node);
  // Changes the content of the file by so many bytes.
  template <typename Change>
  void change_content(NodeId node, std::uint64_t added, Change change);

  const std::shared_ptr<EntryFileSystem> files_;  // constant; self-locking
  const EntryLimits limits_;                      // constant
  const bool copies_;                             // constant
  const std::shared_ptr<Synchronized<Used>> used_;  // a leaf
  Synchronized<std::set<NodeId>> own_;  // files of which nothing has to be copied any more; a leaf
};

}  // namespace escrow::session
