// Writes files into a new directory of a session: those that a request sent, or those of a git tree. They belong to the
// session's user, with modes by its umask. A tree has holes for runs of zeros, and keeps to a CopyBudget. One object,
// one directory, one thread. Throws Error.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "daemon/host/mount_entry_spec.h"
#include "session/interfaces/object_store.h"
#include "session/interfaces/session_record.h"
#include "session/trees/tree_walk.h"
#include "storage/disk/copy_budget.h"

namespace escrow::daemon {

class KeptFiles {
 public:
  // `directory` is open and empty; `options` must outlive this.
  KeptFiles(int directory, const session::SessionOptions& options);

  void put_files(const std::map<std::string, MountEntrySpec::File>& files) const;
  // Every file has this time, in seconds. A submodule is an empty directory.
  void put_tree(const session::ObjectReader& objects, const session::TreeRoot& tree, std::int64_t time_s,
                storage::CopyBudget& budget) const;

 private:
  void put_entries(const session::ObjectReader& objects, const session::ObjectId& tree, const std::string& at,
                   std::int64_t time_s, storage::CopyBudget& budget) const;
  void make_directory(const std::string& path) const;
  void own(const std::string& path, unsigned mode) const;

  const int directory_;
  const session::SessionOptions& options_;
};

}  // namespace escrow::daemon
