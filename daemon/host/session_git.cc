#include "daemon/host/session_git.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <span>
#include <string_view>
#include <vector>

#include "session/base/error.h"
#include "session/transaction/commit_message.h"
#include "session/trees/git_file_rules.h"
#include "storage/git/object_format.h"
#include "storage/git/work_tree_index.h"
#include "storage/objects/zlib_stream.h"

namespace escrow::daemon {

using session::Attributes;
using session::Errc;
using session::Error;
using session::FileSystem;
using session::NodeId;
using session::ObjectId;

namespace {

constexpr std::size_t kWritten_bytes = std::size_t{1} << 20;       // at once
constexpr std::size_t kLargestReference_bytes = 4096;
constexpr std::size_t kLargestPackedReferences_bytes = std::size_t{16} << 20;
constexpr std::size_t kLargestCommit_bytes = std::size_t{256} << 10;
constexpr std::size_t kLargestMessage_bytes = std::size_t{60} << 10;
constexpr std::size_t kMostCommits = 1000;
constexpr int kMostSymbolicReferences = 5;  // SYMREF_MAXDEPTH of git

// As a value of git-config(1).
std::string in_quotes(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return quoted + '"';
}

// Who commits inside is who the session's commit is by. The index is written before anything was looked up, so without
// inodes, owners and change times. Nothing inside needs to survive a power loss, and a collection of garbage would hide
// messages in packs.
std::string configuration(const session::SessionRecord& record) {
  const session::Signature who = session::signature_of(record.options.audit, {});
  return "[core]\n"
         "\trepositoryformatversion = 0\n"
         "\tfilemode = true\n"
         "\tbare = false\n"
         "\tlogallrefupdates = true\n"
         "\tcheckStat = minimal\n"
         "\ttrustctime = false\n"
         "\tfsync = none\n"
         "[gc]\n"
         "\tauto = 0\n"
         "[maintenance]\n"
         "\tauto = false\n"
         "[user]\n"
         "\tname = " + in_quotes(who.name) + "\n\temail = " + in_quotes(who.email) + "\n";
}

// ---- Writing.

class StagedDirectory {
 public:
  StagedDirectory(FileSystem& files, NodeId node, const session::SessionOptions& options)
      : files_(files), node_(node), options_(options) {}

  StagedDirectory make_directory(std::string_view name) const {
    const Attributes made = files_.make_node(node_, name, S_IFDIR | (0777u & ~options_.umask), 0, owner());
    return {files_, made.node, options_};
  }

