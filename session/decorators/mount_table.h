// What a session shows beside its repository: entries at paths, each a FileSystem of its own, and the directories on
// the way to them. A decorator over the FileSystem of the repository, which is the entry at the root.
//
// A path of an entry always leads to the entry, whatever the repository has there (it is hidden, and stays as it is);
// a directory on the way that the repository does not have is shown all the same, and nothing can be made in it. An
// entry and the directories on the way cannot be removed, renamed or replaced: Error{busy}. Between two entries nothing
// is renamed or linked: CrossDevice. What would change an entry that is read-only is Error{access_denied}.
// Each entry has a range of node ids, so that ids never change while the table lives. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "session/base/repo_path.h"
#include "session/base/synchronized.h"
#include "session/decorators/write_gate.h"
#include "session/interfaces/forwarding_file_system.h"
#include "session/overlay/overlay.h"

namespace escrow::session {

// A FileSystem that knows what its nodes are called. Its root is kRootNode; its ids are below 2^40.
class EntryFileSystem : public FileSystem {
 public:
  // Every known name below its own root, as Overlay::names().
  virtual Overlay::Names names(NodeId node) = 0;
  // Regular files the kernel holds: what a flush has to visit.
  virtual std::vector<NodeId> held_files() = 0;
};

class MountTable final : public ForwardingFileSystem {
 public:
  struct Entry {
    RepoPath path;  // below the root of the mount; not the root
    std::shared_ptr<EntryFileSystem> files;
    bool read_only = true;
    bool is_volatile = false;  // others change it, without a call here
  };
  using NamesOf = std::function<Overlay::Names(NodeId)>;
  // Of the directories on the way that are nobody else's.
  struct Owner {
    std::uint32_t uid = 0, gid = 0;
    Timestamp time;
  };
  static constexpr std::size_t kMostEntries = 4096;

  // Throws Error{bad_request} when there are more entries than that, and for one that lies in another or at its path.
  static void check_paths(const std::vector<RepoPath>& paths);

  // `repository` and `gate` must outlive it: where the gate refuses a change, entries refuse it, too. The paths were
  // checked.
  MountTable(FileSystem& repository, NamesOf repository_names, const WriteGate& gate, std::vector<Entry> entries,
             Owner owner);

  bool is_volatile(NodeId node) const;
  Overlay::Names names(NodeId node);
  // Of the entries that can be written to.
  std::vector<NodeId> held_files();
  // Whether the repository has something at the path of this entry.
  bool hides(std::size_t entry);

  std::optional<Attributes> lookup(NodeId directory, std::string_view name) override;
  std::optional<Attributes> own_lookup(NodeId directory, std::string_view name) override;
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
  void pages_lost(NodeId node, std::uint64_t offset, std::uint64_t size_bytes) override;
  void allocate(NodeId node, AllocateMode mode, std::uint64_t offset, std::uint64_t length) override;
  std::optional<std::uint64_t> seek(NodeId node, std::uint64_t offset, SeekTarget target) override;
  void sync_file(NodeId node) override;
  void sync_directory(NodeId node) override;
  void list(NodeId directory, std::uint64_t cookie,
            const std::function<bool(const FileSystem::Entry&)>& visit) override;
  std::optional<std::string> xattr(NodeId node, std::string_view name) override;
  std::vector<std::string> xattr_names(NodeId node) override;
  void set_xattr(NodeId node, std::string_view name, std::string_view value, XattrMode mode) override;
  void remove_xattr(NodeId node, std::string_view name) override;
  void retain(NodeId node) override;
  void release(NodeId node) override;

 private:
  using Inner = ForwardingFileSystem;
  // A path that the table has something to say about: the root, a directory on the way to an entry, or an entry.
  struct Spot {
    std::string path;
    std::string name;
    std::size_t parent = 0;
    std::map<std::string, std::size_t, std::less<>> children;
    std::optional<std::size_t> entry;
  };
  enum class Place { repository, on_the_way, entry };
  struct Where {
    Place place;
    std::size_t entry = 0;  // of the entries
    NodeId node;            // as whoever has it calls it
  };
  using Spots = std::unordered_map<NodeId, std::size_t>;

  void add_spots(std::size_t entry);
  Where where(NodeId node) const;
  EntryFileSystem& files_of(const Where& where) const { return *entries_[where.entry].files; }
  NodeId outside(const Where& where, NodeId inner) const;
  Attributes shown(const Where& where, Attributes attributes) const;
  // The spot that a directory is, and the one that a name in it is.
  std::optional<std::size_t> spot_of(NodeId directory) const;
  std::optional<std::size_t> spot_at(NodeId directory, std::string_view name) const;
  // The directory of the repository at a spot, if there is one.
  std::optional<Attributes> in_repository(std::size_t spot);
  Attributes spot_attributes(std::size_t spot);
  std::optional<Attributes> find(NodeId directory, std::string_view name, bool is_own);
  void list_spots(std::size_t spot, std::uint64_t cookie, const std::function<bool(const FileSystem::Entry&)>& visit);
  // Throws unless it may be changed now.
  void require_writable(const Where& where, WriteOrigin origin = WriteOrigin::call) const;
  // What nobody has yet may be made at this name.
  Where room_for(NodeId directory, std::string_view name) const;
  void require_removable(NodeId directory, std::string_view name) const;

  const NamesOf repository_names_;    // constant; self-locking
  const WriteGate& gate_;             // constant; self-locking
  const std::vector<Entry> entries_;  // constant; self-locking
  const Owner owner_;                 // constant
  std::vector<Spot> spots_;           // constant; the first is the root
  SharedSynchronized<Spots> known_;   // directories of the repository on the way to entries; a leaf
};

}  // namespace escrow::session
