// A repository in object storage, s3://BUCKET/PREFIX, and the directory of this machine in which it is worked with.
//
// The bucket holds a git repository as git reads it over plain HTTP: packs and their indexes, branches, HEAD and the
// lists of both (bucket_heads.h). It has no other state: any number of hosts open it at once. The local directory,
// $XDG_STATE_HOME/escrow/buckets/<name>, holds
//   git/         a bare repository with Escrow's state: sessions, catalog; its branches follow the bucket's
//   cache/       an object directory, its alternate: what was fetched (bucket_objects.h)
//   indexes/     the index of every pack of the bucket (remote_packs.h)
//   conditions   how the service wants conditions written, once it was tried
// Removing it loses open sessions and results that wait, never a commit. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "storage/bucket/bucket_heads.h"
#include "storage/bucket/bucket_name.h"
#include "storage/bucket/bucket_objects.h"
#include "storage/bucket/remote_packs.h"
#include "storage/bucket/s3_client.h"

namespace escrow::storage {

class Bucket {
 public:
  // Asks nobody. Throws what s3_service_from_environment() throws.
  explicit Bucket(const BucketName& name);

  const S3Client& client() const noexcept { return client_; }
  const BucketHeads& heads() const noexcept { return heads_; }
  RemotePacks& packs() noexcept { return packs_; }
  BucketObjects& objects() noexcept { return objects_; }
  const std::string& directory() const noexcept { return directory_; }
  std::string git_directory() const { return directory_ + "/git"; }

  // Makes the repository in the bucket; false: there is one. Refuses a service that ignores conditions, by name.
  bool create(const std::string& branch);
  // The default branch. Throws Error{no_repository} when there is none in the bucket.
  std::string default_branch() const;
  // Before a condition is sent: tries the service once a machine.
  void learn_conditions();
  // Links the repository at git_directory() to the cache. Idempotent.
  void join_cache() const;

 private:
  void probe();

  const std::string directory_;  // constant
  S3Client client_;              // self-locking, as all below
  const BucketHeads heads_;
  RemotePacks packs_;
  BucketObjects objects_;
};

}  // namespace escrow::storage
