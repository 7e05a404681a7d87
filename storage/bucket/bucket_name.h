// The name of a repository in object storage: s3://BUCKET/PREFIX. No state.
#pragma once

#include <string>
#include <string_view>

namespace escrow::storage {

struct BucketName {
  std::string bucket;
  std::string prefix;  // "a/b", or nothing: the whole bucket
  std::string text() const { return "s3://" + bucket + (prefix.empty() ? "" : "/" + prefix); }
  // Of an object of the repository.
  std::string key(std::string_view name) const { return (prefix.empty() ? "" : prefix + "/") + std::string(name); }
};

// Whether somebody means object storage by it.
inline bool names_bucket(std::string_view place) { return place.starts_with("s3://"); }

// Slashes at the end do not count. Throws Error{bad_request}.
BucketName parse_bucket_name(std::string_view text);

}  // namespace escrow::storage
