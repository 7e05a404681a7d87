// Requests to an S3 service about one repository's objects: signed (SigV4), repeated where that may help, bounded in
// time.
//
// Thread-safe; connections are kept and shared. A request that fails for a passing reason (no connection, one that was
// cut or stalls, 408, 409, 429, 5xx) is sent again after a growing, random delay, kMostAttempts times and for as long
// as kPatience lasts; then Error{input_output} says what could not be done and why. Error{access_denied} when the
// service refuses. A request may thus have been carried out more than once, and one that threw may have been carried
// out: who sends a condition has to look afterwards. What is sent and what is received is checked: a body by its
// SHA-256, at the service; a length by what was asked for. Sources: the Amazon S3 API Reference;
// CURLOPT_AWS_SIGV4(3).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "session/base/synchronized.h"
#include "storage/bucket/bucket_name.h"
#include "storage/bucket/s3_credentials.h"
#include "storage/bucket/s3_listing.h"

namespace escrow::storage {

// What is put: bytes in memory, or a file from its first byte on.
struct S3Body {
  std::string text;
  int fd = -1;  // when >= 0, instead of `text`; read at offsets
  std::uint64_t size_bytes = 0;  // of the file
};

struct S3Object {
  std::string content;
  std::string etag;  // without quotes
};

// A condition of a PUT. `etag`: it must be there, and be this; nullopt: it must not be there.
struct S3Condition {
  std::optional<std::string> etag;
};

class S3Client {
 public:
  static constexpr int kMostAttempts = 8;
  static constexpr std::chrono::seconds kPatience{30};

  S3Client(S3Service service, BucketName name);
  ~S3Client();
  S3Client(const S3Client&) = delete;
  S3Client& operator=(const S3Client&) = delete;

  // Names are below the repository's prefix ("HEAD", "refs/heads/main"). nullopt: there is no such object.
  std::optional<S3Object> get(const std::string& name) const;
  // Bytes [offset, offset + length), all of them. nullopt: there is no such object.
  std::optional<std::string> get_range(const std::string& name, std::uint64_t offset, std::uint64_t length) const;
  void put(const std::string& name, const S3Body& body) const;
  // false: the condition does not hold, perhaps because an earlier attempt of this very call was carried out.
  bool put_if(const std::string& name, const S3Condition& condition, const std::string& content) const;
  void remove(const std::string& name) const;
  // Everything that begins with `prefix`; keys as names below the repository's prefix.
  std::vector<S3Listing::Object> list(const std::string& prefix) const;

  const BucketName& name() const noexcept { return name_; }
  const std::string& endpoint() const noexcept { return service_.endpoint; }
  // How an etag is written in If-Match: Amazon takes what it gave, in quotes; Ceph before 18 only without.
  void write_etags_quoted(bool quoted) { *etags_quoted_.lock() = quoted; }

 private:
  struct Request;
  struct Answer;
  class Connection;
  Answer send(const Request& request) const;
  std::string url(const Request& request) const;
  [[noreturn]] void refuse(const Request& request, const Answer& answer) const;

  const S3Service service_;  // constant, as the next
  const BucketName name_;
  mutable session::Synchronized<bool> etags_quoted_{true};  // self-locking
  mutable session::Synchronized<std::vector<std::unique_ptr<Connection>>> idle_;  // self-locking, as above
};

}  // namespace escrow::storage
