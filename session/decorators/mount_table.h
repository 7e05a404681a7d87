// What a session shows beside its repository: entries at paths, each a FileSystem of its own, and the directories on
// the way to them. A decorator over the FileSystem of the repository, which is the entry at the root.
//
// A path of an entry always leads to the entry, whatever the repository has there (it is hidden, and stays as it is);
// a directory on the way that the repository does not have is shown all the same, and nothing can be made in it. An
// entry and the directories on the way cannot be removed, renamed or replaced: Error{busy}. Between two entries nothing
// is renamed or linked: CrossDevice. What would change an entry that is read-only is Error{access_denied}.
// Each entry has a range of node ids, so that ids never change while the table lives.
//
// The table can be replaced while it is in use: a call sees all of the old one or all of the new one. An entry that
// both have keeps its ids. One that has left serves what the kernel still holds of it, as a file system does that was
// unmounted lazily: a copy whose place another entry has taken stays whole for who is in it; of a host directory, and
// of what was removed, only what is open goes on once close_departed() was called. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
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
  static constexpr unsigned kRangeBits = 40;  // of a node id: those below are the entry's own

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

  // Makes these, whose paths were checked, the whole table. An entry with the path and the files of one that is there
  // is that one, and stays. Returns what the kernel has to look up again. Throws Error{busy}, and nothing has changed,
  // when node ids are all in use: after 8,000 entries, of each of which something is open still.
  std::vector<Overlay::Stale> replace(std::vector<Entry> entries);
  // Once the kernel has looked up again what replace() said: see above.
  void close_departed();
  // Lets go of entries that have left of which the kernel holds nothing; of one (its range), or of all.
  void drop_unheld(std::optional<std::uint64_t> only = {});

  // Whether it is in an entry, or a directory on the way to one that the repository does not have.
  static bool is_beside_repository(NodeId node) { return node.value >> kRangeBits != 0; }
  bool is_volatile(NodeId node) const;
  Overlay::Names names(NodeId node);
  // Of the entries that can be written to.
  std::vector<NodeId> held_files();
  // Whether the repository has something at this path.
  bool hides(const RepoPath& path);

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
  // Node ids stay below 2^53, what JavaScript's numbers hold exactly.
  static constexpr std::uint64_t kInRange = (std::uint64_t{1} << kRangeBits) - 1, kSpotRange = 1, kFirstEntryRange = 2,
                                 kRanges = std::uint64_t{1} << (53 - kRangeBits);
  // An entry from when it is added until nobody has anything of it any more.
  struct Live {
    Live(MountTable::Entry its, std::uint64_t its_range) : entry(std::move(its)), range(its_range) {}
    const MountTable::Entry entry;
    const std::uint64_t range;           // of its node ids
    std::atomic<std::int64_t> held = 0;  // nodes that the kernel holds
    std::atomic<bool> is_removed = false;
    std::atomic<bool> is_closed = false;
  };
  // A path that the table has something to say about: the root, a directory on the way to an entry, or an entry.
  struct Spot {
    std::string path;
    std::string name;
    std::uint64_t parent = 0;
    std::map<std::string, std::uint64_t, std::less<>> children;
    std::shared_ptr<Live> entry;  // null: a directory on the way
  };
  // Never changed once it is shown. Spots have numbers, of which none is given twice; the root is 0.
  struct Table {
    std::unordered_map<std::uint64_t, Spot> spots;
    std::unordered_map<std::string, std::uint64_t> by_path;
    std::unordered_map<std::uint64_t, std::shared_ptr<Live>> by_range;
  };
  using Shown = std::shared_ptr<const Table>;
  struct Departed {
    std::unordered_map<std::uint64_t, std::shared_ptr<Live>> by_range;
    std::deque<std::uint64_t> free_ranges;  // of which nobody has anything any more; the longest unused first
  };
  struct Numbers {
    std::uint64_t next_range, next_spot;
  };
  enum class Place { repository, on_the_way, entry };
  struct Where {
    Place place;
    std::shared_ptr<Live> entry;
    NodeId node;  // as whoever has it calls it
    bool is(const Where& other) const { return place == other.place && entry == other.entry; }
  };
  using Spots = std::unordered_map<NodeId, std::uint64_t>;
  using SpotNumber = std::optional<std::uint64_t>;

  // ---- mount_table_change.cc
  std::shared_ptr<Table> make_table(const Table* before, std::vector<Entry> entries, Numbers& numbers);
  std::shared_ptr<Live> make_live(Entry entry, Numbers& numbers);
  void depart(const Table& before, const Table& after);
  // The names on the way to a path, in every directory that the kernel may hold there.
  void name_way(const Table& table, const RepoPath& path, std::vector<Overlay::Stale>& names);

  Shown now() const { return *table_.lock_shared(); }
  Where where(const Table& table, NodeId node) const;
  static bool is_closed(const Where& where) { return where.entry != nullptr && where.entry->is_closed; }
  static EntryFileSystem& files_of(const Where& where) { return *where.entry->entry.files; }
  static NodeId outside(const Where& where, NodeId inner);
  static Attributes shown(const Where& where, Attributes attributes);
  // The spot that a directory is, and the one that a name in it is.
  SpotNumber spot_of(const Table& table, NodeId directory) const;
  SpotNumber spot_at(const Table& table, NodeId directory, std::string_view name) const;
  // The directory of the repository at a spot, if there is one.
  std::optional<Attributes> in_repository(const Table& table, std::uint64_t spot);
  Attributes spot_attributes(const Table& table, std::uint64_t spot);
  std::optional<Attributes> find(NodeId directory, std::string_view name, bool is_own);
  void list_spots(const Table& table, std::uint64_t spot, std::uint64_t cookie,
                  const std::function<bool(const FileSystem::Entry&)>& visit);
  // Throws unless it may be changed now.
  void require_writable(const Where& where, WriteOrigin origin = WriteOrigin::call) const;
  // What nobody has yet may be made at this name.
  Where room_for(const Table& table, NodeId directory, std::string_view name) const;
  void require_removable(const Table& table, NodeId directory, std::string_view name) const;

  const NamesOf repository_names_;              // constant; self-locking
  const WriteGate& gate_;                       // constant; self-locking
  const Owner owner_;                           // constant
  Synchronized<Numbers> numbers_;               // held for the whole of a change
  SharedSynchronized<Shown> table_;             // a leaf
  SharedSynchronized<Departed> departed_;  // a leaf
  SharedSynchronized<Spots> known_;             // directories of the repository on the way to entries; a leaf
};

}  // namespace escrow::session
