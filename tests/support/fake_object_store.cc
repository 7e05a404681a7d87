#include "tests/support/fake_object_store.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <stdexcept>

#include <openssl/sha.h>

#include "session/base/error.h"

namespace escrow::support {
namespace {

using session::Commit;
using session::Errc;
using session::Error;
using session::GitMode;
using session::ObjectId;
using session::Signature;
using session::Tree;
using session::TreeEntry;

ObjectId hash(std::string_view type, std::string_view body) {
  std::string text(type);
  text += ' ' + std::to_string(body.size());
  text += '\0';
  text += body;
  std::array<unsigned char, SHA_DIGEST_LENGTH> digest;
  SHA1(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return ObjectId::from_raw(digest.data());
}

std::string sort_key(const TreeEntry& entry) {
  return entry.mode == GitMode::tree ? entry.name + '/' : entry.name;
}

std::string canonical(const Tree& tree) {
  std::string body;
  for (std::size_t i = 0; i < tree.size(); ++i) {
    const TreeEntry& entry = tree[i];
    if (entry.name.empty() || entry.name.find('/') != std::string::npos || entry.id.is_null())
      throw std::logic_error("put_tree: entry '" + entry.name + "' is not legal in a git tree");
    if (i > 0 && sort_key(tree[i - 1]) >= sort_key(entry))
      throw std::logic_error("put_tree: '" + entry.name + "' is out of git's order");
    char mode[8];
    std::snprintf(mode, sizeof mode, "%o", static_cast<unsigned>(entry.mode));
    body += mode;
    body += ' ' + entry.name + '\0';
    body.append(reinterpret_cast<const char*>(entry.id.bytes().data()), ObjectId::kSize);
  }
  return body;
}

std::string canonical(const Signature& signature) {
  char zone[16];
  const int minutes = std::abs(signature.offset_minutes);
  std::snprintf(zone, sizeof zone, "%c%02d%02d", signature.offset_minutes < 0 ? '-' : '+', minutes / 60, minutes % 60);
  return signature.name + " <" + signature.email + "> " + std::to_string(signature.time_s) + ' ' + zone;
}

std::string canonical(const Commit& commit) {
  std::string body = "tree " + commit.tree.hex() + '\n';
  for (const ObjectId& parent : commit.parents) body += "parent " + parent.hex() + '\n';
  body += "author " + canonical(commit.author) + "\ncommitter " + canonical(commit.committer) + "\n\n";
  return body + commit.message;
}

template <typename T>
const T& as(const FakeObject* object, const ObjectId& id, const char* type) {
  if (object == nullptr) throw Error(Errc::input_output, std::string(type) + ' ' + id.hex() + " is missing");
  const T* value = std::get_if<T>(object);
  if (value == nullptr) throw Error(Errc::input_output, "object " + id.hex() + " is not a " + type);
  return *value;
}

ObjectId put_directory(FakeObjectStore& store, const std::map<std::string, std::string>& files) {
  Tree tree;
  std::map<std::string, std::map<std::string, std::string>> directories;
  for (const auto& [path, content] : files) {
    const std::size_t slash = path.find('/');
    if (slash == std::string::npos)
      tree.push_back({path, GitMode::regular, store.put_blob(content)});
    else
      directories[path.substr(0, slash)].emplace(path.substr(slash + 1), content);
  }
  for (const auto& [name, below] : directories)
    tree.push_back({name, GitMode::tree, put_directory(store, below)});
  std::sort(tree.begin(), tree.end(),
            [](const TreeEntry& a, const TreeEntry& b) { return sort_key(a) < sort_key(b); });
  return store.put_tree(tree);
}

class PublishedInMemory final : public session::Quarantine::Published {};

}  // namespace

std::size_t StringSource::read(std::uint64_t offset, std::span<std::byte> out) const {
  if (offset >= bytes_.size()) return 0;
  const std::size_t count = std::min<std::uint64_t>(out.size(), bytes_.size() - offset);
  std::copy_n(reinterpret_cast<const std::byte*>(bytes_.data()) + offset, count, out.data());
  return count;
}

std::string read_whole(const session::ByteSource& source) {
  std::string bytes(source.size(), '\0');
  const std::size_t count = source.read(0, std::as_writable_bytes(std::span(bytes)));
  if (count != bytes.size()) throw std::logic_error("a byte source was shorter than its size");
  return bytes;
}

const FakeObject* FakeObjectStore::find(const ObjectId& id) const {
  auto state = state_.lock();
  if (state->damaged.contains(id)) throw Error(Errc::input_output, "object " + id.hex() + " is damaged");
  const auto found = state->objects.find(id);
  return found == state->objects.end() ? nullptr : &found->second;
}

void FakeObjectStore::insert(const ObjectId& id, FakeObject object) {
  state_.lock()->objects.try_emplace(id, std::move(object));
}

Tree FakeObjectStore::read_tree(const ObjectId& id) const {
  ++state_.lock()->reads.trees;
  return as<Tree>(find(id), id, "tree");
}

Commit FakeObjectStore::read_commit(const ObjectId& id) const {
  ++state_.lock()->reads.commits;
  return as<Commit>(find(id), id, "commit");
}

std::uint64_t FakeObjectStore::blob_size(const ObjectId& id) const {
  ++state_.lock()->reads.blob_sizes;
  return as<std::string>(find(id), id, "blob").size();
}

std::shared_ptr<const session::ByteSource> FakeObjectStore::open_blob(const ObjectId& id) const {
  ++state_.lock()->reads.blobs;
  return std::make_shared<StringSource>(as<std::string>(find(id), id, "blob"));
}

bool FakeObjectStore::contains(const ObjectId& id) const { return state_.lock()->objects.contains(id); }

ObjectId FakeObjectStore::put_blob(std::string_view bytes) {
  const ObjectId id = hash("blob", bytes);
  insert(id, std::string(bytes));
  return id;
}

ObjectId FakeObjectStore::put_tree(const Tree& tree) {
  const ObjectId id = hash("tree", canonical(tree));
  insert(id, tree);
  return id;
}

ObjectId FakeObjectStore::put_commit(const Commit& commit) {
  const ObjectId id = hash("commit", canonical(commit));
  insert(id, commit);
  return id;
}

ObjectId FakeObjectStore::put_files(const Files& files) {
  return put_directory(*this, files);
}

void FakeObjectStore::damage(const ObjectId& id) { state_.lock()->damaged.insert(id); }
void FakeObjectStore::remove(const ObjectId& id) { state_.lock()->objects.erase(id); }
std::size_t FakeObjectStore::object_count() const { return state_.lock()->objects.size(); }
FakeObjectStore::Reads FakeObjectStore::reads() const { return state_.lock()->reads; }

const FakeObject* FakeQuarantine::find(const ObjectId& id) const {
  auto own = own_.lock();
  const auto found = own->find(id);
  return found == own->end() ? nullptr : &found->second;
}

const session::Quarantine* FakeQuarantine::other_with(const ObjectId& id) const {
  const auto others = others_.lock();
  for (const session::Quarantine* other : *others) {
    if (other->holds(id) && !holds(id)) return other;
  }
  return nullptr;
}

Tree FakeQuarantine::read_tree(const ObjectId& id) const {
  if (const session::Quarantine* other = other_with(id)) return other->read_tree(id);
  const FakeObject* own = find(id);
  return own != nullptr ? as<Tree>(own, id, "tree") : repository_.read_tree(id);
}

Commit FakeQuarantine::read_commit(const ObjectId& id) const {
  if (const session::Quarantine* other = other_with(id)) return other->read_commit(id);
  const FakeObject* own = find(id);
  return own != nullptr ? as<Commit>(own, id, "commit") : repository_.read_commit(id);
}

std::uint64_t FakeQuarantine::blob_size(const ObjectId& id) const {
  const FakeObject* own = find(id);
  return own != nullptr ? as<std::string>(own, id, "blob").size() : repository_.blob_size(id);
}

std::shared_ptr<const session::ByteSource> FakeQuarantine::open_blob(const ObjectId& id) const {
  const FakeObject* own = find(id);
  if (own == nullptr) return repository_.open_blob(id);
  return std::make_shared<StringSource>(as<std::string>(own, id, "blob"));
}

bool FakeQuarantine::contains(const ObjectId& id) const { return find(id) != nullptr || repository_.contains(id); }

ObjectId FakeQuarantine::put(const ObjectId& id, FakeObject object) {
  if (!repository_.contains(id)) own_.lock()->try_emplace(id, std::move(object));
  return id;
}

ObjectId FakeQuarantine::put_blob(const session::ByteSource& source) {
  std::string bytes = read_whole(source);
  const ObjectId id = hash("blob", bytes);
  return put(id, std::move(bytes));
}

ObjectId FakeQuarantine::put_tree(const Tree& tree) { return put(hash("tree", canonical(tree)), tree); }
ObjectId FakeQuarantine::put_commit(const Commit& commit) { return put(hash("commit", canonical(commit)), commit); }

void FakeQuarantine::publish_reachable(const ObjectId& id) {
  const FakeObject* object = find(id);
  if (object == nullptr) return;  // the repository has it, with everything below
  if (const auto* tree = std::get_if<Tree>(object)) {
    for (const TreeEntry& entry : *tree)
      if (entry.mode != GitMode::gitlink) publish_reachable(entry.id);
  } else if (const auto* commit = std::get_if<Commit>(object)) {
    publish_reachable(commit->tree);
    for (const ObjectId& parent : commit->parents) publish_reachable(parent);
  }
  repository_.insert(id, *object);
}

std::unique_ptr<session::Quarantine::Published> FakeQuarantine::publish(const ObjectId& root) {
  if (!contains(root)) throw Error(Errc::input_output, "object " + root.hex() + " is missing");
  publish_reachable(root);
  return std::make_unique<PublishedInMemory>();
}

void FakeQuarantine::discard() { own_.lock()->clear(); }
std::size_t FakeQuarantine::object_count() const { return own_.lock()->size(); }

}  // namespace escrow::support
