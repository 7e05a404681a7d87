// The objects of a repository in object storage, brought here as they are asked for.
//
// A small pack is fetched whole, verified by its hash. Of a larger one the object's entry and those behind it are
// fetched in one range of about kReadAheadBytes, each verified by its object id; a larger entry alone, in parallel
// parts. What was fetched lies as packs in `cache`, an object directory that all processes of the machine read and
// that the repository has as an alternate. It is bounded: the packs fetched longest ago go first. A fetched pack is on
// disk, whole, before it has its name. Whoever asks for what is just being fetched waits for that. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <set>
#include <string>

#include "session/base/synchronized.h"
#include "storage/bucket/remote_packs.h"
#include "storage/bucket/s3_client.h"
#include "storage/git/object_format.h"
#include "storage/git/object_source.h"
#include "storage/objects/pack_reader.h"

namespace escrow::storage {

class BucketObjects final : public ObjectSource {
 public:
  static constexpr std::uint64_t kWholePackBytes = std::uint64_t{8} << 20;
  static constexpr std::uint64_t kReadAheadBytes = std::uint64_t{1} << 20;
  static constexpr std::uint64_t kDefaultLimitBytes = std::uint64_t{10} << 30;

  // `cache` exists, with a directory "pack". All must outlive it.
  BucketObjects(const S3Client& client, RemotePacks& packs, std::string cache,
                std::uint64_t limit_bytes = kDefaultLimitBytes);

  bool has(const session::ObjectId& id) const override { return packs_.find(id).has_value(); }
  // Asks the bucket for packs that are new when no known one has the object.
  bool bring(const session::ObjectId& id) override;

 private:
  class Fetching;
  void fetch(const RemotePacks::Place& place);
  void fetch_pack(const RemotePack& pack);
  void fetch_range(const RemotePack& pack, std::size_t first, std::size_t end);
  void fetch_large(const RemotePack& pack, std::size_t entry);
  // Through its deltas.
  RawObject read_object(const RemotePack& pack, std::uint32_t index) const;
  std::string bytes_of(const RemotePack& pack, std::uint64_t offset, std::uint64_t end) const;
  std::string scratch_path(const char* kind) const;
  void keep(class PackWriter& writer);
  void make_room();

  const S3Client& client_;         // self-locking, as the next
  RemotePacks& packs_;
  const std::string cache_;        // constant, as the next
  const std::uint64_t limit_bytes_;
  const ObjectDirectory here_;     // self-locking
  session::Synchronized<std::set<std::string>> fetching_;  // self-locking: what threads of this process fetch now
  std::condition_variable fetched_;
};

}  // namespace escrow::storage
