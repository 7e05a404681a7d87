// Symbolic links that lead out of a mount cannot be followed: READLINK of one is EACCES. A decorator over a FileSystem.
//
// A link is contained when its target is relative and begins with no more ".." than its directory is deep, or is
// absolute and names something below the root as its users see it; ".." after a name makes it not contained, because
// the name could be a link by the time it is walked. Whether a link is contained never changes: somebody may be on the
// way through it, or the kernel hold its target, while names move (the symlink race). So a rename or link that would
// change it is refused; for that, what moves to another depth is walked. An absolute target below the host's mountpoint
// shows as its path below the root that users see: host paths never show. What is refused is told to the DenialSink.
// A target that no system call takes (link_target.h) is Error{input_output}. Thread-safe; a rename between directories
// excludes the others. Throws Error{access_denied} beside what it wraps throws. Source: path_resolution(7), symlink(7).
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "session/base/denial.h"
#include "session/base/synchronized.h"
#include "session/interfaces/forwarding_file_system.h"

namespace escrow::session {

// How many ".." a relative `target` begins with; nullopt when it has one after a name, or is absolute.
std::optional<std::size_t> leading_parents(std::string_view target);

class ContainedLinks final : public ForwardingFileSystem {
 public:
  // Absolute paths, without a slash at the end.
  struct Roots {
    std::string visible;  // the mount's root as its users see it
    std::string host;     // where it is mounted; may be the same
    std::string prefix;   // the root's path in the repository; "" for the whole
  };
  // Every path of a node below the root, without a leading slash; "" is the root. Overlay::names().
  using Paths = std::function<std::vector<std::string>(NodeId)>;

  // `inner` and `denials` must outlive this.
  ContainedLinks(FileSystem& inner, Paths paths, Roots roots, DenialSink& denials);

  std::string read_link(NodeId node) override;
  Attributes make_symlink(NodeId directory, std::string_view name, std::string_view target,
                          const Caller& caller) override;
  Attributes link(NodeId node, NodeId directory, std::string_view name) override;
  void rename(NodeId directory, std::string_view name, NodeId new_directory, std::string_view new_name,
              RenameMode mode) override;

 private:
  struct Names {};  // shared: what they are is relied on; exclusive: they change

  std::size_t depth_of(NodeId directory) const;
  bool is_contained(std::string_view target, std::size_t depth) const;
  [[noreturn]] void refuse(const char* operation, const std::string& path, const std::string& why);
  // Whether a link at or below `top` is contained at one of the depths (of its directory) and not at the other.
  bool changes_containment(NodeId top, std::uint32_t mode, std::size_t depth, std::size_t new_depth);

  const Paths paths_;                     // constant; self-locking
  const Roots roots_;                     // constant
  DenialSink& denials_;                   // self-locking
  SharedSynchronized<Names> names_;       // before the locks of what it wraps
};

}  // namespace escrow::session
