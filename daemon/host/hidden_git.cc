#include "daemon/host/hidden_git.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "daemon/host/config.h"
#include "session/base/error.h"
#include "session/base/repo_path.h"
#include "session/decorators/mount_table.h"
#include "session/trees/git_file_rules.h"

namespace escrow::daemon {

using session::Attributes;
using session::Caller;
using session::Errc;
using session::Error;
using session::git_refuses_name;
using session::NodeId;

namespace {

constexpr std::size_t kMostNamed = 5, kMostOfGitFile = 8192;
constexpr std::string_view kGitFile = "gitdir: ";

std::string_view last_name_of(std::string_view path) { return path.substr(path.rfind('/') + 1); }

bool is_dot(std::string_view name) { return name == "." || name == ".."; }

std::string listed(const std::vector<std::string>& all) {
  std::string text;
  for (std::size_t at = 0; at < std::min(all.size(), kMostNamed); ++at) text += (at == 0 ? "" : ", ") + all[at];
  if (all.size() > kMostNamed) text += " and " + std::to_string(all.size() - kMostNamed) + " more";
  return text;
}

// Whether each way there is through a .git, whose own maker counts.
bool is_below_git(std::string_view target) {
  bool is_below = false;
  while (!target.empty()) {
    const std::string_view name = target.substr(0, target.find('/'));
    target.remove_prefix(std::min(target.size(), name.size() + 1));
    if (name == "..") is_below = false;
    else if (!name.empty() && name != ".") is_below = is_below || git_refuses_name(name);
  }
  return is_below;
}

// Not those inside of another. Sorted.
std::vector<std::string> git_below(const std::string& directory) {
  namespace fs = std::filesystem;
  std::vector<std::string> found;
  std::error_code error;  // of a directory that cannot be read; nobody reads it through the mount, either
  for (fs::recursive_directory_iterator at(directory, fs::directory_options::skip_permission_denied, error), end;
       at != end; at.increment(error)) {
    if (!git_refuses_name(at->path().filename().native())) continue;
    found.push_back(at->path().native().substr(directory.size() + 1));
    at.disable_recursion_pending();
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

std::string hand_of_user(unsigned uid) { return "user " + std::to_string(uid); }

std::string hand_of_command(const std::string& principal) {
  return "a confined command of " + session::quote_path(principal);
}

std::string hand_over_api(const std::string& principal) { return session::quote_path(principal) + " over the API"; }

HiddenGit::HiddenGit(session::FileSystem& inner, GitViewer viewer) : Inner(inner), viewer_(std::move(viewer)) {
  for (const std::string& path : viewer_.shown) show_by_path(path);
}

bool HiddenGit::hides(NodeId node, std::string_view name) {
  if (is_dot(name) || !git_refuses_name(name) || shown_.lock_shared()->contains(node.value)) return false;
  const std::optional<std::string> maker = Inner::xattr(node, session::kGitMaker);
  if (session::MountTable::is_beside_repository(node)) {
    if (!maker) return !viewer_.shows_entries;
    if (viewer_.shows_caches) return false;
  }
  if (viewer_.hand.empty() || maker != viewer_.hand) return true;
  return !leads_into_git(node);
}

bool HiddenGit::hides_cache_of(const std::string& maker) const {
  return !viewer_.shows_caches && (viewer_.hand.empty() || maker != viewer_.hand);
}

// Of one that is no directory: gitrepository-layout(5), "gitfile".
bool HiddenGit::leads_into_git(NodeId node) {
  const std::uint32_t type = Inner::attributes(node).mode & S_IFMT;
  if (type == S_IFDIR) return true;
  if (type == S_IFLNK) return is_below_git(Inner::read_link(node));
  if (type != S_IFREG) return false;
  std::string text(kMostOfGitFile, '\0');
  try {
    text.resize(Inner::read(node, 0, std::as_writable_bytes(std::span(text))));
  } catch (const Error&) {
    return false;  // its bytes are lost
  }
  text.erase(text.find_last_not_of("\r\n") + 1);
  return text.starts_with(kGitFile) && is_below_git(text.substr(kGitFile.size()));
}

bool HiddenGit::hides_there(NodeId directory, std::string_view name) {
  if (is_dot(name) || !git_refuses_name(name)) return false;
  const std::optional<Attributes> found = Inner::own_lookup(directory, name);
  return found && hides(found->node, name);
}

std::optional<NodeId> HiddenGit::node_at(const session::RepoPath& path) {
  NodeId node = session::kRootNode;
  for (const std::string_view name : path.components()) {
    const std::optional<Attributes> found = Inner::own_lookup(node, name);
    if (!found) return std::nullopt;
    node = found->node;
  }
  return node;
}

void HiddenGit::refuse_hidden(NodeId directory, std::string_view name) {
  if (hides_there(directory, name))
    throw Error(Errc::not_found, "'" + session::quote_path(name) + "' is not shown in this mount");
}

void HiddenGit::make_own(NodeId node, std::string_view name) {
  if (!git_refuses_name(name)) return;
  const bool can_note = !viewer_.hand.empty() && !session::MountTable::is_beside_repository(node);
  if (can_note) Inner::set_xattr(node, session::kGitMaker, viewer_.hand, session::XattrMode::any);
  if (!can_note || !S_ISDIR(Inner::attributes(node).mode)) shown_.lock()->insert(node.value);
}

void HiddenGit::make_own_as(NodeId directory, std::string_view name, std::string_view new_name) {
  if (!git_refuses_name(new_name)) return;
  if (const std::optional<Attributes> found = Inner::own_lookup(directory, name)) make_own(found->node, new_name);
}

void HiddenGit::taking_away(NodeId directory, std::string_view name, const std::function<void()>& work) {
  if (shown_.lock_shared()->empty()) return work();
  const std::optional<Attributes> found = Inner::own_lookup(directory, name);
  const bool is_last = found && (S_ISDIR(found->mode) || found->links <= 1);
  const bool was_shown = is_last && shown_.lock()->erase(found->node.value) > 0;
  try {
    work();
  } catch (...) {
    if (was_shown) shown_.lock()->insert(found->node.value);
    throw;
  }
}

void HiddenGit::show_by_path(const std::string& path) {
  const std::string quoted = "'" + session::quote_path(path) + "'";
  const session::RepoPath whole = session::RepoPath::parse(path, "--show-git");
  if (!git_refuses_name(last_name_of(whole.text())))
    throw Error(Errc::bad_request, "--show-git " + quoted + ": only a .git is hidden, and this has another name");
  const std::optional<NodeId> node = node_at(whole);
  if (!node) throw Error(Errc::not_found, "--show-git " + quoted + ": the session has nothing there");
  shown_.lock()->insert(node->value);
}

std::optional<Attributes> HiddenGit::lookup(NodeId directory, std::string_view name) {
  std::optional<Attributes> found = Inner::lookup(directory, name);
  if (found && hides(found->node, name)) found.reset();
  return found;
}

std::optional<Attributes> HiddenGit::own_lookup(NodeId directory, std::string_view name) {
  std::optional<Attributes> found = Inner::own_lookup(directory, name);
  if (found && hides(found->node, name)) found.reset();
  return found;
}

Attributes HiddenGit::make_node(NodeId directory, std::string_view name, std::uint32_t mode, std::uint32_t rdev,
                                const Caller& caller) {
  const Attributes made = Inner::make_node(directory, name, mode, rdev, caller);
  make_own(made.node, name);
  return made;
}

Attributes HiddenGit::make_symlink(NodeId directory, std::string_view name, std::string_view target,
                                   const Caller& caller) {
  const Attributes made = Inner::make_symlink(directory, name, target, caller);
  make_own(made.node, name);
  return made;
}

Attributes HiddenGit::link(NodeId node, NodeId directory, std::string_view name) {
  make_own(node, name);
  return Inner::link(node, directory, name);
}

void HiddenGit::unlink(NodeId directory, std::string_view name) {
  refuse_hidden(directory, name);
  taking_away(directory, name, [&] { Inner::unlink(directory, name); });
}

void HiddenGit::remove_directory(NodeId directory, std::string_view name) {
  refuse_hidden(directory, name);
  taking_away(directory, name, [&] { Inner::remove_directory(directory, name); });
}

void HiddenGit::rename(NodeId directory, std::string_view name, NodeId new_directory, std::string_view new_name,
                       session::RenameMode mode) {
  refuse_hidden(directory, name);
  const bool is_exchange = mode == session::RenameMode::exchange;
  if (is_exchange) refuse_hidden(new_directory, new_name);
  if (hides_there(new_directory, new_name))
    throw Error(Errc::exists, "there is a '" + session::quote_path(new_name) + "' that is not shown in this mount");
  // First: a commit that begins in between takes no more changes.
  make_own_as(directory, name, new_name);
  if (is_exchange) make_own_as(new_directory, new_name, name);
  const auto move = [&] { Inner::rename(directory, name, new_directory, new_name, mode); };
  is_exchange ? move() : taking_away(new_directory, new_name, move);
}

void HiddenGit::list(NodeId directory, std::uint64_t cookie,
                     const std::function<bool(const session::FileSystem::Entry&)>& visit) {
  Inner::list(directory, cookie, [&](const session::FileSystem::Entry& entry) {
    return hides(entry.node, entry.name) || visit(entry);
  });
}

std::vector<std::string> HiddenGit::hidden(session::Overlay& overlay, const std::string& session_directory,
                                           const std::vector<MountEntrySpec>& entries) {
  std::vector<std::string> paths = overlay.staged_paths();
  for (const MountEntrySpec& entry : entries) {
    if (viewer_.shows_entries || entry.content.empty()) continue;
    for (const std::string& path : git_below(session_directory + "/" + entry.content))
      paths.push_back(entry.path.text() + "/" + path);
  }
  std::erase_if(paths, [this](const std::string& path) {
    if (!git_refuses_name(last_name_of(path))) return true;
    const std::optional<NodeId> node = node_at(session::RepoPath::parse(path, "a path of the session"));
    return !node || !hides(*node, last_name_of(path));
  });
  return paths;
}

std::string describe_hidden_git(const std::string& session, const std::vector<std::string>& paths,
                                const std::vector<std::string>& caches) {
  if (paths.empty() && caches.empty()) return {};
  std::vector<std::string> hidden, quoted;
  for (const std::string& path : paths) quoted.push_back(session::quote_path(path));
  if (!quoted.empty()) hidden.push_back(listed(quoted));
  for (const std::string& cache : caches)
    hidden.push_back("each .git in the cache '" + session::quote_path(cache) + "'");
  return "hidden: " + listed(hidden) + " of session " + session +
         ", not made in a mount of this user; git would run the programs that it names. `escrow mount --session " +
         session + " --show-git PATH` shows one" +
         (paths.empty() ? "" : ", `escrow discard " + session + " PATH` removes it") +
         (caches.empty() ? "" : ", `escrow cache drop NAME` lets later sessions begin that cache anew");
}

}  // namespace escrow::daemon
