// What a session's mount shows: the snapshot of a base tree with the session's staged edits over it.
//
// Thread-safe. Memory is a cache of two truths: names and attributes in the journal, bytes in the staging area
// (design, section 3). Edits are written behind in consistent batches, at least every 100 ms; sync_file(),
// sync_directory() and flush(true) make them durable. Base directories are read when they are first looked into;
// nothing else of the base is. Node ids never change; a directory's base entries reserve a block of ids when it is
// first read. Locks: INVARIANTS.md; none is held across reading objects or writing the journal.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "session/base/clock.h"
#include "session/base/log.h"
#include "session/base/omission.h"
#include "session/interfaces/change_times.h"
#include "session/interfaces/file_system.h"
#include "session/interfaces/object_store.h"
#include "session/interfaces/session_journal.h"
#include "session/interfaces/staging_area.h"

namespace escrow::session {

class AttributesAbove;
class IgnoringAbove;

struct BuiltTree {
  std::optional<ObjectId> tree;  // of the mount's root; nullopt: nothing in it
  std::vector<Omission> omitted;
};

class Overlay final : public FileSystem {
 public:
  struct Options {
    std::uint32_t uid = 0, gid = 0, umask = 022;
    Timestamp base_time;                  // of every unchanged entry of which `times` does not know better
    std::optional<ObjectId> base_tree;    // of the mount's root; nullopt: empty
    bool is_frozen = false;               // only looked at: nothing is recorded, and no staging file removed
    std::shared_ptr<const BaseTimes> times;  // may be null
    std::string base_path;                // of the mount's root in the repository, for `times`
    const ObjectReader* files = nullptr;  // of whom regular files are read (Services); null: the objects
  };

  // The references must outlive the overlay. Loads the journal: cost grows with what was staged.
  Overlay(Options options, const ObjectReader& objects, StagingArea& staging, SessionJournal& journal, Clock& clock,
          Log& log);
  ~Overlay() override;

  // FileSystem, as documented there.
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
  void pages_lost(NodeId node, std::uint64_t offset, std::uint64_t size_bytes) override;
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

  // What a node is called, below the root, "" being the root itself: every name of a file with hard links. None: it was
  // removed, or a directory above it was.
  struct Names {
    std::vector<std::string> paths;
    bool is_directory = false;
  };
  Names names(NodeId node);

  // What a node was made of. Not staged: exactly what a git tree says. Staged: of a file whose bytes are a blob's, that
  // blob; else no id.
  struct Origin {
    bool is_staged = false;
    GitMode mode{};
    ObjectId id;
  };
  Origin origin(NodeId node);
  // Where the base has what (overlay_base.cc), for who records what was read of it: the entries of one directory of the
  // base are the nodes first, first + 1 and so on, in the order of its tree, whatever they are called in the session.
  struct BaseBlock {
    NodeId directory, first;
    std::uint64_t count = 0;
    ObjectId tree;
  };
  // nullopt: the node was not in the base when it was first seen; the root is in no directory.
  std::optional<BaseBlock> base_block_with(NodeId node) const;
  // nullopt: the base has nothing in this directory, or nobody has looked into it.
  std::optional<BaseBlock> base_block_of(NodeId directory) const;
  // Of a node in a block.
  std::string base_name(NodeId node);
  bool base_has(NodeId directory, std::string_view name);

  // The path of a file that some process can still write without a call here (open(), raw), if there is one: while it
  // can, what build_tree() reads is no cut. Waits a moment for processes that have just let go.
  std::optional<std::string> still_written();

  // The paths of files that lack what programs stored in them through a mapping: pages_lost(), and not written since.
  // Kept in the journal.
  std::vector<std::string> incomplete_files();

  // The git tree of what the mount shows now: directories that did not change keep their tree unread, files that
  // did not change their mode and blob. New objects go to `quarantine`. With writers running the result is some
  // mixture of their steps: seal first where that matters. What `ignoring` says
  // that git would not add is left out, unless it tracks it; null: nothing is. Files that did change and that
  // `attributes` say are for Git LFS become pointers (put_lfs_file()); null: none do.
  BuiltTree build_tree(Quarantine& quarantine, const std::vector<std::string>& excludes,
                       IgnoringAbove* ignoring = nullptr, AttributesAbove* attributes = nullptr);

