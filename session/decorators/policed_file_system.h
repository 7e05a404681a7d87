// Refuses what a session's policies do not allow, in the very call: Error{access_denied}.
//
// A decorator over a FileSystem (a mount's requests come here, then pass the WriteGate). Opens must reach it where
// the policy can deny them on what can be seen (AccessPolicy::can_deny_on_seen_file). What each call needs:
// SEMANTICS.md. An action on a file is allowed when it is allowed at every one of its names; an action on a name when
// it is allowed there. Descriptors keep what they were opened for: reading, writing and listing through one is not
// refused, but a listing shows only what may be listed. Thread-safe; judgements are remembered by node, in bounded
// memory. Locks: INVARIANTS.md.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "session/base/denial.h"
#include "session/base/synchronized.h"
#include "session/decorators/access_policy.h"
#include "session/interfaces/forwarding_file_system.h"
#include "session/overlay/overlay.h"

namespace escrow::session {

// What is allowed on nodes, remembered until a name of theirs changes. Thread-safe; bounded.
class RememberedJudgements {
 public:
  std::optional<Actions> find(NodeId node);
  // To be taken before what is remembered is judged: a name that changes in between makes it void.
  std::uint64_t now() const { return changes_.load(); }
  void remember(NodeId node, Actions allowed, std::uint64_t judged_at);
  void forget(NodeId node);
  void forget_all();

 private:
  using Shard = std::unordered_map<NodeId, Actions>;
  static constexpr std::size_t kShards = 16, kShardLimit = 16384;
  Synchronized<Shard>& shard_of(NodeId node) { return shards_[node.value % kShards]; }

  std::atomic<std::uint64_t> changes_ = 0;         // grows before a shard forgets
  std::array<Synchronized<Shard>, kShards> shards_;  // self-locking
};

class PolicedFileSystem final : public ForwardingFileSystem {
 public:
  // What a node is called, below the root: Overlay::names().
  using NamesOf = std::function<Overlay::Names(NodeId)>;

  // All must outlive it. `prefix` is the path of the root in the repository.
  PolicedFileSystem(FileSystem& inner, NamesOf names_of, std::string prefix, const AccessPolicy& policy,
                    DenialSink& denials)
      : ForwardingFileSystem(inner), names_of_(std::move(names_of)), prefix_(std::move(prefix)), policy_(policy),
        denials_(denials) {}
  PolicedFileSystem(FileSystem& inner, Overlay& overlay, std::string prefix, const AccessPolicy& policy,
                    DenialSink& denials)
      : PolicedFileSystem(inner, [&overlay](NodeId node) { return overlay.names(node); }, std::move(prefix), policy,
                          denials) {}

  std::optional<Attributes> lookup(NodeId directory, std::string_view name) override;
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
  void list(NodeId directory, std::uint64_t cookie, const std::function<bool(const Entry&)>& visit) override;
  std::optional<std::string> xattr(NodeId node, std::string_view name) override;
  std::vector<std::string> xattr_names(NodeId node) override;
  void set_xattr(NodeId node, std::string_view name, std::string_view value, XattrMode mode) override;
  void remove_xattr(NodeId node, std::string_view name) override;
  void release(NodeId node) override;

 private:
  using Inner = ForwardingFileSystem;
  // A path of the repository and what the rules say of it.
  struct Spot {
    std::string path;
    AccessPolicy::Place place;
    bool is_directory = false;
  };
  // Held shared by calls that change one name, exclusively while a directory is judged with all it holds and moved.
  struct Names {};
  // What a node was allowed when it lost its last name, while the kernel holds it.
  using Orphans = std::unordered_map<NodeId, Actions>;
  class Removal;

  std::string in_repository(const std::string& path) const;
  std::optional<Spot> find_directory(NodeId directory);
  Spot directory_at(NodeId directory);  // throws not_found for one that was removed
  Spot spot_in(const Spot& directory, std::string_view name, bool is_directory) const;
  Actions allowed_on(NodeId node);
  Actions judge(NodeId node);
  void require_on(NodeId node, Action action, const char* operation);
  void require_at(const Spot& spot, Action action, const char* operation);
  [[noreturn]] void refuse(const std::string& path, bool is_directory, Action action, const char* operation);
  bool only_clears_set_id(NodeId node, const AttributeChange& change);
  void remove(NodeId directory, std::string_view name, bool is_directory, const char* operation);

  // policed_moves.cc
  bool try_rename(NodeId directory, std::string_view name, NodeId new_directory, std::string_view new_name,
                  RenameMode mode, bool may_move_directories);
  void require_move(const Spot& from, const Spot& to);
  void require_move_of_all(NodeId directory, const Spot& from, const Spot& to);

  const NamesOf names_of_;         // constant; self-locking
  const std::string prefix_;       // constant
  const AccessPolicy& policy_;     // constant
  DenialSink& denials_;            // constant
  SharedSynchronized<Names> names_;
  RememberedJudgements remembered_;  // self-locking
  Synchronized<Orphans> orphans_;    // leaf
};

}  // namespace escrow::session
