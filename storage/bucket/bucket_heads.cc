#include "storage/bucket/bucket_heads.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdint>

#include "session/base/error.h"
#include "storage/disk/durable_file.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::Error;
using session::ObjectId;

constexpr std::string_view kHeads = "refs/heads/";
constexpr std::string_view kSymbolic = "ref: refs/heads/";
constexpr char kBranches[] = "info/refs";
constexpr char kPacks[] = "objects/info/packs";
// Each lost turn is another host's success.
constexpr int kMostEdits = 100;

std::string key_of(const std::string& branch) { return std::string(kHeads) + branch; }

std::string random_name() {
  ObjectId::Bytes bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw system_error(errno, "get random bytes");
  return ObjectId(bytes).hex();
}

// The lines of `text` but for those that end in `ending`.
std::string without_line(const std::string& text, const std::string& ending) {
  std::string rest;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    if (!std::string_view(text).substr(begin, end - begin).ends_with(ending)) rest.append(text, begin, end - begin);
    begin = end;
  }
  return rest;
}

}  // namespace

std::optional<BucketHeads::Found> BucketHeads::find(const std::string& branch) const {
  const auto object = client_.get(key_of(branch));
  if (!object) return std::nullopt;
  const auto commit = ObjectId::from_hex(std::string_view(object->content).substr(0, 2 * ObjectId::kSize));
  if (!commit || object->content.size() != 2 * ObjectId::kSize + 1 || object->etag.empty()) {
    throw Error(Errc::damaged_repository, "the branch '" + branch + "' of " + client_.name().text() +
                                              " is damaged: the object " + key_of(branch) + " names no commit");
  }
  return Found{*commit, object->etag};
}

std::optional<ObjectId> BucketHeads::head(const std::string& branch) const {
  const auto found = find(branch);
  return found ? std::optional(found->commit) : std::nullopt;
}

std::vector<std::string> BucketHeads::branches() const {
  std::vector<std::string> names;
  for (const S3Listing::Object& object : client_.list(std::string(kHeads))) {
    if (object.key.starts_with(kHeads)) names.push_back(object.key.substr(kHeads.size()));
  }
  return names;
}

std::optional<std::string> BucketHeads::default_branch() const {
  const auto object = client_.get("HEAD");
  if (!object) return std::nullopt;
  std::string line = object->content;
  while (!line.empty() && line.back() == '\n') line.pop_back();
  if (!line.starts_with(kSymbolic) || line.size() == kSymbolic.size()) {
    throw Error(Errc::damaged_repository,
                "the object HEAD of " + client_.name().text() + " names no branch; restore it");
  }
  return line.substr(kSymbolic.size());
}

// HEAD comes last: by it a repository is known.
bool BucketHeads::create(const std::string& default_branch) const {
  if (client_.get("HEAD")) return false;
  client_.put_if(kBranches, {}, "");
  client_.put_if(kPacks, {}, "");
  return client_.put_if("HEAD", {}, std::string(kSymbolic) + default_branch + "\n");
}

bool BucketHeads::swap(const std::string& branch, const std::optional<ObjectId>& expected, const ObjectId& desired,
                       const std::function<bool(const ObjectId&)>& has) const {
  std::optional<Found> found = find(branch);
  const auto commit_of = [](const std::optional<Found>& one) {
    return one ? std::optional(one->commit) : std::nullopt;
  };
  if (commit_of(found) != expected) return commit_of(found) == desired;
  const S3Condition condition{found ? std::optional(found->etag) : std::nullopt};
  if (client_.put_if(key_of(branch), condition, desired.hex() + "\n")) return true;
  // Another host was first, or this is the answer to a repetition of a request that was carried out.
  found = find(branch);
  return found && (found->commit == desired || has(found->commit));
}

void BucketHeads::edit(const std::string& name, const std::function<std::string(const std::string&)>& change) const {
  for (int attempt = 0; attempt < kMostEdits; ++attempt) {
    const auto object = client_.get(name);
    const std::string before = object ? object->content : "";
    const std::string after = change(before);
    if (object && after == before) return;
    if (client_.put_if(name, {object ? std::optional(object->etag) : std::nullopt}, after)) return;
  }
  throw Error(Errc::busy, "other hosts keep changing " + name + " of " + client_.name().text());
}

void BucketHeads::list_branch(const std::string& branch) const {
  const std::string ending = "\t" + key_of(branch) + "\n";
  edit(kBranches, [&](const std::string& before) {
    const auto commit = head(branch);
    return without_line(before, ending) + (commit ? commit->hex() + ending : "");
  });
}

void BucketHeads::list_pack(const std::string& pack) const {
  const std::string line = "P " + pack + ".pack\n";
  edit(kPacks, [&](const std::string& before) { return without_line(before, line) + line; });
}

bool BucketHeads::probe_quoted(S3Client& client) {
  const std::string name = "escrow/probe-" + random_name(), other = std::string(32, '0');
  const auto refuse = [&](const std::string& what) {
    client.remove(name);
    throw Error(Errc::not_supported, "the S3 service " + client.endpoint() + " cannot hold a repository: " + what +
                                         ", so that commits of several hosts would be lost; use a service with "
                                         "conditional writes, or a version of it that has them");
  };
  client.put(name, {.text = "one\n"});
  try {
    if (client.put_if(name, {}, "two\n")) refuse("it ignores If-None-Match");
    for (const bool quoted : {true, false}) {
      client.write_etags_quoted(quoted);
      if (client.put_if(name, {other}, "two\n")) refuse("it ignores If-Match");
      const auto object = client.get(name);
      if (object && client.put_if(name, {object->etag}, "three\n")) {
        client.remove(name);
        return quoted;
      }
    }
  } catch (const Error& error) {
    if (error.code() == Errc::not_supported) throw;
    refuse(std::string("it answers a PUT with a condition with an error (") + error.what() + ")");
  }
  refuse("it refuses every If-Match");
  return false;
}

}  // namespace escrow::storage
