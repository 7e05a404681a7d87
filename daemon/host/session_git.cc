#include "daemon/host/session_git.h"

#include <sys/stat.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "session/base/error.h"
#include "session/trees/git_file_rules.h"
#include "storage/bucket/bucket_name.h"
#include "storage/disk/durable_file.h"
#include "storage/git/object_format.h"
#include "storage/objects/zlib_stream.h"

namespace escrow::daemon {

using session::Attributes;
using session::Errc;
using session::Error;
using session::FileSystem;
using session::NodeId;
using session::ObjectId;

namespace {

constexpr std::size_t kLargestReference_bytes = 4096;
constexpr std::size_t kLargestPackedReferences_bytes = std::size_t{16} << 20;
constexpr std::size_t kLargestCommit_bytes = std::size_t{256} << 10;
constexpr std::size_t kLargestMessage_bytes = std::size_t{60} << 10;
constexpr std::size_t kMostCommits = 1000;
constexpr int kMostSymbolicReferences = 5;  // SYMREF_MAXDEPTH of git

class CommitsInside {
 public:
  explicit CommitsInside(session::Session& session) : session_(session), files_(session.file_system()) {}

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

constexpr char kNotedName[] = "/git";

// Why there can be no .git; nothing: there can.
std::string why_not(const session::SessionOptions& options, const std::string& place) {
  const char* hides = nullptr;
  if (!options.prefix.text().empty()) hides = "--path-prefix";
  if (!options.policies.empty()) hides = "--policy";
  if (hides != nullptr) {
    return std::string("--git and ") + hides + " exclude each other: git's objects know no paths, so they would show "
           "what " + hides + " hides; leave one of them out";
  }
  if (!storage::names_bucket(place)) return {};
  return "--git needs the repository's objects on this machine, and they are in a bucket; leave it out";
}

}  // namespace

std::optional<GitTerms> git_terms(const std::string& asked, bool by_default, const session::SessionOptions& options,
                                  const storage::Repository& repository, const std::string& place) {
  const bool is_limited = options.limits.staged_bytes != 0 || options.limits.files != 0;
  if (asked == "off" || (asked.empty() && (!by_default || is_limited || options.read_only))) return std::nullopt;
  const std::string why = why_not(options, place);
  if (!why.empty() && asked.empty()) return std::nullopt;
  if (!why.empty()) throw Error(Errc::bad_request, why);
  return GitTerms{.objects = objects_directory(repository)};
}

std::string objects_directory(const storage::Repository& repository) { return repository.git_directory() + "/objects"; }

void note_git_terms(const std::string& session_directory, const GitTerms& terms) {
  const std::string file = session_directory + kNotedName;
  storage::put_file(file, file + ".new", terms.objects, 0600);
}

std::optional<GitTerms> noted_git_terms(const std::string& session_directory) {
  const std::optional<std::string> text = storage::read_if_there(session_directory + kNotedName);
  if (!text) return std::nullopt;
  return GitTerms{.objects = *text};
}

std::string message_of(session::Session& session, const std::string& given) {
  if (!given.empty() || !session.record().message.empty()) return given;
  std::string message;
  try {
    const CommitsInside inside(session);
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
