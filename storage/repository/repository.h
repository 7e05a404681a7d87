// A git repository with Escrow's state in <gitdir>/escrow/: the whole storage layer behind one object.
//
// Thread-safe. libgit2 handles are not shared between threads: each borrower takes one from a pool. Object and
// reference writes are fsynced. Errors: Error{no_repository}, Error{unsupported_repository} (naming the extension, or
// giving the safe.directory command for another user's), Error{damaged_repository}, Error{newer_state}.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "session/base/log.h"
#include "session/interfaces/change_times.h"
#include "session/interfaces/object_store.h"
#include "session/interfaces/session_catalog.h"
#include "session/interfaces/session_directory.h"
#include "storage/caches/caches.h"
#include "storage/database/audit_entry.h"
#include "storage/database/session_query.h"
#include "storage/git/git_program.h"

namespace escrow::storage {

enum class DiffFormat { name_status, stat, patch };

struct LogEntry {
  session::ObjectId id;
  session::Commit commit;
  std::vector<std::pair<std::string, std::string>> trailers;  // of the last paragraph, as git interpret-trailers
  // The message has Escrow's trailers, but the catalog has no session that made this commit: anybody can have written
  // them, or the session's record is of another machine or older than escrow.auditRetention.
  bool is_claimed = false;
};

struct Problem {
  std::string where;  // "object 1f3a...", "session 07ab... staging 12", "catalog"
  std::string what;
};

// Contents that were opened: those that a cache had, in memory or on disk, and those that had to be read first.
struct CacheCounts {
  std::uint64_t hits = 0, misses = 0;
};

// A session whose git may have found any object that is no older: gc keeps those.
struct GcHolder {
  session::SessionId session;
  std::int64_t since_s = 0;  // when it was opened, in seconds since 1970
  bool is_aside = false;     // it is in <state>/orphans, and the catalog does not know it
};

struct GcReport {
  std::uint64_t objects_before = 0, objects_after = 0, packs_before = 0, packs_after = 0;
  std::uint64_t bytes_before = 0, bytes_after = 0;
  std::optional<GcHolder> held_back;  // by the oldest one, where gc.pruneExpire would have dropped more without it
};

class Repository {
 public:
  // Creates a bare repository with Escrow's state at `path`, or adopts the repository that is there (bare or not),
  // leaving its branches as they are. Idempotent. Returns whether it was created. `path` may name a place in object
  // storage, s3://BUCKET/PREFIX, here and for open(): the repository is then there, and this machine has what
  // storage/bucket/bucket.h says. Error{damaged_repository} when it has sessions and has lost their catalog, unless a
  // new one is to begin; Error{bad_request} when a new one is to begin beside the one that is there.
  enum class Catalog { keep, begin_anew };
  static bool init(const std::string& path, const std::string& branch, Catalog catalog = Catalog::keep);
  // `path` may be a bare repository, a work tree or a .git directory. Opens state of this version, migrates older
  // state, refuses newer. A plain git repository that was never `init`ed for Escrow: Error{no_repository} saying so.
  static std::unique_ptr<Repository> open(const std::string& path, session::Log& log);
  // The repository that encloses `directory`, as git finds it; nullopt: none.
  static std::optional<std::string> discover(const std::string& directory);

  ~Repository();

  std::string git_directory() const;    // absolute, no trailing slash
  std::string state_directory() const;  // <gitdir>/escrow
  const session::ObjectReader& objects() const;
  // From now on `check` is called before a tree is read, by any thread, and may throw, which ends a walk of trees. To
  // be called before others use the repository.
  void check_before_trees(std::function<void()> check);
  // The same with the objects of Git LFS in place of the pointers to them (lfs_files.h).
  const session::ObjectReader& files() const;
  // As files(), over a session's quarantine, which must outlive it.
  std::unique_ptr<session::ObjectReader> files_over(const session::ObjectReader& objects) const;
  session::ReferenceStore& references();
  session::SessionCatalog& catalog();
  session::SessionDirectories& directories();
  const Caches& caches() const;
  session::ChangeTimes& change_times();

  // Writes what differs between two trees, deletions first, renames found, binary files named, paths as git quotes
  // them. `quarantine` holds objects that are not in the repository yet; it may be null. `path`: only that file, or
  // what is below that directory.
  void write_diff(const std::optional<session::ObjectId>& before, const std::optional<session::ObjectId>& after,
                  DiffFormat format, const session::Quarantine* quarantine,
                  const std::function<void(std::string_view)>& out, const std::string& path = {}) const;

  // Commits reachable from the branch's head, newest first, that change `path` (empty: all), until `visit` returns
  // false. With `after`, those that come behind that commit; returns false when it is not reachable. Costs one look-up
  // in the catalog for each commit that is visited. Throws Error{no_branch}.
  bool log(const std::string& branch, const std::string& path, const std::function<bool(const LogEntry&)>& visit,
           const std::optional<session::ObjectId>& after = std::nullopt) const;

  std::vector<session::SessionRecord> sessions(const SessionQuery& query) const;
  SessionCounts counts() const;
  // What is kept of a session that has this record.
  AuditEntry audit(session::SessionRecord record) const;
  // Of one session, oldest first.
  std::vector<Transition> history(const session::SessionId& id) const;
  // At most `limit` of what happened to sessions, of whatever process, behind a number (audit_entry.h).
  std::vector<NumberedTransition> transitions_after(std::int64_t number, std::size_t limit) const;
  std::vector<NumberedDenial> denials_after(std::int64_t number, std::size_t limit) const;
  CatalogNumbers numbers() const;
  CacheCounts cache_counts() const;  // since it was opened
  // Whether the session has a directory, or one that was set aside: without a row, its row is in another catalog.
  bool has_directory(const session::SessionId& id) const;
  // As if a session that has ended, and of which nothing is kept, had never been.
  void forget(const session::SessionId& id);
  // How long records of sessions that have ended are kept (branch_rules.h).
  std::chrono::seconds audit_retention() const;
  // Every branch and its head, by name.
  std::vector<std::pair<std::string, session::ObjectId>> branches() const;

  // Makes one pack of the small ones that commits left, when there are more than 50; 0 when there was nothing to do or
  // somebody else is at it. For after a commit was reported.
  std::size_t fold_packs();
  // Lets go of the files of packs that others have removed since; for a process that stays.
  void renew_handles();
  // Drops what no reference, session or cache needs and is older than gc.pruneExpire (collect_garbage.h), and caches
  // beyond escrow.cacheLimit. A kept result without a record goes if it is no younger than `forgotten`, from before
  // which no record of an ended session is left; one that is younger may belong to a catalog that comes back. One at a
  // time, and nobody else waits for it.
  GcReport gc(const GitProgram& git, session::Timestamp forgotten = {});
  // Reads every reachable object, every object of Git LFS that a branch's head names, every catalog row and every
  // staging file. Empty: all is well. `progress` gets done
  // and total object counts.
  std::vector<Problem> verify(const std::function<void(std::uint64_t, std::uint64_t)>& progress) const;

 private:
  struct Impl;
  explicit Repository(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace escrow::storage
