// An entry of the mount table on which every call is made with the rights of a user (user_rights.h), not with those of
// this process: what the user may not read or change on the host, a session does not either. As thread-safe as what
// it passes calls on to, and throws what that throws.
#pragma once

#include <memory>
#include <utility>

#include "daemon/process/command_spec.h"
#include "session/decorators/mount_table.h"

namespace escrow::daemon {

class EntryRights final : public session::EntryFileSystem {
 public:
  EntryRights(std::shared_ptr<session::EntryFileSystem> files, CommandSpec::Identity user)
      : files_(std::move(files)), user_(std::move(user)) {}

  session::Overlay::Names names(session::NodeId node) override;
  std::vector<session::NodeId> held_files() override;
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
  std::unique_ptr<session::RawFile> open(session::NodeId node, session::OpenIntent intent) override;
  void close(session::NodeId node, session::OpenIntent intent) override;
  std::size_t read(session::NodeId node, std::uint64_t offset, std::span<std::byte> out) override;
  void write(session::NodeId node, std::uint64_t offset, std::span<const std::byte> bytes,
             session::WriteOrigin origin) override;
  void allocate(session::NodeId node, session::AllocateMode mode, std::uint64_t offset, std::uint64_t length) override;
  std::optional<std::uint64_t> seek(session::NodeId node, std::uint64_t offset, session::SeekTarget target) override;
  void sync_file(session::NodeId node) override;
  void sync_directory(session::NodeId node) override;
  void list(session::NodeId directory, std::uint64_t cookie, const std::function<bool(const Entry&)>& visit) override;
  std::optional<std::string> xattr(session::NodeId node, std::string_view name) override;
  std::vector<std::string> xattr_names(session::NodeId node) override;
  void set_xattr(session::NodeId node, std::string_view name, std::string_view value, session::XattrMode mode) override;
  void remove_xattr(session::NodeId node, std::string_view name) override;
  session::StagingArea::FreeSpace free_space() override;
  void retain(session::NodeId node) override;
  void release(session::NodeId node) override;

 private:
  const std::shared_ptr<session::EntryFileSystem> files_;  // constant; self-locking
  const CommandSpec::Identity user_;                       // constant
};

}  // namespace escrow::daemon
