#include "storage/objects/git_object_store.h"

#include <vector>

#include "session/base/error.h"
#include "storage/disk/byte_sources.h"
#include "storage/git/git_error.h"

namespace escrow::storage {
namespace {

using session::ByteSource;
using session::Errc;
using session::Error;
using session::ObjectId;

constexpr int kMostHandlesAsked = 3;
constexpr std::size_t kStreamedAtOnceBytes = std::size_t{256} << 10;

[[noreturn]] void throw_unreadable(int code, const ObjectId& id) {
  if (code == GIT_ENOTFOUND) {
    throw Error(Errc::input_output, "the object " + id.hex() + " is missing from the repository; run escrow verify");
  }
  throw Error(Errc::input_output,
              "the object " + id.hex() + " cannot be read: " + git_message(code) + "; run escrow verify");
}

void expect_type(ObjectType found, ObjectType wanted, const ObjectId& id) {
  if (found == wanted) return;
  throw Error(Errc::input_output, "the object " + id.hex() + " is a " + name_of(found) + " where a " +
                                      name_of(wanted) + " is expected; run escrow verify");
}

}  // namespace

GitObjectStore::GitObjectStore(GitRepositoryPool& pool, std::string cache_directory, std::uint64_t cache_limit_bytes)
    : pool_(pool),
      directory_(pool.git_directory() + "/objects"),
      packed_(directory_),
      cache_(std::move(cache_directory), cache_limit_bytes) {}

GitRepositoryPool::Borrowed GitObjectStore::borrow() const {
  auto repository = pool_.borrow();
  if (generation_.exchange(repository.generation()) != repository.generation()) directory_.close_what_is_gone();
  return repository;
}

void GitObjectStore::close_with_directory() const {
  const unsigned removals = directory_.removals();
  if (removals_.load(std::memory_order_relaxed) == removals) return;
  pool_.renew();
  removals_ = removals;
}

// A handle of libgit2 that could not look at objects/pack as it was opened (ENOMEM) knows of no pack ever after, and
// says nothing of it (odb_pack.c). If our own look finds the object in a pack, another handle is
// asked.
template <typename Question>
int GitObjectStore::ask(const ObjectId& id, Question question) const {
  for (int attempt = 1;; ++attempt) {
    auto repository = borrow();
    const int code = question(repository.odb());
    if (code != GIT_ENOTFOUND || attempt == kMostHandlesAsked || !directory_.find(id)) return code;
    repository.close();
  }
}

RawObject GitObjectStore::read_object(const ObjectId& id) const {
  auto packed = packed_.read(id);
  close_with_directory();
  if (packed) return std::move(*packed);
  const git_oid oid = to_git(id);
  GitOdbObject object;
  const int code = ask(id, [&](git_odb* odb) {
    git_odb_object* found = nullptr;
    const int result = git_odb_read(&found, odb, &oid);
    object.reset(found);
    return result;
  });
  if (code < 0) throw_unreadable(code, id);
  git_odb_object* const raw = object.get();
  return {static_cast<ObjectType>(git_odb_object_type(raw)),
          std::string(static_cast<const char*>(git_odb_object_data(raw)), git_odb_object_size(raw))};
}

std::pair<ObjectType, std::uint64_t> GitObjectStore::header(const ObjectId& id) const {
  const auto packed = packed_.header(id);
  close_with_directory();
  if (packed) return *packed;
  const git_oid oid = to_git(id);
  std::size_t size = 0;
  git_object_t type = GIT_OBJECT_INVALID;
  const int code = ask(id, [&](git_odb* odb) { return git_odb_read_header(&size, &type, odb, &oid); });
  if (code < 0) throw_unreadable(code, id);
  return {static_cast<ObjectType>(type), size};
}

session::Tree GitObjectStore::read_tree(const ObjectId& id) const {
  if (check_) check_();
  const RawObject object = read_object(id);
  expect_type(object.type, ObjectType::tree, id);
  return decode_tree(object.content, id);
}

session::Commit GitObjectStore::read_commit(const ObjectId& id) const {
  const RawObject object = read_object(id);
  expect_type(object.type, ObjectType::commit, id);
  return decode_commit(object.content, id);
}

std::uint64_t GitObjectStore::blob_size(const ObjectId& id) const {
  const auto [type, size] = header(id);
  expect_type(type, ObjectType::blob, id);
  return size;
}

bool GitObjectStore::contains(const ObjectId& id) const {
  if (packed_.contains(id)) return true;
  const git_oid oid = to_git(id);
  return ask(id, [&](git_odb* odb) { return git_odb_exists(odb, &oid) == 1 ? 0 : GIT_ENOTFOUND; }) == 0;
}

std::shared_ptr<const ByteSource> GitObjectStore::open_blob(const ObjectId& id) const {
  if (auto kept = recent_.find(id)) {
    ++small_hits_;
    return kept;
  }
  auto object = packed_.read(id, kLargeBlobBytes);
  close_with_directory();
  if (object) {
    expect_type(object->type, ObjectType::blob, id);
  } else {
    const std::uint64_t size = blob_size(id);
    if (size > kLargeBlobBytes) {
      return cache_.open(id, size, [this, id] { return pull(id); });
    }
    object = read_object(id);
  }
  ++small_misses_;
  auto blob = std::make_shared<MemoryBytes>(std::move(object->content));
  recent_.keep(id, blob);
  return blob;
}

BlobCache::Pull GitObjectStore::pull(const ObjectId& id) const {
  BlobCache::Pull pull;
  if (const auto place = directory_.find(id)) pull = pull_blob(*place, id);
  if (!pull) {
    const auto whole = std::make_shared<const MemoryBytes>(read_object(id).content);
    pull = [whole, at = std::uint64_t{0}](std::span<std::byte> out) mutable {
      const std::size_t count = whole->read(at, out);
      at += count;
      return count;
    };
  }
  if (!check_) return pull;
  return [this, pull = std::move(pull)](std::span<std::byte> out) {
    check_();
    return pull(out);
  };
}

void GitObjectStore::stream(const ObjectId& id, const std::function<void(std::span<const std::byte>)>& sink) const {
  const BlobCache::Pull next = pull(id);
  std::vector<std::byte> buffer(kStreamedAtOnceBytes);
  for (std::size_t count = buffer.size(); count == buffer.size();) {
    count = next(buffer);
    if (count > 0) sink(std::span<const std::byte>(buffer).first(count));
  }
}

}  // namespace escrow::storage
