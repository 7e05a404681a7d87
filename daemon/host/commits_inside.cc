#include "daemon/host/commits_inside.h"

#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "session/base/error.h"
#include "session/base/synchronized.h"
#include "session/trees/git_file_rules.h"
#include "storage/git/object_format.h"
#include "storage/objects/zlib_stream.h"

namespace escrow::daemon {

using session::Attributes;
using session::Errc;
using session::Error;
using session::FileSystem;
using session::NodeId;
using session::ObjectId;
using storage::ObjectType;

namespace {

constexpr std::size_t kLargestReference_bytes = 4096;
constexpr std::size_t kLargestPackedReferences_bytes = std::size_t{16} << 20;
constexpr std::size_t kLargestCommit_bytes = std::size_t{512} << 10;
constexpr std::size_t kLargestTree_bytes = std::size_t{64} << 20;
constexpr std::size_t kLargestHeader_bytes = 32;  // "commit ", a size, and a zero
constexpr std::size_t kMostCommits = 1000;
constexpr int kMostSymbolicReferences = 5;  // SYMREF_MAXDEPTH of git

class FilesOfGit {
 public:
  explicit FilesOfGit(session::Session& session) : files_(session.file_system()) {}

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

  std::optional<Attributes> find_file(const std::string& path) const {
    std::optional<Attributes> found = find(path);
    if (found && !S_ISREG(found->mode)) found.reset();
    return found;
  }

  std::size_t read_at(NodeId file, std::uint64_t offset, std::span<std::byte> out) const {
    return files_.read(file, offset, out);
  }

  std::optional<std::string> read(const std::string& path, std::size_t most_bytes) const {
    const std::optional<Attributes> found = find_file(path);
    if (!found || found->size_bytes > most_bytes) return std::nullopt;
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

 private:
  std::optional<ObjectId> packed(const std::string& name) const {
    const std::optional<std::string> text = read(".git/packed-refs", kLargestPackedReferences_bytes);
    if (!text) return std::nullopt;
    const std::size_t at = text->find(" " + name + "\n");
    if (at == std::string::npos || at < 2 * ObjectId::kSize) return std::nullopt;
    return ObjectId::from_hex(std::string_view(*text).substr(at - 2 * ObjectId::kSize, 2 * ObjectId::kSize));
  }

  FileSystem& files_;
};

// A loose object: "TYPE SIZE\0" and its bytes, deflated; read from front to back, or begun again.
class LooseObject final : public session::ByteSource {
 public:
  LooseObject(FilesOfGit files, const ObjectId& id)
      : files_(files), name_("object " + id.hex() + " of the session's .git") {
    const std::string hex = id.hex();
    const auto found = files_.find_file(".git/objects/" + hex.substr(0, 2) + "/" + hex.substr(2));
    if (!found)
      throw Error(Errc::input_output, name_ + " is not there as a loose one (git gc and large fetches pack them)");
    node_ = found->node;
    begin(*state_.lock());
  }

  ObjectType type() const { return type_; }
  std::uint64_t size() const override { return size_; }

  std::size_t read(std::uint64_t offset, std::span<std::byte> out) const override {
    const auto state = state_.lock();
    if (offset < state->at) begin(*state);
    std::vector<std::byte> passed_over(std::size_t{64} << 10);
    while (state->at < offset) {
      const std::size_t wanted = std::min<std::uint64_t>(passed_over.size(), offset - state->at);
      const std::size_t got = state->bytes->read(std::span(passed_over).first(wanted));
      state->at += got;
      if (got < wanted) return 0;
    }
    const std::size_t got =
        state->bytes->read(out.first(std::min<std::uint64_t>(out.size(), size_ - std::min(size_, offset))));
    state->at += got;
    return got;
  }

  // Of a small one, whose bytes are those of its id.
  std::string whole(ObjectType type, const ObjectId& id, std::size_t most_bytes) const {
    if (type_ != type || size_ > most_bytes) throw Error(Errc::input_output, name_ + " is none that can be read");
    std::string bytes(size_, '\0');
    if (read(0, std::as_writable_bytes(std::span(bytes))) != size_ || storage::hash_object(type, bytes) != id)
      throw Error(Errc::input_output, name_ + " has other bytes than its id says");
    return bytes;
  }

