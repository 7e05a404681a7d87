// A session's files without the .git directories and files that others made in it: a decorator for a mount by somebody
// else (session_hands.h). Git would run the programs that their configuration names.
//
// Every name that git takes for .git counts, in every directory. A node is shown under such a name if it was given the
// name through this object, or was named by the mount's user (--show-git). Whoever looks for a hidden one is told
// Error{not_found}; to make one in its place is Error{exists}; its directory is not empty.
//
// Thread-safe.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/host/session_git.h"
#include "session/base/synchronized.h"
#include "session/interfaces/forwarding_file_system.h"
#include "session/transaction/session.h"

namespace escrow::daemon {

class HiddenGit final : public session::ForwardingFileSystem {
 public:
  // `inner` must outlive it. `shown`: paths below its root. Throws Error{not_found} for one where nothing is, and
  // Error{bad_request} for one with a name that is not hidden.
  HiddenGit(session::FileSystem& inner, const std::vector<std::string>& shown);

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

 private:
  using Inner = ForwardingFileSystem;

  bool hides(session::NodeId node, std::string_view name) const;
  void refuse_hidden(session::NodeId directory, std::string_view name);
  void show(session::NodeId node, std::string_view name);
  void show_if_there(session::NodeId directory, std::string_view name);
  void show_by_name(const std::string& path);

  session::SharedSynchronized<std::set<std::uint64_t>> shown_;  // nodes; a leaf
};

// What a host shows of the .git directories in a session.
struct GitView {
  std::optional<GitTerms> own;                    // nullopt: none of Escrow's
  std::optional<std::vector<std::string>> shown;  // for HiddenGit; nullopt: nothing is hidden
  std::string words{};                            // for people: what is hidden; or nothing
};
// Before the session is served to `hand`, which is noted (session_hands.h): to the first, with Escrow's own on its
// `terms`; to another, those at `shown`. Throws what note_hand() throws, and Error{bad_request} for what is no path.
GitView view_of_git(session::Session& session, const std::string& hand, const std::optional<GitTerms>& terms,
                    const std::vector<std::string>& shown);

// The paths that HiddenGit hides in a session that is not served yet. Sorted.
std::vector<std::string> git_made_in(session::Overlay& overlay);
// For people: that those of the session that others had are not shown, and how to see one. Empty without `paths`.
std::string describe_hidden_git(const std::string& session, const std::vector<std::string>& paths,
                                const std::vector<std::string>& others);

}  // namespace escrow::daemon
