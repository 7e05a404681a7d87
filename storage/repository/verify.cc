#include "storage/repository/verify.h"

#include "session/base/error.h"
#include "storage/git/git_error.h"
#include "storage/objects/reachable.h"

namespace escrow::storage {
namespace {

using session::ObjectId;

class ObjectCheck {
 public:
  ObjectCheck(const GitObjectStore& objects, const std::function<void(std::uint64_t, std::uint64_t)>& progress)
      : objects_(objects), progress_(progress) {
    for (const auto& pack : objects.directory().packs()) total_ += pack->count();
  }

  void run(const std::vector<Root>& roots) {
    std::unordered_set<ObjectId> seen;
    walk_objects(roots, seen, [this](const Reached& item) { return check(item); });
    if (progress_) progress_(done_, done_);
  }

  std::vector<Problem> problems;

 private:
  std::optional<RawObject> check(const Reached& item) {
    ++done_;
    if (progress_ && done_ % 256 == 0) progress_(done_, std::max(done_, total_));
    try {
      return read(item);
    } catch (const session::Error& error) {
      const bool gone = !item.root->required && !objects_.contains(item.id);
      if (!gone) {
        problems.push_back({"object " + item.id.hex(), std::string(error.what()) + " (" + item.root->origin +
                                                           " needs it)"});
      }
      return std::nullopt;
    }
  }

  std::optional<RawObject> read(const Reached& item) {
    const auto [type, size] = objects_.header(item.id);
    if (item.expected && *item.expected != type) {
      throw session::Error(session::Errc::input_output, std::string("it is a ") + name_of(type) + " where a " +
                                                            name_of(*item.expected) + " is expected");
    }
    if (type != ObjectType::blob || size <= kLargeBlobBytes) {
      RawObject object = objects_.read_object(item.id);
      if (type == ObjectType::commit) decode_commit(object.content, item.id);
      if (type == ObjectType::tree) decode_tree(object.content, item.id);
      if (type == ObjectType::tag) decode_tag_target(object.content, item.id);
      return type == ObjectType::blob ? std::nullopt : std::optional(std::move(object));
    }
    Sha1 hash = object_hash(type, size);
    objects_.stream(item.id, [&](std::span<const std::byte> bytes) { hash.update(bytes); });
    if (hash.finish() != item.id) {
      throw session::Error(session::Errc::input_output, "its content does not match its name");
    }
    return std::nullopt;
  }

  const GitObjectStore& objects_;
  const std::function<void(std::uint64_t, std::uint64_t)>& progress_;
  std::uint64_t done_ = 0, total_ = 0;
};

}  // namespace

std::vector<Problem> verify_objects(git_repository* repository, const GitObjectStore& objects,
                                    const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  ObjectCheck check(objects, progress);
  try {
    check.run(all_roots(repository));
  } catch (const session::Error& error) {
    check.problems.push_back({"references", error.what()});
  }
  return std::move(check.problems);
}

}  // namespace escrow::storage
