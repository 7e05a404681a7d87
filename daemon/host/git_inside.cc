#include "daemon/host/git_inside.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "session/base/clock.h"
#include "session/base/error.h"
#include "session/transaction/commit_message.h"
#include "session/trees/git_file_rules.h"
#include "storage/disk/durable_file.h"
#include "storage/git/work_tree_index.h"

namespace escrow::daemon {

using session::Attributes;
using session::Error;
using session::FileSystem;
using session::NodeId;
using session::ObjectId;

namespace {

constexpr std::size_t kWritten_bytes = std::size_t{1} << 20;  // at once
constexpr char kProgress[] = "escrow-session";                // a file in it; the directory is known by kOwnGitMark
constexpr char kUnderWay[] = "is being made\n";               // in that file, until everything is there
constexpr char kIndexUnderWay[] = "index.escrow";
constexpr std::chrono::milliseconds kCoarseTick{10};           // CLOCK_REALTIME_COARSE is not further behind, at HZ=100

// As a value of git-config(1).
std::string quoted_value(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return quoted + '"';
}

// Commits inside have the committer of the session's commit. No file inside needs to survive a power loss, and a
// collection of garbage would hide messages in packs.
std::string configuration(const session::SessionRecord& record) {
  const session::Signature who = session::signature_of(record.options.audit, {});
  return "[core]\n"
         "\trepositoryformatversion = 0\n"
         "\tfilemode = true\n"
         "\tbare = false\n"
         "\tlogallrefupdates = true\n"
         "\tfsync = none\n"
         "[gc]\n"
         "\tauto = 0\n"
         "[maintenance]\n"
         "\tauto = false\n"
         "[user]\n"
         "\tname = " + quoted_value(who.name) + "\n\temail = " + quoted_value(who.email) + "\n";
}

class StagedDirectory {
 public:
  StagedDirectory(FileSystem& files, NodeId node, const session::SessionOptions& options)
      : files_(files), node_(node), options_(options) {}

  StagedDirectory make_directory(std::string_view name) const {
    const Attributes made = files_.make_node(node_, name, S_IFDIR | (0777u & ~options_.umask), 0, owner());
    return {files_, made.node, options_};
  }

  NodeId make_file(std::string_view name, std::string_view bytes) const {
    const NodeId file = files_.make_node(node_, name, S_IFREG | (0666u & ~options_.umask), 0, owner()).node;
    for (std::size_t at = 0; at < bytes.size(); at += kWritten_bytes) {
      const std::string_view piece = bytes.substr(at, kWritten_bytes);
      files_.write(file, at, std::as_bytes(std::span(piece.data(), piece.size())), session::WriteOrigin::call);
    }
    return file;
  }
  NodeId node() const { return node_; }

 private:
  session::Caller owner() const { return {.uid = options_.uid, .gid = options_.gid}; }

