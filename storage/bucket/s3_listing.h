// The XML that S3 answers with. Functions; thread-safe. Source: the Amazon S3 API Reference, ListObjectsV2 and "Error
// responses".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace escrow::storage {

struct S3Listing {
  struct Object {
    std::string key;
    std::uint64_t size_bytes = 0;
  };
  std::vector<Object> objects;
  std::string continuation;  // "": that was all
};

// Throws Error{input_output} when it is no listing.
S3Listing parse_listing(const std::string& xml);
// The <Code> of an error; "": there is none.
std::string parse_error_code(const std::string& xml);

}  // namespace escrow::storage
