// A session's files without the .git directories and files of other hands: the decorator of every mount. Git would run
// the programs that their configuration names.
//
// A hand is a user's own programs, the confined commands of a principal, or a principal's mounts by escrowd. Each .git
// notes the hand whose mount gave it its name (kGitMaker): it is shown to this hand only; a file or link only if it
// leads into another .git, or was made through this mount: others can write elsewhere. Every name that git takes for
// .git counts, in every directory. To look for a hidden one, to remove or to move it is Error{not_found}; to make one
// in its place or to move something there is Error{exists}; its directory is not empty.
//
// In a cache each .git has as its maker the only hand whose sessions wrote to the cache, and none if several did.
// Other entries of a mount table are directories of the host and note nothing: see GitViewer. Thread-safe.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/host/mount_entry_spec.h"
#include "session/base/synchronized.h"
#include "session/interfaces/forwarding_file_system.h"
#include "session/overlay/overlay.h"

namespace escrow::daemon {

// A program that works with the rights of this user.
std::string hand_of_user(unsigned uid);
// A confined command, or one in a container, that `principal` started: not a program of that user.
std::string hand_of_command(const std::string& principal);
// A mount that escrowd made for `principal`.
std::string hand_over_api(const std::string& principal);

// For whom a mount is.
struct GitViewer {
  std::string hand{};                // empty: unknown; such a mount shows what was made through itself
  std::vector<std::string> shown{};  // paths of others' that it shows (--show-git); they stay their makers'
  // Whether it shows those in entries of the mount table that are no caches, too: nobody had the session before, or
  // what git runs here is confined.
  bool shows_entries = false;
  // And those in caches, whoever wrote to them: what git runs here is confined.
  bool shows_caches = false;
};

class HiddenGit final : public session::ForwardingFileSystem {
 public:
  // `inner` must outlive it. Throws Error{not_found} for a path of viewer.shown where nothing is, and
  // Error{bad_request} for one with a name that is not hidden.
  HiddenGit(session::FileSystem& inner, GitViewer viewer);

  std::optional<session::Attributes> lookup(session::NodeId directory, std::string_view name) override;
  std::optional<session::Attributes> own_lookup(session::NodeId directory, std::string_view name) override;
  session::Attributes make_node(session::NodeId directory, std::string_view name, std::uint32_t mode,
                                std::uint32_t rdev, const session::Caller& caller) override;
  session::Attributes make_symlink(session::NodeId directory, std::string_view name, std::string_view target,
                                   const session::Caller& caller) override;
  session::Attributes link(session::NodeId node, session::NodeId directory, std::string_view name) override;
  void unlink(session::NodeId directory, std::string_view name) override;
  void remove_directory(session::NodeId directory, std::string_view name) override;
  void rename(session::NodeId directory, std::string_view name, session::NodeId new_directory,
              std::string_view new_name, session::RenameMode mode) override;
  void list(session::NodeId directory, std::uint64_t cookie,
            const std::function<bool(const session::FileSystem::Entry&)>& visit) override;

  // The paths of those that are hidden among the session's own files, which are the overlay's, and in the copies among
  // its entries. Sorted in each.
  std::vector<std::string> hidden(session::Overlay& overlay, const std::string& session_directory,
                                  const std::vector<MountEntrySpec>& entries);
  // Whether those of a cache with this kGitMaker are hidden.
  bool hides_cache_of(const std::string& maker) const;

 private:
  using Inner = ForwardingFileSystem;

  bool hides(session::NodeId node, std::string_view name);
  bool leads_into_git(session::NodeId node);
  bool hides_there(session::NodeId directory, std::string_view name);
  std::optional<session::NodeId> node_at(const session::RepoPath& path);
  void refuse_hidden(session::NodeId directory, std::string_view name);
  void make_own(session::NodeId node, std::string_view name);
  // Of the node that has `name` and is to get `new_name`.
  void make_own_as(session::NodeId directory, std::string_view name, std::string_view new_name);
  void show_by_path(const std::string& path);
  // Does `work`, which takes `name` away: another node may get the number of one that is gone.
  void taking_away(session::NodeId directory, std::string_view name, const std::function<void()>& work);

  const GitViewer viewer_;
  session::SharedSynchronized<std::set<std::uint64_t>> shown_;  // nodes; a leaf
};

// For people: that these are not shown, nor any in these caches, and how to see one. Empty without both.
std::string describe_hidden_git(const std::string& session, const std::vector<std::string>& paths,
                                const std::vector<std::string>& caches);

}  // namespace escrow::daemon
