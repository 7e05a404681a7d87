// What the core needs of a git object database and its references; storage implements it with libgit2.
//
// Everything here is thread-safe unless it says otherwise. Ids are SHA-1. Names are bytes.
// Sources: gitformat-pack(5), gitrepository-layout(5), git-receive-pack(1) (quarantine).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "session/base/branch_rule.h"
#include "session/base/ids.h"

namespace escrow::session {

// The modes a git tree entry can have. group_writable occurs in old repositories and is kept as it is.
enum class GitMode : std::uint32_t {
  tree = 0040000,
  regular = 0100644,
  group_writable = 0100664,
  executable = 0100755,
  symlink = 0120000,
  gitlink = 0160000,
};

struct TreeEntry {
  std::string name;
  GitMode mode;
  ObjectId id;
  friend bool operator==(const TreeEntry&, const TreeEntry&) = default;
};

// In git's order: by name as bytes, a directory compared as if its name ended in '/'.
using Tree = std::vector<TreeEntry>;
bool tree_order_less(const TreeEntry& a, const TreeEntry& b);

struct Signature {
  std::string name;
  std::string email;
  std::int64_t time_s = 0;
  int offset_minutes = 0;
};

struct Commit {
  ObjectId tree;
  std::vector<ObjectId> parents;
  Signature author;
  Signature committer;
  std::string message;
};

// Random access to immutable bytes of a known size. Thread-safe.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual std::uint64_t size() const = 0;
  // Fills `out` from `offset`; returns the bytes read, short only at the end. Throws Error{input_output}.
  virtual std::size_t read(std::uint64_t offset, std::span<std::byte> out) const = 0;
};

// All of it, of a source that fits into memory. For rules that read a file which a program may be rewriting: where it
// has become shorter than size(), what is there at the time.
std::string read_all(const ByteSource& source);

// Reading. Every method throws Error{input_output} when an object is missing or damaged: for that object alone.
class ObjectReader {
 public:
  virtual ~ObjectReader() = default;
  virtual Tree read_tree(const ObjectId& id) const = 0;
  virtual Commit read_commit(const ObjectId& id) const = 0;
  // Without reading the content where the database knows it (pack and loose headers, the size table).
  virtual std::uint64_t blob_size(const ObjectId& id) const = 0;
  // Holds at most a few MiB in memory: larger blobs are streamed once into a bounded cache on disk.
  virtual std::shared_ptr<const ByteSource> open_blob(const ObjectId& id) const = 0;
  virtual bool contains(const ObjectId& id) const = 0;
};

// A session's own new objects, invisible to the repository until published (as git's receive-pack does).
// Reads see the quarantine first, then the repository. Putting an object that the repository already has writes
// nothing. put_* may be called from several threads; publish and discard from one, with no put_* under way.
class Quarantine : public ObjectReader {
 public:
  // Streams, once from front to back, but may look at the first 64 KiB before; memory is bounded whatever the size.
  virtual ObjectId put_blob(const ByteSource& source) = 0;
  // The same for a file that git hands to the filter of Git LFS: its bytes become an object of Git LFS, published with
  // the pointer that names it, which is the blob. Bytes that are a pointer already, and no bytes at all, are a blob as
  // they are (git-lfs-clean(1)). A store that has no objects of Git LFS puts the bytes.
  virtual ObjectId put_lfs_file(const ByteSource& source) { return put_blob(source); }
  // `tree` in git order. The empty tree is allowed.
  virtual ObjectId put_tree(const Tree& tree) = 0;
  virtual ObjectId put_commit(const Commit& commit) = 0;

  // Makes everything reachable from `root` that the repository lacks, or had only by chance, durable and visible to it,
  // in packs that no concurrent gc takes until the returned guard goes away: keep it until a reference holds `root`.
  // (While only refs/sessions/ does, they stay protected.) What `root` does not reach is not published. Idempotent:
  // publishing again after a crash or for another root is legal. On return the data has been fsynced, and the directory
  // that names it.
  class Published {
   public:
    virtual ~Published() = default;
  };
  virtual std::unique_ptr<Published> publish(const ObjectId& root) = 0;

  // For the time, reads find what is in these quarantines, too; they must outlive it, or the next call.
  virtual void read_through(std::vector<const Quarantine*> others) = 0;
  // What git-merge-file(1) makes of three versions of a text; nullopt: changes overlap, or one of them is no text, or
  // larger than kLargestMergedText_bytes.
  virtual std::optional<ObjectId> put_merged_text(const ObjectId& /*base*/, const ObjectId& /*ours*/,
                                                  const ObjectId& /*theirs*/) {
    return std::nullopt;
  }
  static constexpr std::uint64_t kLargestMergedText_bytes = std::uint64_t{8} << 20;
  // Whether the object is in the quarantine itself.
  virtual bool holds(const ObjectId& id) const = 0;
  // About as many bytes as publish() may have to bring to the disk; what was published before counts, too.
  virtual std::uint64_t held_bytes() const = 0;

