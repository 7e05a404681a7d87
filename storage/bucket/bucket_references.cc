#include "storage/bucket/bucket_references.h"

#include <unordered_set>
#include <vector>

#include "session/base/error.h"
#include "storage/bucket/bucket_upload.h"

namespace escrow::storage {
namespace {

using session::ObjectId;

constexpr char kFollowed[] = "escrow: as in the bucket";
// Somebody else of this machine follows, too, and is as right.
constexpr int kMostFollows = 3;
constexpr std::size_t kMostWalkedCommits = 100'000;

}  // namespace

BucketReferences::BucketReferences(session::ReferenceStore& local, Bucket& bucket, const GitObjectStore& objects,
                                   session::Log& log)
    : local_(local), bucket_(bucket), objects_(objects), log_(log) {}

// A failure costs nothing that counts: the local branch is only shown.
void BucketReferences::follow(const std::string& branch, const ObjectId& head) const {
  try {
    for (int attempt = 0; attempt < kMostFollows; ++attempt) {
      const std::optional<ObjectId> now = local_.head(branch);
      if (now == head || local_.compare_and_swap(branch, now, head, kFollowed)) return;
    }
  } catch (const session::Error& error) {
    log_.write(session::LogLevel::warning, "the local copy of branch '" + branch + "' of " +
                                               bucket_.client().name().text() + " could not follow it: " +
                                               error.what());
  }
}

void BucketReferences::follow_all() {
  for (const std::string& branch : bucket_.heads().branches()) head(branch);
}

std::optional<ObjectId> BucketReferences::head(const std::string& branch) const {
  local_.head(branch);  // refuses what is no name
  const std::optional<ObjectId> found = bucket_.heads().head(branch);
  if (!found) return std::nullopt;
  // Another host's commit came in a pack that is not known here.
  if (!bucket_.objects().has(*found)) bucket_.packs().refresh();
  follow(branch, *found);
  return found;
}

// Whether `commit` is `head` or before it; a walk that comes to `oldest` has gone too far.
bool BucketReferences::descends(const ObjectId& head, const ObjectId& commit,
                                const std::optional<ObjectId>& oldest) const {
  std::vector<ObjectId> front{head};
  std::unordered_set<ObjectId> seen;
  while (!front.empty() && seen.size() < kMostWalkedCommits) {
    const ObjectId at = front.back();
    front.pop_back();
    if (at == commit) return true;
    if (at == oldest || !seen.insert(at).second) continue;
    for (const ObjectId& parent : objects_.read_commit(at).parents) front.push_back(parent);
  }
  return false;
}

bool BucketReferences::move_through(const std::string& branch, const std::optional<ObjectId>& expected,
                                    const std::vector<Move>& moves) {
  const ObjectId& desired = moves.back().to;
  bucket_.learn_conditions();
  // What is known of packs may be of a repository that was in this place before.
  if (!expected) bucket_.packs().refresh();
  upload_commit(bucket_.client(), bucket_.packs(), objects_, desired, bucket_.directory() + "/scratch");
  const bool has_moved = bucket_.heads().swap(branch, expected, desired, [&](const ObjectId& found) {
    if (!bucket_.objects().has(found)) bucket_.packs().refresh();
    return descends(found, desired, expected);
  });
  if (!has_moved) return false;
  // The commit is made, for all hosts and for good. What follows is for who reads the lists and the local repository.
  try {
    if (local_.head(branch) != expected || !local_.move_through(branch, expected, moves)) follow(branch, desired);
    bucket_.heads().list_branch(branch);
  } catch (const session::Error& error) {
    log_.write(session::LogLevel::warning, "the commit " + desired.hex() + " is in " +
                                               bucket_.client().name().text() +
                                               ", but not yet in all its lists; the next commit mends them: " +
                                               error.what());
  }
  return true;
}

// The bucket's own is; the local one is made so where it is there.
void BucketReferences::make_durable(const std::string& branch) {
  if (head(branch)) local_.make_durable(branch);
}

}  // namespace escrow::storage
