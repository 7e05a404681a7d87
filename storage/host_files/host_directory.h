// A directory of this machine as a FileSystem: an entry of a session's mount table. What is written is written there.
//
// It is opened once; every later walk begins at that descriptor and cannot leave it (beneath.h), so that neither ".."
// nor a link that somebody puts on the way leads elsewhere. Symbolic links are shown as links. What other file systems
// have mounted below it is not in it. A node is a file, not a path: it is found again under the name it was seen at
// last, and is Error{not_found} once others have moved it out of sight; a file that is open stays what it is. Device
// files cannot be made. No message has a path of the host. Descriptors are bounded: those of files that are open, and a
// few hundred more. Thread-safe; no lock is held across a system call. Sources: openat2(2), POSIX.1-2017.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "session/base/synchronized.h"
#include "session/decorators/mount_table.h"
#include "storage/disk/unique_fd.h"
#include "storage/host_files/host_nodes.h"

namespace escrow::storage {

class HostDirectory final : public session::EntryFileSystem {
 public:
  struct Options {
    bool is_volatile = true;  // others change it, too
    bool durable = true;      // fsync(2) is passed on; else nothing of it is to survive anything
    // Told of each file that is looked at, so that its attributes can be shown otherwise; may be empty. Thread-safe.
    std::function<void(std::uint64_t inode, session::Attributes&)> shown{};
  };
  // Throws Error{bad_request} when there is no such directory or it cannot be opened; `what` begins the message.
  HostDirectory(const std::string& path, Options options, const std::string& what);
  ~HostDirectory() override;

  // Where it is now, for people and for comparing it with other paths.
  std::string host_path() const;

  // For who keeps another file than this under a node's name, or has to see what is there (cache_view.h). O_PATH.
  UniqueFd descriptor(session::NodeId node);
  struct Place {
    UniqueFd directory;  // O_PATH; empty: it has lost its last name
    std::string name;
  };
  Place place_of(session::NodeId node);
  // Its bytes can be written to without opening it again.
  bool is_open_for_writing(session::NodeId node);
  // From here on the node is this file, O_PATH, which lies where the node's file lay.
  void replace(session::NodeId node, UniqueFd descriptor);

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
  using File = std::shared_ptr<const HostFile>;
  struct Found {
    UniqueFd descriptor;  // O_PATH
    HostIdentity identity;
    session::Attributes attributes;  // without its node
  };

  Found look_at(UniqueFd descriptor) const;
  // nullopt: there is no such name.
  std::optional<Found> look_for(int directory, const std::string& name) const;
  // Throws Error{not_found} for a node that is nowhere to be seen any more.
  Found reach(session::NodeId node);
  UniqueFd directory(session::NodeId node);
  // Its bytes, open; kept open for the next call.
  File file(session::NodeId node, bool for_writing);
  File keep(session::NodeId node, UniqueFd descriptor, bool writable);
  session::Attributes known(const Found& found, session::NodeId directory, std::string_view name);
  // What was just made there, as its maker wanted it to be.
  session::Attributes made(session::NodeId directory, int in, const std::string& name, std::uint32_t mode,
                           const session::Caller& caller, UniqueFd opened);
  // A name was taken away, from what was found there before.
  void lost_name(Found found, session::NodeId directory, std::string_view name);
  void note_unsynced(session::NodeId node);

  const Options options_;                   // constant
  const UniqueFd root_;                     // constant; O_PATH
  session::Synchronized<HostNodes> nodes_;  // a leaf
};

}  // namespace escrow::storage
