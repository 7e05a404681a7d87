// What a session sees of a cache: the directory of its CacheTree, filled as it is looked into, in which a file that the
// generation below has, too, is copied before the first change. Times, modes and links are those of the tree; a file
// that was never changed shows its modification time as its change time, since links of other sessions move the real
// one. Thread-safe: what changes names, and copies, take turns.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <unordered_set>

#include "session/base/synchronized.h"
#include "session/decorators/mount_table.h"
#include "storage/caches/cache_tree.h"
#include "storage/host_files/host_directory.h"

namespace escrow::storage {

class CacheView final : public session::EntryFileSystem {
 public:
  // Of a directory that was prepared; it may be renamed while the view lives. `maker` is the kGitMaker of each node.
  CacheView(const std::string& directory, const std::string& generation, std::string maker);
  // Whether a view of the directory lives, in any process.
  static bool is_held(const std::string& directory);
  // From then on each call that changes something throws Error{read_only}, and none of them is still under way.
  void seal();

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
  void sync_file(session::NodeId) override {}       // nothing of a session's copy survives a crash of the machine
  void sync_directory(session::NodeId) override {}  // the same
  void list(session::NodeId directory, std::uint64_t cookie, const std::function<bool(const Entry&)>& visit) override;
  std::optional<std::string> xattr(session::NodeId node, std::string_view name) override;
  std::vector<std::string> xattr_names(session::NodeId node) override;
  void set_xattr(session::NodeId node, std::string_view name, std::string_view value, session::XattrMode mode) override;
  void remove_xattr(session::NodeId node, std::string_view name) override;
  session::StagingArea::FreeSpace free_space() override;
  void retain(session::NodeId node) override;
  void release(session::NodeId node) override;

 private:
  struct Turn {};  // of who changes names, or puts a copy in the place of a file
  using Names = session::Synchronized<Turn>;
  using Changes = session::SharedSynchronized<Turn>;

  // Held by each call that changes something, before any other lock. Throws Error{read_only} once the view is sealed.
  Changes::Read begin_change() const;

  void fill(session::NodeId directory);
  bool is_shared(int file) const;
  // The session's own from here on. With `names` held it needs no turn of its own.
  void own(session::NodeId node, bool with_bytes = true);
  void own(const Names::Write& turn, session::NodeId node, bool with_bytes);
  // What the name leads to is about to lose it: a directory is seen as empty or not, a shared file stays protected.
  void take_leave(session::NodeId directory, std::string_view name);

  const UniqueFd hold_;  // constant, as the next
  const std::string maker_;
  CacheTree tree_;       // self-locking, as the others
  HostDirectory files_;
  std::atomic<bool> is_sealed_ = false;
  Changes changes_;  // whole: by seal()
  Names names_;
  session::SharedSynchronized<std::unordered_set<session::NodeId>> filled_;  // directories; a leaf
};

}  // namespace escrow::storage