 private:
  struct State {
    std::unique_ptr<storage::InflateReader> bytes;
    std::uint64_t at = 0;
  };

  void begin(State& state) const {
    state.bytes = std::make_unique<storage::InflateReader>(
        [this](std::uint64_t offset, std::span<std::byte> out) { return files_.read_at(node_, offset, out); }, 0,
        name_);
    state.at = 0;
    std::string header;
    for (std::byte one{}; state.bytes->read(std::span(&one, 1)) == 1 && one != std::byte{0};) {
      header += static_cast<char>(one);
      if (header.size() > kLargestHeader_bytes) break;
    }
    const std::size_t space = header.find(' ');
    for (const ObjectType type : {ObjectType::commit, ObjectType::tree, ObjectType::blob})
      if (header.substr(0, space) == storage::name_of(type)) type_ = type;
    const std::string digits = space == std::string::npos ? "" : header.substr(space + 1);
    if (digits.empty() || digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string::npos)
      throw Error(Errc::input_output, name_ + " is not what git writes");
    size_ = std::stoull(digits);
  }

  const FilesOfGit files_;
  const std::string name_;
  NodeId node_{};
  mutable ObjectType type_ = ObjectType::tag;  // with `size_`: as the constructor found them, each time the same
  mutable std::uint64_t size_ = 0;
  mutable session::Synchronized<State> state_{};
};

// The session's own part.
class ObjectsInside final : public session::ObjectReader {
 public:
  explicit ObjectsInside(session::Session& session) : files_(session) {}

  session::Tree read_tree(const ObjectId& id) const override {
    return storage::decode_tree(LooseObject(files_, id).whole(ObjectType::tree, id, kLargestTree_bytes), id);
  }
  session::Commit read_commit(const ObjectId& id) const override {
    return storage::decode_commit(LooseObject(files_, id).whole(ObjectType::commit, id, kLargestCommit_bytes), id);
  }
  std::uint64_t blob_size(const ObjectId& id) const override { return open_blob(id)->size(); }
  std::shared_ptr<const session::ByteSource> open_blob(const ObjectId& id) const override {
    auto object = std::make_shared<LooseObject>(files_, id);
    if (object->type() != ObjectType::blob) throw Error(Errc::input_output, "object " + id.hex() + " is no blob");
    return object;
  }
  bool contains(const ObjectId& id) const override {
    const std::string hex = id.hex();
    return files_.find_file(".git/objects/" + hex.substr(0, 2) + "/" + hex.substr(2)).has_value();
  }

 private:
  const FilesOfGit files_;
};

}  // namespace

session::CommitsInside commits_inside(session::Session& session) {
  const FilesOfGit files(session);
  session::CommitsInside inside;
  const std::optional<Attributes> git = files.find(".git");
  if (!git || !session.file_system().xattr(git->node, session::kOwnGitMark)) return inside;
  const auto objects = std::make_shared<ObjectsInside>(session);
  std::optional<ObjectId> id = files.head();
  while (id && !session.quarantine().contains(*id)) {
    if (!objects->contains(*id)) return {.why_not = "commit " + id->hex() + " is not there as a loose object"};
    const session::Commit commit = objects->read_commit(*id);
    if (commit.parents.empty()) return {.why_not = "they do not begin at a commit of the repository"};
    if (inside.commits.size() == kMostCommits) return {.why_not = "there are more than 1000"};
    if (commit.parents.size() > 1) inside.why_not = "there is a merge among them";
    inside.commits.push_back({commit.message, commit.tree, commit.author.time_s});
    id = commit.parents.front();
  }
  if (!id) return {};
  std::reverse(inside.commits.begin(), inside.commits.end());
  inside.base = id;
  inside.objects = objects;
  return inside;
}

}  // namespace escrow::daemon