  // Forgets every object and removes their files. What it published stays in the repository, where others may have
  // come to need it: unless a reference holds it, it is garbage like any other. The quarantine stays usable.
  virtual void discard() = 0;
};

// Branches and the references that keep a session's objects alive.
class ReferenceStore {
 public:
  virtual ~ReferenceStore() = default;
  // The branch HEAD points to, which may not exist yet.
  virtual std::string default_branch() const = 0;
  // Throws Error{bad_request} unless `branch` is a name git accepts (git-check-ref-format(1)), Error{wrong_state}
  // when it is checked out in a work tree (as git's receive.denyCurrentBranch).
  virtual void check_target(const std::string& branch) const = 0;
  // nullopt: the branch does not exist. Throws Error{damaged_repository}.
  virtual std::optional<ObjectId> head(const std::string& branch) const = 0;
  // What the repository's configuration asks of sessions on the branch. Throws Error{bad_request} naming a key whose
  // value cannot be read.
  virtual BranchRule rule_of(const std::string& branch) const = 0;
  // Whose turn it is to read the head of a branch, to make a commit on it, and to move the branch there: first come,
  // first served, in all processes. Only for fairness: git, and whoever does not ask, may move it all the same.
  class Turn {
   public:
    virtual ~Turn() = default;
    // Whether others wait for it.
    virtual bool is_wanted() const = 0;
  };
  // Waits. The turn ends with the result, or with the process.
  virtual std::unique_ptr<Turn> take_turn(const std::string& branch) = 0;

  // Moves the branch from `expected` (nullopt: it must not exist) to `desired`; false when it was elsewhere. Takes
  // git's own lock file, waits for other holders, writes the reflog, and is durable when it returns true. When it
  // throws the branch may have moved for all that anybody can see, and may be back after a power loss: make_durable().
  bool compare_and_swap(const std::string& branch, const std::optional<ObjectId>& expected, const ObjectId& desired,
                        const std::string& reflog_message) {
    return move_through(branch, expected, {{desired, reflog_message}});
  }
  // The same over several commits, each made on the one before it, at once: the branch is `expected` or the last of
  // them, and the reflog has them all.
  struct Move {
    ObjectId to;
    std::string reflog_message;
  };
  virtual bool move_through(const std::string& branch, const std::optional<ObjectId>& expected,
                            const std::vector<Move>& moves) = 0;
  // What the branch says is on disk when it returns, whatever became of syncs before.
  virtual void make_durable(const std::string& branch) = 0;
  // Whether `commit` is in the branch's reflog.
  virtual bool reflog_has(const std::string& branch, const ObjectId& commit) const = 0;

  // refs/escrow/base/<id>/<commit>: what an open session reads. Several may be pinned; unpin drops them all. Only who
  // holds the session's directory pins for it. The pin of a fresh session, whole or not there, may be lost with the
  // power: recovery pins the base of an open session again. `branch`: where `commit` was seen. Any other is durable on
  // return.
  virtual void pin_fresh(const SessionId& session, const std::string& branch, const ObjectId& commit) = 0;
  virtual void pin_base(const SessionId& session, const ObjectId& commit) = 0;
  virtual bool is_pinned(const SessionId& session, const ObjectId& commit) const = 0;
  // The pins of `session` are pins of `heir`, too, for which its creator calls.
  virtual void pin_as(const SessionId& session, const SessionId& heir) = 0;
  virtual void unpin_base(const SessionId& session) = 0;
  // Drops those pins of the session that name ancestors of `base`, which is pinned: what they hold it holds, too.
  virtual void unpin_older(const SessionId& session, const ObjectId& base) = 0;
  // refs/sessions/<id>: the result of a failed or waiting session. Durable on return.
  virtual void keep_result(const SessionId& session, const ObjectId& commit) = 0;
  // Before keep_result(): git-upload-pack(1) shows nobody the result until it is dropped. Durable on return.
  virtual void hide_result(const SessionId& session) = 0;
  virtual std::optional<ObjectId> result(const SessionId& session) const = 0;
  // Not durable: a power loss may bring it back, until something that it held is removed.
  virtual void drop_result(const SessionId& session) = 0;

  // Takes away lock files that dead processes left: for recovery.
  virtual void sweep_locks() = 0;
};

}  // namespace escrow::session
