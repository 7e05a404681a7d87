// The overlay's memory: internal to session/overlay*.cc.
//
// A node exists in memory when it is staged, or is a directory of the base that was looked into, or was removed while
// the kernel holds it; every other node is an entry of a Listing. A staged node has a row in the journal and an edge
// in its directory; the directories above a staged node are staged. So everything that differs from the base is found
// by walking staged directories from the root.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "session/base/file_mode.h"
#include "session/base/synchronized.h"
#include "session/interfaces/session_journal.h"
#include "session/overlay/content.h"
#include "session/overlay/listing.h"
#include "session/overlay/overlay.h"

namespace escrow::session {

inline constexpr std::size_t kNameLimit = 255;       // NAME_MAX
inline constexpr std::uint32_t kLinkLimit = 65000;   // EXT4_LINK_MAX

struct Link {
  NodeId directory;
  std::string name;
  friend bool operator==(const Link&, const Link&) = default;
};

struct Override {
  NodeId node;              // 0: a whiteout
  std::uint64_t cookie = 0;
};

struct DirectoryBody {
  ObjectId base_tree;                  // null: nothing below
  TimesBelow times;                    // of what is in it
  std::shared_ptr<Listing> listing;    // null until first read, or without a base
  std::map<std::string, Override, std::less<>> overrides;
  std::map<std::uint64_t, std::string_view> added;  // by cookie: the overrides that name a node
  std::uint64_t next_cookie = 0;       // 0 until known
  std::size_t child_nodes = 0;         // clean directories in memory that have this one as parent
};

struct Node {
  NodeId id;
  std::uint32_t mode = 0, uid = 0, gid = 0, rdev = 0;
  Timestamp accessed, modified, changed;
  ObjectId base;                 // symlinks: the target's blob; submodules: the commit
  GitMode base_mode{};           // GitMode{} when it was made in the session
  std::vector<Link> links;       // empty: removed, and in memory only while held
  bool staged = false;
  bool dirty = false;            // its row is to be written
  bool recorded = false;         // the journal has its row
  bool ever_recorded = false;    // the journal had its row once
  bool held = false;             // by the kernel
  std::unique_ptr<DirectoryBody> directory;
  std::shared_ptr<Content> content;
  std::string target;
  std::map<std::string, std::string, std::less<>> xattrs;

  std::uint32_t type() const { return mode & kTypeMask; }
  bool is_directory() const { return directory != nullptr; }
};

struct Block {
  NodeId directory;
  std::uint64_t count = 0;
  ObjectId tree;
};

struct OverlayState {
  std::unordered_map<NodeId, std::unique_ptr<Node>> nodes;
  std::map<std::uint64_t, Block> blocks;                   // by first id
  std::unordered_map<NodeId, NodeId> block_of_directory;   // -> first id
  NodeId next_node{2};

  // What the journal does not have yet.
  std::vector<NodeId> dirty_nodes;
  std::unordered_set<NodeId> dropped_nodes;
  std::map<std::pair<NodeId, std::string>, bool> dirty_edges;  // value unused: what is there now is written
  std::vector<BlockRow> new_blocks;
  // Contents of removed nodes: their staging files go once nobody reads them any more and no durable row names them.
  std::vector<std::shared_ptr<Content>> unnamed;
  std::vector<std::shared_ptr<Content>> unwritten;  // no row ever named their files
  std::uint64_t change = 0;                // counts changes, for sharing barriers

  std::size_t pending() const { return dirty_nodes.size() + dropped_nodes.size() + dirty_edges.size(); }
};

// A node as found: in memory, or as an entry of a directory's listing.
struct Found {
  Node* node = nullptr;
  Listing* listing = nullptr;
  std::size_t index = 0;
  NodeId directory;  // of the listing
  explicit operator bool() const { return node != nullptr || listing != nullptr; }
};

}  // namespace escrow::session
