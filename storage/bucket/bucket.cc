#include "storage/bucket/bucket.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "session/base/error.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/file_lookup.h"
#include "storage/disk/make_directories.h"
#include "storage/git/object_format.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::Error;

std::string state_home() {
  const char* given = std::getenv("XDG_STATE_HOME");
  if (given != nullptr && *given == '/') return given;
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home == '/') return std::string(home) + "/.local/state";
  const passwd* user = ::getpwuid(::getuid());
  if (user == nullptr) throw Error(Errc::bad_request, "there is no place for a bucket's sessions; set XDG_STATE_HOME");
  return std::string(user->pw_dir) + "/.local/state";
}

// Whoever asks another service for a bucket of the same name means another repository.
std::string directory_of(const BucketName& name, const std::string& endpoint) {
  Sha1 hash;
  hash.update(endpoint + "\n" + name.bucket + "\n" + name.prefix);
  return state_home() + "/escrow/buckets/" + name.bucket + "-" + hash.finish().hex().substr(0, 16);
}

// Sessions are nobody else's to read.
std::string made(const std::string& directory) {
  for (const char* part : {"", "/cache", "/cache/pack", "/cache/info", "/indexes", "/scratch"}) {
    make_directories(directory + part);
    if (*part == '\0') ::chmod(directory.c_str(), 0700);
  }
  return directory;
}

}  // namespace

Bucket::Bucket(const BucketName& name)
    : directory_(made(directory_of(name, s3_service_from_environment().endpoint))),
      client_(s3_service_from_environment(), name),
      heads_(client_),
      packs_(client_, directory_ + "/indexes"),
      objects_(client_, packs_, directory_ + "/cache") {}

bool Bucket::create(const std::string& branch) {
  probe();
  return heads_.create(branch);
}

std::string Bucket::default_branch() const {
  if (auto branch = heads_.default_branch()) return *std::move(branch);
  throw Error(Errc::no_repository, "there is no repository at " + client_.name().text() +
                                       "; make one with: escrow --repo " + client_.name().text() + " init");
}

void Bucket::learn_conditions() {
  const std::string known = first_line_of(directory_ + "/conditions");
  if (known != "quoted" && known != "unquoted") return probe();
  client_.write_etags_quoted(known == "quoted");
}

void Bucket::probe() {
  const bool quoted = BucketHeads::probe_quoted(client_);
  client_.write_etags_quoted(quoted);
  write_file_durably(directory_ + "/conditions", quoted ? "quoted\n" : "unquoted\n", 0644);
}

void Bucket::join_cache() const {
  const std::string path = git_directory() + "/objects/info/alternates", line = directory_ + "/cache";
  if (first_line_of(path) != line) write_file_durably(path, line + "\n", 0644);
}

}  // namespace escrow::storage