  void make_file(std::string_view name, std::string_view bytes) const {
    const NodeId file = files_.make_node(node_, name, S_IFREG | (0666u & ~options_.umask), 0, owner()).node;
    for (std::size_t at = 0; at < bytes.size(); at += kWritten_bytes) {
      const std::string_view piece = bytes.substr(at, kWritten_bytes);
      files_.write(file, at, std::as_bytes(std::span(piece.data(), piece.size())), session::WriteOrigin::call);
    }
  }

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
  std::ifstream file(repository.git_directory() + "/info/exclude", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// ---- Reading what a command may have written.

class GitInside {
 public:
  explicit GitInside(session::Session& session) : session_(session), files_(session.file_system()) {}

  bool is_there() const { return find(std::string(".git/") + session::kOwnGitMark).has_value(); }

  // Of the commits that HEAD has and the repository has not, the oldest first. Empty unless they end at one that the
  // repository has.
  std::vector<std::string> messages() const {
    std::vector<std::string> messages;
    std::optional<ObjectId> id = head();
    while (id && !session_.quarantine().contains(*id)) {
      const std::optional<session::Commit> commit = read_commit(*id);
      if (!commit || commit->parents.empty() || messages.size() == kMostCommits) return {};
      messages.push_back(commit->message);
      id = commit->parents.front();
    }
    if (!id) return {};
    std::reverse(messages.begin(), messages.end());
    return messages;
  }

 private:
  std::optional<Attributes> find(std::string_view path) const {
    std::optional<Attributes> found;
    NodeId directory = session::kRootNode;
    while (!path.empty()) {
      const std::size_t slash = path.find('/');
      const std::string_view name = path.substr(0, slash);
      path.remove_prefix(slash == std::string_view::npos ? path.size() : slash + 1);
      if (found && !S_ISDIR(found->mode)) return std::nullopt;
      found = files_.own_lookup(directory, name);
      if (!found) return std::nullopt;
      directory = found->node;
    }
    return found;
  }

  std::optional<std::string> read(const std::string& path, std::size_t most_bytes) const {
    const std::optional<Attributes> found = find(path);
    if (!found || !S_ISREG(found->mode) || found->size_bytes > most_bytes) return std::nullopt;
    std::string bytes(found->size_bytes, '\0');
    bytes.resize(files_.read(found->node, 0, std::as_writable_bytes(std::span(bytes))));
    return bytes;
  }

  std::optional<ObjectId> head() const {
    std::string name = "HEAD";
    for (int step = 0; step < kMostSymbolicReferences; ++step) {
      const std::optional<std::string> text = read(".git/" + name, kLargestReference_bytes);
      if (!text) return packed(name);
      std::string_view value = *text;
      while (!value.empty() && (value.back() == '\n' || value.back() == ' ')) value.remove_suffix(1);
      if (!value.starts_with("ref: ")) return ObjectId::from_hex(value);
      name = value.substr(5);
      if (!name.starts_with("refs/") || name.find("..") != std::string::npos) return std::nullopt;
    }
    return std::nullopt;
  }

  std::optional<ObjectId> packed(const std::string& name) const {
    const std::optional<std::string> text = read(".git/packed-refs", kLargestPackedReferences_bytes);
    if (!text) return std::nullopt;
    const std::size_t at = text->find(" " + name + "\n");
    if (at == std::string::npos || at < 2 * ObjectId::kSize) return std::nullopt;
    return ObjectId::from_hex(std::string_view(*text).substr(at - 2 * ObjectId::kSize, 2 * ObjectId::kSize));
  }

  // A loose object: "commit SIZE\0" and the commit, deflated.
  std::optional<session::Commit> read_commit(const ObjectId& id) const {
    const std::string hex = id.hex();
    const auto deflated = read(".git/objects/" + hex.substr(0, 2) + "/" + hex.substr(2), kLargestCommit_bytes);
    if (!deflated) return std::nullopt;
    const std::optional<std::string> object = storage::inflate_small(*deflated, 2 * kLargestCommit_bytes);
    if (!object || !object->starts_with("commit ") || object->find('\0') == std::string::npos) return std::nullopt;
    return storage::decode_commit(std::string_view(*object).substr(object->find('\0') + 1), id);
  }

  session::Session& session_;
  FileSystem& files_;
};

// What a commit message may hold (check_commit_message()).
std::string plain(std::string_view message) {
  std::string text;
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == '\r') continue;
    text += (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f ? ' ' : c;
  }
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace

void check_git_inside(const session::SessionOptions& options) {
  const char* hides = nullptr;
  if (!options.prefix.text().empty()) hides = "--path-prefix";
  if (!options.policies.empty()) hides = "--policy";
  if (hides == nullptr) return;
  throw Error(Errc::bad_request, std::string("--git and ") + hides + " exclude each other: git's objects know no "
                                 "paths, so they would show what " + hides + " hides; leave one of them out");
}

std::string objects_directory(const storage::Repository& repository) { return repository.git_directory() + "/objects"; }

void add_git_directory(session::Session& session, const storage::Repository& repository, const std::string& objects) {
  const session::SessionRecord record = session.record();
  std::string index;
  if (record.base) {
    const session::Commit base = session.quarantine().read_commit(*record.base);
    const auto [below, times] = session.overlay().root_times();
    index = storage::work_tree_index(session.quarantine(), base.tree, below, times.get());
  }
  const StagedDirectory root(session.file_system(), session::kRootNode, record.options);
  const StagedDirectory git = root.make_directory(".git");
  git.make_file(session::kOwnGitMark, record.id.text() + "\n");
  git.make_file("config", configuration(record));
  git.make_file("description", "Session " + record.id.text() + " of Escrow\n");
  git.make_file("packed-refs", packed_references(record, repository));
  const StagedDirectory references = git.make_directory("refs");
  references.make_directory("heads");
  references.make_directory("tags");
  const StagedDirectory info = git.make_directory("info");
  info.make_file("exclude", exclude_file(repository));
  const StagedDirectory own_objects = git.make_directory("objects");
  own_objects.make_directory("pack");
  own_objects.make_directory("info").make_file("alternates", objects + "\n");
  if (!index.empty()) git.make_file("index", index);
  // Last: without it there is no repository.
  git.make_file("HEAD", "ref: refs/heads/" + record.options.branch + "\n");
}

std::string message_of(session::Session& session, const std::string& given) {
  if (!given.empty() || !session.record().message.empty()) return given;
  std::string message;
  try {
    const GitInside inside(session);
    if (!inside.is_there()) return given;
    for (const std::string& one : inside.messages()) {
      const std::string text = plain(one);
      if (text.empty()) continue;
      if (message.size() + text.size() > kLargestMessage_bytes) break;
      message += (message.empty() ? "" : "\n\n") + text;
    }
  } catch (const Error&) {
    return given;  // what is damaged says nothing; whether the session can be committed is not decided here
  }
  return message;
}

}  // namespace escrow::daemon
