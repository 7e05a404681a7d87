// A git object database in memory: FakeObjectStore is the repository, FakeQuarantine a session's own objects over it.
// Ids are git's own (SHA-1 of the canonical form), so expectations can be computed with git. Both are thread-safe.
// A test can damage an object, and count what was read. Trees out of git's order are std::logic_error: a bug of ours.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <variant>

#include "session/base/synchronized.h"
#include "session/interfaces/object_store.h"

namespace escrow::support {

// The paths ("a/b.txt") and contents of a tree, all regular files.
using Files = std::map<std::string, std::string>;

// A string as the bytes of a blob.
class StringSource final : public session::ByteSource {
 public:
  explicit StringSource(std::string bytes) : bytes_(std::move(bytes)) {}
  std::uint64_t size() const override { return bytes_.size(); }
  std::size_t read(std::uint64_t offset, std::span<std::byte> out) const override;

 private:
  std::string bytes_;  // constant
};

// The whole of `source`.
std::string read_whole(const session::ByteSource& source);

using FakeObject = std::variant<std::string, session::Tree, session::Commit>;
using FakeObjects = std::map<session::ObjectId, FakeObject>;

class FakeObjectStore final : public session::ObjectReader {
 public:
  session::Tree read_tree(const session::ObjectId& id) const override;
  session::Commit read_commit(const session::ObjectId& id) const override;
  std::uint64_t blob_size(const session::ObjectId& id) const override;
  std::shared_ptr<const session::ByteSource> open_blob(const session::ObjectId& id) const override;
  bool contains(const session::ObjectId& id) const override;

  session::ObjectId put_blob(std::string_view bytes);
  session::ObjectId put_tree(const session::Tree& tree);
  session::ObjectId put_commit(const session::Commit& commit);
  session::ObjectId put_files(const Files& files);

  // Every read of it throws Error{input_output} from now on.
  void damage(const session::ObjectId& id);
  void remove(const session::ObjectId& id);
  std::size_t object_count() const;

  struct Reads {
    std::uint64_t trees = 0, commits = 0, blob_sizes = 0, blobs = 0;
  };
  Reads reads() const;

  // For FakeQuarantine. nullptr: absent. Throws when damaged.
  const FakeObject* find(const session::ObjectId& id) const;
  void insert(const session::ObjectId& id, FakeObject object);

 private:
  struct State {
    FakeObjects objects;
    std::set<session::ObjectId> damaged;
    Reads reads;
  };
  mutable session::Synchronized<State> state_;  // self-locking; objects are never erased while a reader holds one
};

class FakeQuarantine final : public session::Quarantine {
 public:
  // `repository` must outlive the quarantine.
  explicit FakeQuarantine(FakeObjectStore& repository) : repository_(repository) {}

  session::Tree read_tree(const session::ObjectId& id) const override;
  session::Commit read_commit(const session::ObjectId& id) const override;
  std::uint64_t blob_size(const session::ObjectId& id) const override;
  std::shared_ptr<const session::ByteSource> open_blob(const session::ObjectId& id) const override;
  bool contains(const session::ObjectId& id) const override;

  session::ObjectId put_blob(const session::ByteSource& source) override;
  session::ObjectId put_tree(const session::Tree& tree) override;
  session::ObjectId put_commit(const session::Commit& commit) override;
  std::unique_ptr<Published> publish(const session::ObjectId& root) override;
  void read_through(std::vector<const session::Quarantine*> others) override { others_.lock()->swap(others); }
  bool holds(const session::ObjectId& id) const override { return find(id) != nullptr; }
  std::uint64_t held_bytes() const override { return object_count() * 1024; }
  void discard() override;

  // Objects held here and not in the repository.
  std::size_t object_count() const;

 private:
  session::ObjectId put(const session::ObjectId& id, FakeObject object);
  void publish_reachable(const session::ObjectId& id);
  const FakeObject* find(const session::ObjectId& id) const;
  const session::Quarantine* other_with(const session::ObjectId& id) const;

  FakeObjectStore& repository_;                   // self-locking
  mutable session::Synchronized<std::vector<const session::Quarantine*>> others_;  // self-locking
  mutable session::Synchronized<FakeObjects> own_;  // self-locking
};

}  // namespace escrow::support
