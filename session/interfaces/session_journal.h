// The durable record of a session's staged names and attributes; storage keeps it in one SQLite database per session.
//
// The overlay's memory is the truth while the session is attached; it writes what changed behind, in batches that
// are consistent cuts. append() makes a batch atomic against kill -9; barrier() makes everything appended so far
// durable against power loss. Not thread-safe: one flusher owns it (Overlay's). The database is created by the first
// append, so that opening a session costs no file.
//
// Rows are of layers, one over the other: a savepoint seals the top one and begins another, and copies nothing. What a
// layer says of a node or a name hides what those below say of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "session/base/clock.h"
#include "session/base/ids.h"
#include "session/interfaces/change_times.h"

namespace escrow::session {

// Under this name, which no program can use, the extended attributes of a row say which bytes of the file were stored
// through a mapping and lost (lost_bytes.h).
inline constexpr const char* kLostBytesName = "escrow.lost_bytes";

// A staged node: one that was created, changed, moved or linked in this session.
struct NodeRow {
  NodeId node;
  std::uint32_t mode = 0;  // with the type bits of <sys/stat.h>
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint32_t rdev = 0;
  Timestamp accessed, modified, changed;
  // What it is made of. Directories and files: the tree or blob below the edits; null when there is none.
  // Symlinks: the blob, or `target`. Submodules: the commit.
  ObjectId base;
  std::uint32_t base_mode = 0;   // git mode that `base` had in its tree; 0 without base
  std::uint64_t base_length = 0;  // how many of the base's bytes still show through
  StagingId staging;
  std::string sealed;            // the base instead of a blob: what a savepoint has sealed (content_form.h)
  std::string block_map;         // which blocks of the staging file hold data; empty: all (see content.h)
  // Of the five before this, what a power loss leaves for certain. Meant when the staging area's era() is another one
  // than this; 0: a power loss leaves them as they are.
  std::uint64_t era = 0;
  struct Durable {
    ObjectId base;
    std::uint64_t base_length = 0;
    StagingId staging;
    std::string block_map;
    std::string sealed{};
    friend bool operator==(const Durable&, const Durable&) = default;
  };
  Durable durable;  // nothing: what the disk has of the staging file, which may be missing
  std::string target;            // symlinks made in the session
  std::vector<std::pair<std::string, std::string>> xattrs;  // and kLostBytesName
  std::optional<TimesBelow> times;  // of what is in a directory's `base`
};

// What a directory shows under a name instead of its base: a node, or nothing (a whiteout: node is 0).
struct EdgeRow {
  NodeId directory;
  std::string name;
  NodeId node;
  std::uint64_t cookie = 0;  // the readdir cookie; 0 for a whiteout
};

// The node ids first .. first+count-1 belong to the entries of `tree`, in tree order, below `directory`.
struct BlockRow {
  NodeId directory;
  NodeId first;
  std::uint64_t count = 0;
  ObjectId tree;
};

// A sealed layer, which shows the session as it was then.
struct Savepoint {
  LayerId layer;            // the journal's own count; of a new one without meaning
  std::string name;
  Timestamp created;        // whole seconds
  StagingId next_staging;   // staging files before this one may be among what it shows
  std::string context;      // what the session was over (Session's)
};

// The rows go to the top layer.
struct JournalBatch {
  std::vector<NodeRow> nodes;                               // insert or replace
  std::vector<NodeId> dropped_nodes;
  std::vector<EdgeRow> edges;                               // insert or replace
  std::vector<std::pair<NodeId, std::string>> dropped_edges;
  std::vector<BlockRow> blocks;
  NodeId next_node;         // the first id never given out; 0: unchanged
  StagingId next_staging;
  std::optional<Savepoint> seals;  // after the rows
  LayerId drops;                   // a sealed layer; what only it says goes up to the next one. 0: none
};

struct JournalState {
  std::vector<NodeRow> nodes;
  std::vector<EdgeRow> edges;
  std::vector<BlockRow> blocks;
  NodeId next_node{2};
  StagingId next_staging{1};
  std::vector<Savepoint> savepoints;  // oldest first
};

class SessionJournal {
 public:
  virtual ~SessionJournal() = default;
  // What the layers show together, up to and with `top`; 0: all of them. Rows are sorted by their keys.
  virtual JournalState load(LayerId top = {}) = 0;
  // Oldest first.
  virtual std::vector<Savepoint> savepoints() = 0;
  // The rows of all layers, hidden or not.
  virtual std::vector<NodeRow> all_nodes() = 0;
  virtual void append(const JournalBatch& batch) = 0;
  virtual void barrier() = 0;
  // Another one may use the same journal until the next call here.
  virtual void let_go() {}
};

}  // namespace escrow::session
