#include "storage/bucket/bucket_upload.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <unordered_set>
#include <utility>
#include <vector>

#include "session/base/error.h"
#include "storage/disk/durable_file.h"
#include "storage/objects/pack_index.h"
#include "storage/objects/pack_writer.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::Error;
using session::ObjectId;

// The most that one PUT takes (Amazon S3, "Uploading objects").
constexpr std::uint64_t kMostPutBytes = std::uint64_t{5} << 30;

struct Wanted {
  std::vector<ObjectId> commits, trees, blobs;
  std::size_t size() const { return commits.size() + trees.size() + blobs.size(); }
};

Wanted collect(const RemotePacks& packs, const GitObjectStore& objects, const ObjectId& tip) {
  Wanted wanted;
  std::unordered_set<ObjectId> seen;
  const auto is_new = [&](const ObjectId& id) { return seen.insert(id).second && !packs.find(id); };
  std::vector<ObjectId> commits, trees;
  if (is_new(tip)) commits.push_back(tip);
  while (!commits.empty()) {
    const ObjectId id = commits.back();
    commits.pop_back();
    wanted.commits.push_back(id);
    const session::Commit commit = objects.read_commit(id);
    if (is_new(commit.tree)) trees.push_back(commit.tree);
    for (const ObjectId& parent : commit.parents) {
      if (is_new(parent)) commits.push_back(parent);
    }
  }
  while (!trees.empty()) {
    const ObjectId id = trees.back();
    trees.pop_back();
    wanted.trees.push_back(id);
    const session::Tree tree = objects.read_tree(id);
    for (const session::TreeEntry& entry : tree) {
      if (entry.mode == session::GitMode::gitlink || !is_new(entry.id)) continue;
      (entry.mode == session::GitMode::tree ? trees : wanted.blobs).push_back(entry.id);
    }
  }
  return wanted;
}

// In the order in which a reader wants them: history, then trees, then contents as they lie in their directories.
void write_pack(PackWriter& writer, const Wanted& wanted, const GitObjectStore& objects) {
  for (const auto* ids : {&wanted.commits, &wanted.trees}) {
    for (const ObjectId& id : *ids) {
      const RawObject object = objects.read_object(id);
      writer.add_object(id, object.type, object.content);
    }
  }
  for (const ObjectId& id : wanted.blobs) {
    if (objects.blob_size(id) > kLargeBlobBytes) {
      if (writer.add_blob(*objects.open_blob(id)) == id) continue;
      throw Error(Errc::input_output, "the object " + id.hex() + " is damaged; run escrow verify");
    }
    const RawObject object = objects.read_object(id);
    writer.add_object(id, object.type, object.content);
  }
  writer.finish();
}

S3Body file_body(const UniqueFd& fd) {
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) throw system_error(errno, "read what is to be put into the bucket");
  return {.text = {}, .fd = fd.get(), .size_bytes = static_cast<std::uint64_t>(status.st_size)};
}

}  // namespace

void upload_commit(const S3Client& client, RemotePacks& packs, const GitObjectStore& objects, const ObjectId& commit,
                   const std::string& scratch) {
  static std::atomic<unsigned> next = 0;
  const Wanted wanted = collect(packs, objects, commit);
  if (wanted.size() == 0) return;
  const std::string stem = scratch + "/tmp_upload_" + std::to_string(::getpid()) + "_" + std::to_string(++next);
  PackWriter writer(stem, static_cast<std::uint32_t>(wanted.size()));
  write_pack(writer, wanted, objects);
  const std::string name = "pack-" + PackIndex(stem + ".idx").pack_trailer().hex();
  const UniqueFd pack = open_or_throw(AT_FDCWD, (stem + ".pack").c_str(), O_RDONLY, 0, "read " + stem + ".pack");
  const UniqueFd index = open_or_throw(AT_FDCWD, (stem + ".idx").c_str(), O_RDONLY, 0, "read " + stem + ".idx");
  const S3Body body = file_body(pack);
  if (body.size_bytes > kMostPutBytes) {
    throw Error(Errc::file_too_large, "the commit needs a pack of " + std::to_string(body.size_bytes) +
                                          " bytes, and object storage takes 5 GiB at once; commit less at a time");
  }
  client.put(RemotePacks::key_of(name, ".pack"), body);
  client.put(RemotePacks::key_of(name, ".idx"), file_body(index));
  BucketHeads(client).list_pack(name);
  packs.add(name, body.size_bytes, stem + ".idx");
}

}  // namespace escrow::storage
