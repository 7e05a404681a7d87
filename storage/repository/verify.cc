#include "storage/repository/verify.h"

#include <unordered_set>

#include "session/base/error.h"
#include "session/base/repo_path.h"
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

class LfsCheck {
 public:
  LfsCheck(const LfsFiles& files, const LfsStore& store) : files_(files), store_(store) {}

  void run(const std::string& branch, const ObjectId& head) {
    std::vector<std::pair<ObjectId, std::string>> pending = {{files_.read_commit(head).tree, ""}};
    while (!pending.empty()) {
      const auto [tree, path] = pending.back();
      pending.pop_back();
      if (!seen_.insert(tree).second) continue;
      for (const session::TreeEntry& entry : files_.read_tree(tree)) {
        const std::string below = session::join_path(path, entry.name);
        if (entry.mode == session::GitMode::tree) pending.emplace_back(entry.id, below);
        else if (entry.mode != session::GitMode::gitlink && entry.mode != session::GitMode::symlink)
          check(branch, below, entry.id);
      }
    }
  }

  std::vector<Problem> problems;

 private:
  void check(const std::string& branch, const std::string& path, const ObjectId& blob) {
    if (!seen_.insert(blob).second) return;
    const auto pointer = files_.pointer_of(blob);
    if (!pointer) return;
    if (const auto fault = store_.fault_of(*pointer)) {
      problems.push_back({"object " + pointer->oid + " of Git LFS",
                          *fault + " (" + session::quote_path(path) + " on branch '" + branch + "' needs it)"});
    }
  }

  const LfsFiles& files_;
  const LfsStore& store_;
  std::unordered_set<ObjectId> seen_;
};

}  // namespace

std::vector<Problem> verify_lfs(const std::vector<std::pair<std::string, ObjectId>>& branches, const LfsFiles& files,
                                const LfsStore& store) {
  LfsCheck check(files, store);
  for (const auto& [branch, head] : branches) {
    try {
      check.run(branch, head);
    } catch (const session::Error&) {
      // An object of git that cannot be read, which verify_objects() names.
    }
  }
  return std::move(check.problems);
}

std::vector<Problem> verify_objects(git_repository* repository, const GitObjectStore& objects,
                                    const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  ObjectCheck check(objects, progress);
  try {
    std::vector<Problem> damaged;
    const std::vector<Root> roots = all_roots(repository, [&damaged](const std::string& name, const auto& error) {
      damaged.push_back({"reference " + name, error.what()});
    });
    check.problems = std::move(damaged);
    check.run(roots);
  } catch (const session::Error& error) {
    check.problems.push_back({"references", error.what()});
  }
  return std::move(check.problems);
}

}  // namespace escrow::storage
