#include "daemon/host/hidden_git.h"

#include <algorithm>
#include <optional>

#include "daemon/host/session_hands.h"
#include "session/base/error.h"
#include "session/base/repo_path.h"

namespace escrow::daemon {

using session::Attributes;
using session::Caller;
using session::Errc;
using session::Error;
using session::git_refuses_name;
using session::NodeId;

namespace {

constexpr std::size_t kMostNamed = 5;

std::string_view last_name_of(std::string_view path) { return path.substr(path.rfind('/') + 1); }

bool is_dot(std::string_view name) { return name == "." || name == ".."; }

std::string listed(const std::vector<std::string>& all) {
  std::string text;
  for (std::size_t at = 0; at < std::min(all.size(), kMostNamed); ++at) text += (at == 0 ? "" : ", ") + all[at];
  if (all.size() > kMostNamed) text += " and " + std::to_string(all.size() - kMostNamed) + " more";
  return text;
}

}  // namespace

HiddenGit::HiddenGit(session::FileSystem& inner, const std::vector<std::string>& shown) : Inner(inner) {
  for (const std::string& path : shown) show_by_name(path);
}

bool HiddenGit::hides(NodeId node, std::string_view name) const {
  return !is_dot(name) && git_refuses_name(name) && !shown_.lock_shared()->contains(node.value);
}

void HiddenGit::refuse_hidden(NodeId directory, std::string_view name) {
  if (is_dot(name) || !git_refuses_name(name)) return;
  const std::optional<Attributes> found = Inner::own_lookup(directory, name);
  if (found && hides(found->node, name))
    throw Error(Errc::not_found, "'" + session::quote_path(name) + "' is not shown in this mount");
}

void HiddenGit::show(NodeId node, std::string_view name) {
  if (git_refuses_name(name)) shown_.lock()->insert(node.value);
}

void HiddenGit::show_if_there(NodeId directory, std::string_view name) {
  if (!git_refuses_name(name)) return;
  if (const std::optional<Attributes> found = Inner::own_lookup(directory, name)) show(found->node, name);
}

void HiddenGit::show_by_name(const std::string& path) {
  const std::string quoted = "'" + session::quote_path(path) + "'";
  const session::RepoPath whole = session::RepoPath::parse(path, "--show-git");
  if (!git_refuses_name(last_name_of(whole.text())))
    throw Error(Errc::bad_request, "--show-git " + quoted + ": only a .git is hidden, and this has another name");
  NodeId node = session::kRootNode;
  for (const std::string_view name : whole.components()) {
    const std::optional<Attributes> found = Inner::own_lookup(node, name);
    if (!found) throw Error(Errc::not_found, "--show-git " + quoted + ": the session has nothing there");
    node = found->node;
  }
  shown_.lock()->insert(node.value);
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
  show(made.node, name);
  return made;
}

Attributes HiddenGit::make_symlink(NodeId directory, std::string_view name, std::string_view target,
                                   const Caller& caller) {
  const Attributes made = Inner::make_symlink(directory, name, target, caller);
  show(made.node, name);
  return made;
}

Attributes HiddenGit::link(NodeId node, NodeId directory, std::string_view name) {
  const Attributes made = Inner::link(node, directory, name);
  show(made.node, name);
  return made;
}

void HiddenGit::unlink(NodeId directory, std::string_view name) {
  refuse_hidden(directory, name);
  Inner::unlink(directory, name);
}

void HiddenGit::remove_directory(NodeId directory, std::string_view name) {
  refuse_hidden(directory, name);
  Inner::remove_directory(directory, name);
}

void HiddenGit::rename(NodeId directory, std::string_view name, NodeId new_directory, std::string_view new_name,
                       session::RenameMode mode) {
  refuse_hidden(directory, name);
  const bool is_exchange = mode == session::RenameMode::exchange;
  if (is_exchange) refuse_hidden(new_directory, new_name);
  Inner::rename(directory, name, new_directory, new_name, mode);
  show_if_there(new_directory, new_name);
  if (is_exchange) show_if_there(directory, name);
}

void HiddenGit::list(NodeId directory, std::uint64_t cookie,
                     const std::function<bool(const session::FileSystem::Entry&)>& visit) {
  Inner::list(directory, cookie, [&](const session::FileSystem::Entry& entry) {
    return hides(entry.node, entry.name) || visit(entry);
  });
}

GitView view_of_git(session::Session& session, const std::string& hand, const std::optional<GitTerms>& terms,
                    const std::vector<std::string>& shown) {
  const bool is_durable = !session.record().options.ephemeral;
  if (!has_hands(session.directory()) && !git_made_in(session.overlay()).empty())
    note_hand(session.directory(), kUnknownHand, is_durable);
  const std::vector<std::string> others = note_hand(session.directory(), hand, is_durable);
  if (others.empty()) return {.own = terms, .shown = std::nullopt};
  std::vector<std::string> hidden = git_made_in(session.overlay());
  for (const std::string& path : shown) std::erase(hidden, session::RepoPath::parse(path, "--show-git").text());
  return {.own = std::nullopt, .shown = shown, .words = describe_hidden_git(session.id().text(), hidden, others)};
}

std::vector<std::string> git_made_in(session::Overlay& overlay) {
  std::vector<std::string> paths = overlay.staged_paths();
  std::erase_if(paths, [](const std::string& path) { return !git_refuses_name(last_name_of(path)); });
  return paths;
}

std::string describe_hidden_git(const std::string& session, const std::vector<std::string>& paths,
                                const std::vector<std::string>& others) {
  if (paths.empty()) return {};
  std::vector<std::string> quoted;
  for (const std::string& path : paths) quoted.push_back(session::quote_path(path));
  return "hidden: " + listed(quoted) + " of session " + session + ", which was served to " + listed(others) +
         " before; git would run the programs that it names. `escrow mount --session " + session +
         " --show-git PATH` shows one, `escrow discard " + session + " PATH` removes it";
}

}  // namespace escrow::daemon