  FileSystem& files_;
  const NodeId node_;
  const session::SessionOptions& options_;
};

// As git-pack-refs(1) writes them: sorted by name.
std::string packed_references(const session::SessionRecord& record, const storage::Repository& repository) {
  std::vector<std::pair<std::string, ObjectId>> references;
  if (record.base) references.emplace_back("refs/heads/" + record.options.branch, *record.base);
  for (const auto& [branch, head] : repository.branches())
    references.emplace_back("refs/remotes/origin/" + branch, head);
  std::sort(references.begin(), references.end());
  std::string text = "# pack-refs with: sorted \n";
  for (const auto& [name, id] : references) text += id.hex() + " " + name + "\n";
  return text;
}

std::string exclude_file(const storage::Repository& repository) {
  return storage::read_if_there(repository.git_directory() + "/info/exclude").value_or("");
}

void remove_below(FileSystem& files, NodeId directory) {
  std::vector<std::pair<std::string, std::pair<NodeId, bool>>> entries;
  files.list(directory, 0, [&](const FileSystem::Entry& entry) {
    if (entry.name != "." && entry.name != "..")
      entries.push_back({std::string(entry.name), {entry.node, S_ISDIR(entry.mode)}});
    return true;
  });
  for (const auto& [name, what] : entries) {
    if (what.second) {
      remove_below(files, what.first);
      files.remove_directory(directory, name);
    } else {
      files.unlink(directory, name);
    }
  }
}

// The attributes come first: of a file that is unchanged afterwards they are those of an unchanged one.
std::optional<Attributes> shown_unchanged(session::Overlay& overlay, NodeId directory,
                                          const session::TreeEntry& entry) {
  if (entry.name.size() > NAME_MAX) return std::nullopt;
  std::optional<Attributes> found = overlay.lookup(directory, entry.name);
  if (!found) return std::nullopt;
  const bool is_same = entry.mode == session::GitMode::tree ? S_ISDIR(found->mode)
                                                            : overlay.origin(found->node).id == entry.id;
  return is_same ? found : std::nullopt;
}

std::string read_progress(FileSystem& files, NodeId file) {
  std::string bytes(sizeof kUnderWay - 1, '\0');
  bytes.resize(files.read(file, 0, std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

}  // namespace

GitInside::GitInside(FileSystem& inner, session::Session& session, const storage::Repository& repository,
                     session::Log& log, GitTerms terms, std::string hand)
    : Inner(inner),
      session_(session),
      repository_(repository),
      log_(log),
      terms_(std::move(terms)),
      hand_(std::move(hand)) {}

// Nothing else is written in a session that is read-only.
FileSystem& GitInside::files() {
  if (session_.record().options.read_only) return session_.overlay();
  return session_.file_system();
}

std::optional<Attributes> GitInside::lookup(NodeId directory, std::string_view name) {
  be_ready_for(directory, name);
  return Inner::lookup(directory, name);
}

std::optional<Attributes> GitInside::own_lookup(NodeId directory, std::string_view name) {
  be_ready_for(directory, name);
  return Inner::own_lookup(directory, name);
}

void GitInside::unlink(NodeId directory, std::string_view name) {
  Inner::unlink(directory, name);
  forget(directory, name);
}

void GitInside::remove_directory(NodeId directory, std::string_view name) {
  Inner::remove_directory(directory, name);
  forget(directory, name);
}

void GitInside::rename(NodeId directory, std::string_view name, NodeId new_directory, std::string_view new_name,
                       session::RenameMode mode) {
  Inner::rename(directory, name, new_directory, new_name, mode);
  forget(directory, name);
}

void GitInside::forget(NodeId directory, std::string_view name) {
  if (directory == session::kRootNode && name == ".git") {
    is_removed_ = true;
    own_ = 0;
  } else if (is_own(directory) && name == "index") {
    is_index_removed_ = true;
  }
}

void GitInside::list(NodeId directory, std::uint64_t cookie,
                     const std::function<bool(const FileSystem::Entry&)>& visit) {
  if (is_own(directory)) be_ready_for(directory, "index");
  if (directory != session::kRootNode) return Inner::list(directory, cookie, visit);
  Inner::list(directory, cookie, [&](const FileSystem::Entry& entry) {
    if (entry.name == ".git" && (is_own(entry.node) || (own_ == 0 && adopt() && is_own(entry.node)))) return true;
    return visit(entry);
  });
}

void GitInside::be_ready_for(NodeId directory, std::string_view name) {
  const bool is_root = directory == session::kRootNode;
  if (is_root ? name != ".git" || is_removed_ : name != "index" || !is_own(directory) || is_index_removed_) return;
  if (const auto found = Inner::own_lookup(directory, name); found && (!is_root || is_own(found->node))) return;
  try {
    const auto held = making_.lock();
    if (is_root) make_directory();
    else if (!Inner::own_lookup(directory, name)) make_index();
  } catch (const Error& error) {
    log_.write(session::LogLevel::warning,
               "session " + session_.id().text() + " has no .git: it could not be made: " + error.what());
  }
}

// Whether what is there is Escrow's, for this hand.
bool GitInside::adopt() {
  const std::optional<Attributes> found = Inner::own_lookup(session::kRootNode, ".git");
  if (!found || !S_ISDIR(found->mode) || !Inner::xattr(found->node, session::kOwnGitMark)) return false;
  if (Inner::xattr(found->node, session::kGitMaker) != hand_) return false;
  own_ = found->node.value;
  return true;
}

void GitInside::make_directory() {
  FileSystem& target = files();
  const std::optional<Attributes> found = target.own_lookup(session::kRootNode, ".git");
  if (found) {
    if (!adopt()) return;
    const std::optional<Attributes> progress = target.own_lookup(found->node, kProgress);
    if (!progress || read_progress(target, progress->node) != kUnderWay) return;
    // The process that made it was killed.
    remove_below(target, found->node);
    target.remove_directory(session::kRootNode, ".git");
  }
  const session::SessionRecord record = session_.record();
  const StagedDirectory root(target, session::kRootNode, record.options);
  const StagedDirectory git = root.make_directory(".git");
  target.set_xattr(git.node(), session::kOwnGitMark, record.id.text(), session::XattrMode::create);
  target.set_xattr(git.node(), session::kGitMaker, hand_, session::XattrMode::any);
  const NodeId progress = git.make_file(kProgress, kUnderWay);
  own_ = git.node().value;
  is_index_removed_ = !record.base;
  git.make_file("config", configuration(record));
  git.make_file("description", "Session " + record.id.text() + " of Escrow\n");
  git.make_file("packed-refs", packed_references(record, repository_));
  const StagedDirectory references = git.make_directory("refs");
  references.make_directory("heads");
  references.make_directory("tags");
  const StagedDirectory info = git.make_directory("info");
  info.make_file("exclude", exclude_file(repository_));
  const StagedDirectory own_objects = git.make_directory("objects");
  own_objects.make_directory("pack");
  own_objects.make_directory("info").make_file(
      "alternates", (terms_.objects.empty() ? kObjectsInMount + sizeof(".git/objects/") - 1 : terms_.objects) + "\n");
  git.make_file("HEAD", "ref: refs/heads/" + record.options.branch + "\n");
  const std::string whole = record.id.text() + "\n";
  target.change_attributes(progress, {.size_bytes = 0});
  target.write(progress, 0, std::as_bytes(std::span(whole)), session::WriteOrigin::call);
}

// The file has the time of before anybody was asked what is changed: what changes afterwards is not older, and so is
// read by git.
void GitInside::make_index() {
  const session::SessionRecord record = session_.record();
  if (!record.base) return;
  const session::Commit base = session_.quarantine().read_commit(*record.base);
  const storage::WorkTree work_tree{
      .tree = base.tree,
      .shown = [&overlay = session_.overlay()](NodeId directory, const session::TreeEntry& entry) {
        return shown_unchanged(overlay, directory, entry);
      },
      .has_lfs_files = !record.options.shows_lfs_pointers};
  session::Timestamp written;
  const auto make = [&] {
    written = session::SystemClock().now();
    return storage::work_tree_index(session_.quarantine(), work_tree, written);
  };
  storage::WorkTreeIndex index = make();
  if (index.is_too_early) {
    std::this_thread::sleep_until(std::chrono::system_clock::time_point(std::chrono::seconds(written.seconds + 1)) +
                                  kCoarseTick);
    index = make();
  }
  FileSystem& target = files();
  const NodeId git{own_.load()};
  if (target.own_lookup(git, kIndexUnderWay)) target.unlink(git, kIndexUnderWay);
  const NodeId file = StagedDirectory(target, git, record.options).make_file(kIndexUnderWay, index.bytes);
  target.change_attributes(file, {.modified = written});
  target.rename(git, kIndexUnderWay, git, "index", session::RenameMode::no_replace);
}

}  // namespace escrow::daemon
