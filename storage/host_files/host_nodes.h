// What the nodes of a HostDirectory stand for, and the names they were last seen at: memory only, no system calls.
//
// A node is a file of the host: its device and inode. Its names are remembered so that it can be found again; whether a
// name still leads to it is for the caller to see. A node is kept while the kernel holds it, while it is open and while
// a node below it is there; a few thousand others, too, for a look that is followed by another. Not thread-safe: it
// lives in a Synchronized.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "session/base/ids.h"
#include "storage/disk/unique_fd.h"

namespace escrow::storage {

struct HostIdentity {
  std::uint64_t device = 0, inode = 0;
  std::uint32_t type = 0;  // of the mode
  friend auto operator<=>(const HostIdentity&, const HostIdentity&) = default;
};

// A file that is open to be read and perhaps written.
struct HostFile {
  UniqueFd descriptor;
  bool writable = false;
};

struct HostNode {
  struct Name {
    session::NodeId directory;
    std::string name;
    friend bool operator==(const Name&, const Name&) = default;
  };
  HostIdentity identity;
  std::vector<Name> names;         // the last is the one seen last; none: it was removed here
  bool is_held = false;            // by the kernel
  bool has_unsynced_name = false;  // it was made, renamed or linked here since it was synced
  std::uint64_t opens = 0;
  std::uint64_t below = 0;                 // names that have it for their directory
  std::shared_ptr<const HostFile> file;    // null: not open now
  std::shared_ptr<const UniqueFd> pinned;  // O_PATH, of one that has lost its last name here
};

class HostNodes {
 public:
  explicit HostNodes(const HostIdentity& root);

  // Ids are found again for the same file, also after its node was dropped.
  session::NodeId remember(const HostIdentity& identity, session::NodeId directory, std::string_view name);
  // nullptr: there is none.
  HostNode* find(session::NodeId node);
  std::optional<session::NodeId> find(const HostIdentity& identity);
  // The node is another file from here on, and that file this node.
  void become(session::NodeId node, const HostIdentity& identity);

  // Below the root, "" being the root itself: of each of its names.
  std::vector<std::string> paths(session::NodeId node);
  struct Path {
    HostNode::Name name;
    std::string path;
  };
  std::vector<Path> named_paths(session::NodeId node);

  void remove_name(session::NodeId node, const HostNode::Name& name);
  void add_name(session::NodeId node, const HostNode::Name& name);
  // Regular files that the kernel holds.
  std::vector<session::NodeId> held_files() const;

  // Unless it is in use it is dropped: at once without a name, else when thousands of others have come and gone.
  void let_go(session::NodeId node);

  // Counts one more open file that nobody has open; returns those to be closed for it.
  std::vector<std::shared_ptr<const HostFile>> keep_open(session::NodeId node);

 private:
  session::NodeId id_of(const HostIdentity& identity);
  void drop(session::NodeId node);
  void drop_oldest();
  bool is_in_use(const HostNode& node) const { return node.is_held || node.opens > 0 || node.below > 0; }

  const HostIdentity root_;
  std::unordered_map<session::NodeId, HostNode> nodes_;
  std::map<HostIdentity, session::NodeId> other_ids_;  // that are not made from the inode; kept to the end
  std::uint64_t next_other_id_ = 2;
  std::deque<session::NodeId> fresh_;   // came to be without a holder
  std::deque<session::NodeId> opened_;  // whose files are open though nobody has them open
};

}  // namespace escrow::storage
