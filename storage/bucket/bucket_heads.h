// The branches of a repository in object storage: one small object each, refs/heads/NAME, which says the commit as a
// file of git's does and is moved by a conditional PUT. HEAD names the default branch. Beside them lie the lists that
// git reads over plain HTTP, info/refs and objects/info/packs: each change is a conditional PUT, too, made from what
// was read after the list was, so that no host writes an older state over a newer one.
//
// No state; thread-safe. Throws what S3Client throws, and Error{damaged_repository}.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "session/base/ids.h"
#include "storage/bucket/s3_client.h"

namespace escrow::storage {

class BucketHeads {
 public:
  explicit BucketHeads(const S3Client& client) : client_(client) {}

  // nullopt: there is no such branch.
  std::optional<session::ObjectId> head(const std::string& branch) const;
  std::vector<std::string> branches() const;
  // The branch HEAD names; nullopt: there is no repository here.
  std::optional<std::string> default_branch() const;
  // false: there is one already.
  bool create(const std::string& default_branch) const;

  // Moves the branch; true: it has moved, and stays so whatever becomes of this machine. An answer that was lost is
  // found out: `has` says whether a commit is, or comes after, `desired`. When it throws, the branch may have moved, or
  // may yet, as long as it is still at `expected`.
  bool swap(const std::string& branch, const std::optional<session::ObjectId>& expected,
            const session::ObjectId& desired, const std::function<bool(const session::ObjectId&)>& has) const;
  // info/refs then says what the branch is.
  void list_branch(const std::string& branch) const;
  // objects/info/packs then names the pack, "pack-1234".
  void list_pack(const std::string& pack) const;

  // Whether the service keeps conditions of PUT, by trying; `quoted`: how it wants etags. Throws Error{not_supported}
  // naming a service that does not. Needs the right to write; leaves nothing.
  static bool probe_quoted(S3Client& client);

 private:
  struct Found {
    session::ObjectId commit;
    std::string etag;
  };
  std::optional<Found> find(const std::string& branch) const;
  void edit(const std::string& name, const std::function<std::string(const std::string&)>& change) const;

  const S3Client& client_;
};

}  // namespace escrow::storage
