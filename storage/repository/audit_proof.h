// Tells the audit trailers of commits that sessions made from those that somebody wrote by hand: by the catalog.
//
// Opens the catalog for itself when it is first needed, and waits for no writer. For one thread.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "session/base/ids.h"
#include "storage/objects/git_object_store.h"
#include "storage/repository/repository.h"

namespace escrow::storage {

class AuditProof {
 public:
  // `catalog_path` has the schema of this version. `objects` must outlive this.
  AuditProof(const GitObjectStore& objects, std::string catalog_path);
  ~AuditProof();

  // The message has Escrow's trailers, but no session of the catalog made this very commit. One look-up by the
  // session's id, none where the commit before was of the same session. Throws what the database throws.
  bool is_claimed(const LogEntry& entry);

 private:
  struct Catalog;
  struct Made;
  // `known` has been read.
  std::set<session::ObjectId> all_of(const Made& made, const LogEntry& known) const;

  const GitObjectStore& objects_;
  const std::string catalog_path_;
  std::unique_ptr<Catalog> catalog_;             // null: not needed so far
  std::optional<session::SessionId> session_{};  // the one that was asked about last
  std::set<session::ObjectId> commits_{};        // that it made
};

}  // namespace escrow::storage
