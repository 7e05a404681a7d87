// Brings what a commit needs, and the bucket lacks, into the bucket: one pack and its index.
//
// A tree that the bucket has is not looked into: packs are put whole, so that what they hold has all it needs beside
// it. Idempotent: a pack is named by its content. What it uploaded is there for good when it returns, for nobody to see
// before a branch names it. Throws what S3Client and the store throw.
#pragma once

#include <string>

#include "storage/bucket/bucket_heads.h"
#include "storage/bucket/remote_packs.h"
#include "storage/bucket/s3_client.h"
#include "storage/objects/git_object_store.h"

namespace escrow::storage {

// `scratch`: a directory of this machine for the pack on its way, on the file system of `packs`.
void upload_commit(const S3Client& client, RemotePacks& packs, const GitObjectStore& objects,
                   const session::ObjectId& commit, const std::string& scratch);

}  // namespace escrow::storage
