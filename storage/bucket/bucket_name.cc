#include "storage/bucket/bucket_name.h"

#include <algorithm>

#include "session/base/error.h"

namespace escrow::storage {
namespace {

// Amazon's rules for names of buckets, without those that only its own servers hold one to.
bool is_bucket(std::string_view name) {
  const auto fits = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.'; };
  return name.size() >= 3 && name.size() <= 63 && std::all_of(name.begin(), name.end(), fits) &&
         name.front() != '.' && name.front() != '-' && name.find("..") == std::string_view::npos;
}

// A server, a proxy or a client may fold these.
bool is_prefix(std::string_view prefix) {
  for (std::size_t begin = 0; begin <= prefix.size();) {
    const std::size_t end = std::min(prefix.find('/', begin), prefix.size());
    const std::string_view part = prefix.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return prefix.size() <= 512 && std::none_of(prefix.begin(), prefix.end(), [](unsigned char c) {
    return c < ' ' || c >= 0x7f;
  });
}

}  // namespace

BucketName parse_bucket_name(std::string_view text) {
  std::string_view rest = text.substr(names_bucket(text) ? 5 : 0);
  while (rest.ends_with('/')) rest.remove_suffix(1);
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  BucketName name{std::string(rest.substr(0, slash)),
                  std::string(slash == rest.size() ? std::string_view() : rest.substr(slash + 1))};
  if (!names_bucket(text) || !is_bucket(name.bucket) || (!name.prefix.empty() && !is_prefix(name.prefix))) {
    throw session::Error(session::Errc::bad_request,
                         "'" + std::string(text) + "' names no place in object storage; write s3://BUCKET/PREFIX, "
                         "without empty parts, '.' and '..', in ASCII");
  }
  return name;
}

}  // namespace escrow::storage