  // `go_on` is called between the pieces of what build_tree() stores; what it throws ends that. Set while no tree is
  // built.
  void while_storing(std::function<void()> go_on);

  // So that a commit finds contents stored already: wait_for_settled() returns when one was recorded a while ago, or
  // false after stop_settling(); store_settled() then puts its blob, unless it changed since, is large, or is written
  // past the overlay. For one thread; not while the quarantine is published or discarded.
  bool wait_for_settled();
  void store_settled(Quarantine& quarantine);
  void stop_settling();

  // Makes `path` (below the root) what `entry` says, or removes it with nullopt, without moving any other node: how
  // `discard` takes a path back to the base, and `update` takes others' changes in. Missing parents are created.
  // Returns the directories and names whose kernel caches are stale now.
  struct Stale {
    NodeId directory;
    std::string name;
  };
  std::vector<Stale> replace(std::string_view path, const std::optional<TreeEntry>& entry);

  // Savepoints (overlay_savepoints.cc). While one of these changes something, nobody else does: pause the gate first.
  std::vector<Savepoint> savepoints();  // oldest first
  // What was changed so far is sealed under `name`. Nothing is copied, and the time it takes does not grow with what is
  // staged, once a flush(true) has gone before. A flush(true) afterwards brings it to disk, with the bytes that were
  // synced before: writers need not wait for that. Throws
  // Error{exists}, Error{busy} naming a file that a process reads or writes without a call here, Error{wrong_state} for
  // one too many.
  void create_savepoint(const std::string& name, std::string context);
  // What the session had then, to look at. Not longer than this overlay lives, nor than the savepoint. Throws
  // Error{not_found}.
  std::unique_ptr<Overlay> at_savepoint(std::string_view name);
  // Makes the session what it was at the savepoint, in one batch of the journal, on disk on return. Directories that
  // are where they were, and files that did not change, keep their nodes; every other node is new; who has the old one
  // open goes on with it as with a removed file. Seal what is there now first: it is gone otherwise.
  std::vector<Stale> restore_savepoint(std::string_view name);
  // Staging files that only it had are removed. Throws Error{not_found}.
  void drop_savepoint(std::string_view name);
  // What the journal has of it: for another session, which begins as it. Throws Error{not_found}.
  JournalState rows_at(std::string_view name);
  // While `work` runs, another one may look into the session's journal and staging files: everything is in them, and
  // nothing here changes them. Pause the gate first.
  void lend(const std::function<void()>& work);

  // Where it may differ from its base: every name of a file, link or directory that was made, changed or moved. Sorted.
  std::vector<std::string> staged_paths();

  // What was said of the last file that could not be read: a damaged disk, an object of Git LFS that is not here. ""
  // when all could.
  std::string last_unreadable() const;

  // Regular files and directories the kernel holds: what a flush has to visit.
  std::vector<NodeId> held_files();

  struct Usage {
    std::uint64_t staged_files = 0, staged_bytes = 0, nodes = 0;
  };
  Usage usage();
  // What limits are held against: bytes of the disk, with the holes of files; names of files, directories and links
  // that the session has made.
  struct Held {
    std::uint64_t bytes = 0, names = 0;
  };
  // With `reclaim`, after giving back what was removed and is not needed any more: that costs a barrier.
  Held held(bool reclaim);
  // At most how much more that is once these bytes of the node have been written.
  std::uint64_t growth(NodeId node, std::uint64_t offset, std::uint64_t length);
  // StagingArea::limit_waste(). Before the first write.
  void limit_waste(std::uint64_t bytes);

  // Everything staged so far is in the journal (against kill -9) or, with `durable`, on disk; of files the bytes that
  // were synced.
  void flush(bool durable);
  // sync_file() of each, at the cost of one sync where they are many.
  void sync_files(std::span<const NodeId> files);
  // The session has ended: nothing staged needs recording any more. Call before its directory is removed.
  void abandon();

 private:
  Overlay(Options options, const ObjectReader& objects, StagingArea& staging, std::unique_ptr<SessionJournal> journal,
          Clock& clock, Log& log);

  struct Impl;
  const std::unique_ptr<SessionJournal> own_journal_;  // of one that is frozen
  std::unique_ptr<Impl> impl_;
};

}  // namespace escrow::session
