#include "storage/repository/repository.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <set>

#include "session/base/error.h"
#include "session/transaction/commit.h"
#include "session/trees/tree_changes.h"
#include "session/trees/tree_walk.h"
#include "storage/bucket/bucket.h"
#include "storage/bucket/bucket_references.h"
#include "storage/database/sqlite_change_times.h"
#include "storage/database/sqlite_session_catalog.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/file_lookup.h"
#include "storage/disk/lock_file.h"
#include "storage/git/branch_rules.h"
#include "storage/git/git_directory.h"
#include "storage/git/git_error.h"
#include "storage/git/git_references.h"
#include "storage/git/head_file.h"
#include "storage/git/reference_files.h"
#include "storage/lfs/lfs_files.h"
#include "storage/objects/fold_packs.h"
#include "storage/objects/git_object_store.h"
#include "storage/objects/pack_writer.h"
#include "storage/objects/publications.h"
#include "storage/objects/quarantine.h"
#include "storage/objects/reachable.h"
#include "storage/repository/collect_garbage.h"
#include "storage/repository/diff.h"
#include "storage/repository/history.h"
#include "storage/repository/repository_init.h"
#include "storage/repository/state_check.h"
#include "storage/repository/verify.h"
#include "storage/staging/file_session_directories.h"

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using session::Errc;
using session::Error;
using session::ObjectId;
using session::SessionRecord;

constexpr auto kPatience = std::chrono::milliseconds(500);

// Of the file or directory at `path`.
std::vector<std::string> changed_paths(const session::ObjectReader& objects, const std::optional<ObjectId>& before,
                                       const std::optional<ObjectId>& after, const std::string& path) {
  const session::RepoPath top = session::RepoPath::parse(path, "path");
  const auto was = session::entry_at(objects, before, top), is = session::entry_at(objects, after, top);
  std::vector<std::string> paths;
  if (session::leaf_of(was) != session::leaf_of(is)) paths.push_back(path);
  for (const auto& change : session::tree_changes(objects, session::tree_of(was), session::tree_of(is)))
    paths.push_back(session::join_path(path, change.path));
  return paths;
}

// Packs that sessions published and whose fate is open; see quarantine.h.
std::set<std::string> undecided_packs(const std::string& state) {
  std::set<std::string> names;
  for (const char* sessions : {"/sessions/", "/orphans/"}) {
    for (const std::string& session : names_in(state + sessions)) {
      const std::string published = state + sessions + session + "/objects/published";
      for (const auto& pack : read_published(published)) names.insert(pack.stem);
    }
  }
  return names;
}

// What a crash left of packs that were being published: protected for nobody, or in part, which git takes for damage.
// Nobody is publishing: the caller has the gc lock alone.
void clear_abandoned_packs(const std::string& git_directory, const std::string& state) {
  constexpr std::string_view kKeep = ".keep";
  const std::set<std::string> undecided = undecided_packs(state);
  const std::string directory = git_directory + "/objects/pack/";
  for (const std::string& name : names_in(directory)) {
    if (!name.ends_with(kKeep) || first_line_of(directory + name) + '\n' != kKeepMark) continue;
    const std::string pack = name.substr(0, name.size() - kKeep.size());
    if (!undecided.contains(pack) || !is_there(directory + pack + ".idx")) leave_pack_to_gc(directory + pack);
  }
}

// Whoever comes next removes the directory, or what was staged in it: a process died while it did so, or before the
// session was open.
bool is_to_be_removed(const session::SessionCatalog& catalog, const session::SessionId& id) {
  try {
    const std::optional<SessionRecord> record = catalog.find(id);
    return !record || session::is_final(record->state) || record->state == session::State::awaiting_approval;
  } catch (const Error&) {
    return false;  // the catalog is damaged, and has been named
  }
}

}  // namespace

// Members in the order in which they need one another.
struct Repository::Impl {
  Impl(const std::string& git_directory, session::Log& log_to, std::unique_ptr<Bucket> from)
      : state(git_directory + "/escrow"),
        log(log_to),
        bucket(std::move(from)),
        pool(git_directory, bucket ? &bucket->objects() : nullptr),
        objects(pool, state + "/cache"),
        lfs(git_directory, bucket == nullptr),
        files(objects, lfs),
        references(pool),
        bucket_references(bucket ? std::make_unique<BucketReferences>(references, *bucket, objects, log) : nullptr),
        catalog(state + "/catalog.db"),
        caches(state),
        times(state + "/times.db", state + "/catalog.db", objects, log),
        directories(
            state + "/sessions",
            [this](const std::string& objects_directory) {
              return std::make_unique<GitQuarantine>(pool, objects, objects_directory, gc_lock_path());
            },
            {.publish =
                 [this](const std::string& session) {
                   caches.publish(session, read_cache_limit(pool.git_directory()));
                 },
             .drop = [this](const std::string& session) { return caches.drop_changes(session); }}) {}

  std::string gc_lock_path() const { return state + "/gc.lock"; }
  std::string upkeep_lock_path() const { return state + "/upkeep.lock"; }

  // For what reads the local branches: they follow the bucket's.
  void follow() const {
    if (bucket_references) bucket_references->follow_all();
  }
  void refuse_in_bucket(const char* what) const {
    if (!bucket) return;
    throw Error(Errc::not_supported, std::string(what) + " is not for repositories in object storage yet: " +
                                         bucket->client().name().text() + " is one");
  }

  bool has_directory(const session::SessionId& id) const {
    return is_there(directories.path_of(id)) || directories.is_aside(id);
  }

  // A record that is missing was forgotten, or its catalog is.
  bool may_need_result(const session::SessionId& id, const session::Timestamp& forgotten) const {
    if (const std::optional<SessionRecord> record = catalog.find(id))
      return !session::is_final(record->state) || session::keeps_result(*record);
    if (has_directory(id)) return true;
    const std::optional<ObjectId> result = references.result(id);
    if (!result || !objects.contains(*result)) return false;  // a power loss brought the reference back
    try {
      return objects.read_commit(*result).committer.time_s > forgotten.seconds;
    } catch (const Error&) {
      return true;  // git will say what is wrong with it
    }
  }

  // Sessions that have a pin and nothing else: packing references while a session ends can leave them. A session has
  // its directory before its pin, and its row until it has ended.
  std::vector<session::SessionId> pinned_for_nobody() const {
    std::vector<session::SessionId> found = references.pinned();
    std::erase_if(found, [&](const session::SessionId& id) {
      if (has_directory(id)) return true;
      const std::optional<SessionRecord> record = catalog.find(id);
      return record && !session::is_final(record->state);
    });
    return found;
  }

  const std::string state;
  session::Log& log;
  const std::unique_ptr<Bucket> bucket;  // null: all of the repository is here
  GitRepositoryPool pool;
  GitObjectStore objects;
  const LfsStore lfs;
  const LfsFiles files;
  GitReferences references;
  const std::unique_ptr<BucketReferences> bucket_references;  // of the bucket
  SqliteSessionCatalog catalog;
  Caches caches;
  SqliteChangeTimes times;
  FileSessionDirectories directories;
};

Repository::Repository(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Repository::~Repository() = default;

std::unique_ptr<Repository> Repository::open(const std::string& path, session::Log& log) {
  std::unique_ptr<Bucket> bucket = names_bucket(path) ? open_bucket(path) : nullptr;
  const std::optional<std::string> git_directory = find_git_directory(bucket ? bucket->git_directory() : path);
  if (!git_directory) {
    throw Error(Errc::no_repository, "there is no git repository at " + path + "; make one with: escrow --repo " +
                                         path + " init");
  }
  const bool is_adopted = is_there(*git_directory + "/escrow/version");
  const std::string mended = is_adopted ? mend_head(*git_directory, "") : "";
  if (!mended.empty()) log.write(session::LogLevel::warning, mended);
  open_git_repository(*git_directory);
  check_state_version(*git_directory);
  const std::string state = *git_directory + "/escrow";
  check_own_directory(state);
  check_catalog_is_there(state);
  std::error_code ignored;
  fs::create_directory(state + "/sessions", ignored);
  check_own_directory(state + "/sessions");
  return std::unique_ptr<Repository>(new Repository(std::make_unique<Impl>(*git_directory, log, std::move(bucket))));
}

std::string Repository::git_directory() const { return impl_->pool.git_directory(); }
std::string Repository::state_directory() const { return impl_->state; }
const session::ObjectReader& Repository::objects() const { return impl_->objects; }
void Repository::check_before_trees(std::function<void()> check) {
  impl_->objects.check_before_trees(std::move(check));
}
const session::ObjectReader& Repository::files() const { return impl_->files; }
std::unique_ptr<session::ObjectReader> Repository::files_over(const session::ObjectReader& objects) const {
  return std::make_unique<LfsFiles>(objects, impl_->lfs);
}
session::ReferenceStore& Repository::references() {
  if (impl_->bucket_references) return *impl_->bucket_references;
  return impl_->references;
}
session::SessionCatalog& Repository::catalog() { return impl_->catalog; }

std::vector<NumberedTransition> Repository::transitions_after(std::int64_t number, std::size_t limit) const {
  return impl_->catalog.transitions_after(number, limit);
}

std::vector<NumberedDenial> Repository::denials_after(std::int64_t number, std::size_t limit) const {
  return impl_->catalog.denials_after(number, limit);
}

std::vector<Transition> Repository::history(const session::SessionId& id) const { return impl_->catalog.history(id); }

CatalogNumbers Repository::numbers() const { return impl_->catalog.numbers(); }
std::vector<SessionRecord> Repository::sessions(const SessionQuery& query) const { return impl_->catalog.page(query); }
SessionCounts Repository::counts() const { return impl_->catalog.counts(); }
CacheCounts Repository::cache_counts() const {
  const auto [hits, misses] = impl_->objects.cache_counts();
  return {hits, misses};
}

session::ChangeTimes& Repository::change_times() { return impl_->times; }
session::SessionDirectories& Repository::directories() { return impl_->directories; }
const Caches& Repository::caches() const { return impl_->caches; }

void Repository::write_diff(const std::optional<ObjectId>& before, const std::optional<ObjectId>& after,
                            DiffFormat format, const session::Quarantine* quarantine,
                            const std::function<void(std::string_view)>& out, const std::string& path) const {
  const auto* own = dynamic_cast<const GitQuarantine*>(quarantine);
  if (quarantine != nullptr && own == nullptr) {
    throw Error(Errc::not_supported, "cannot compare trees over a quarantine that is not this repository's");
  }
  // libgit2 goes through all paths of both trees, but for those that it is not asked for.
  const session::ObjectReader& objects = own != nullptr ? static_cast<const session::ObjectReader&>(*own)
                                                        : impl_->objects;
  const std::vector<std::string> paths = changed_paths(objects, before, after, path);
  if (!paths.empty()) write_tree_diff(git_directory(), before, after, format, own, paths, out);
}

bool Repository::log(const std::string& branch, const std::string& path,
                     const std::function<bool(const LogEntry&)>& visit, const std::optional<ObjectId>& after) const {
  impl_->follow();
  const auto repository = impl_->pool.borrow();
  AuditProof proof(impl_->objects, impl_->state + "/catalog.db");
  return walk_history(repository.get(), impl_->objects, proof, {branch, path, after}, visit);
}

AuditEntry Repository::audit(SessionRecord record) const {
  AuditEntry entry{.record = std::move(record), .history = {}};
  entry.history = impl_->catalog.history(entry.record.id);
  entry.denied_calls = impl_->catalog.denied_calls(entry.record.id);
  return entry;
}

void Repository::forget(const session::SessionId& id) { impl_->catalog.forget(id); }

bool Repository::has_directory(const session::SessionId& id) const { return impl_->has_directory(id); }

std::chrono::seconds Repository::audit_retention() const { return read_audit_retention(git_directory()); }

std::vector<std::pair<std::string, ObjectId>> Repository::branches() const {
  impl_->follow();
  return list_branches(impl_->pool.borrow().get());
}

std::size_t Repository::fold_packs() {
  if (!has_many_packs(impl_->objects)) return 0;
  const UniqueFd turn = try_lock_file(impl_->upkeep_lock_path());
  if (!turn) return 0;
  const std::size_t folded = fold_small_packs(impl_->objects, impl_->state);
  if (folded > 0) renew_handles();
  return folded;
}

void Repository::renew_handles() {
  impl_->pool.renew();
  impl_->objects.close_what_is_gone();
}

GcReport Repository::gc(const GitProgram& git, session::Timestamp forgotten) {
  impl_->refuse_in_bucket("gc");
  const UniqueFd turn = lock_file(impl_->upkeep_lock_path(), LockKind::exclusive);
  // git holds the turn too, and keeps it should this process be killed.
  if (::fcntl(turn.get(), F_SETFD, 0) != 0) throw system_error(errno, "share " + impl_->upkeep_lock_path());
  // Throws for a damaged reference, which may have held any object.
  all_references(git_directory());
  // What a crash left can wait for a quiet moment; nobody who publishes waits for this.
  if (const UniqueFd quiet = try_lock_file(impl_->gc_lock_path(), kPatience))
    clear_abandoned_packs(git_directory(), impl_->state);
  for (const session::SessionId& id : impl_->references.results())
    if (!impl_->may_need_result(id, forgotten)) impl_->references.drop_result(id);
  const std::time_t now = std::time(nullptr);  // a session that is opened later gives what it finds a later time
  std::optional<GcHolder> oldest;
  const auto hold = [&](const session::SessionId& id, std::int64_t since_s, bool is_aside) {
    if (!oldest || since_s < oldest->since_s) oldest = GcHolder{id, since_s, is_aside};
  };
  for (const SessionRecord& record : impl_->catalog.unended()) {
    // What waits for a reviewer has no .git any more.
    if (record.state != session::State::awaiting_approval) hold(record.id, record.created.seconds, false);
    if (!record.base || impl_->references.has_pin(record.id)) continue;
    impl_->references.pin_base(record.id, *record.base);  // a power loss took the pin
  }
  for (const session::SessionId& id : impl_->directories.list_aside())
    hold(id, impl_->directories.opened_aside_s(id), true);
  for (const session::SessionId& id : impl_->pinned_for_nobody()) impl_->references.unpin_base(id);
  sync_removed_references(git_directory());
  impl_->caches.collect(read_cache_limit(git_directory()));
  GcReport report = collect_objects(git_directory(), git, now, oldest);
  renew_handles();
  return report;
}

std::vector<Problem> Repository::verify(const std::function<void(std::uint64_t, std::uint64_t)>& progress) const {
  impl_->refuse_in_bucket("verify");
  const GitRepository repository = open_git_repository(git_directory());
  std::vector<Problem> problems = verify_objects(repository.get(), impl_->objects, progress);
  const auto add = [&](std::vector<Problem> more) {
    problems.insert(problems.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  };
  add(verify_lfs(list_branches(repository.get()), impl_->files, impl_->lfs));
  add(check_catalog(impl_->state + "/catalog.db"));
  add(check_times(impl_->state + "/times.db"));
  try {
    for (const SessionRecord& record : impl_->catalog.unended()) {
      const std::string where = "session " + record.id.text();
      if (record.base && !impl_->objects.contains(*record.base)) {
        problems.push_back({where, "its base commit " + record.base->hex() + " is missing"});
      }
      if (record.result && impl_->references.result(record.id) != record.result) {
        problems.push_back({where, "refs/sessions/" + record.id.text() + " is not the result that awaits approval, " +
                                       record.result->hex()});
      }
      if (record.result && !impl_->objects.contains(*record.result)) {
        problems.push_back({where, "the result that awaits approval, " + record.result->hex() + ", is missing"});
      }
      if (record.base && !impl_->references.has_pin(record.id)) {
        problems.push_back({where, "no reference under refs/escrow/base/ protects its base commit from gc"});
      }
    }
    const std::vector<session::SessionId> nobodys = impl_->pinned_for_nobody();
    for (const session::SessionId& id : nobodys) {
      if (impl_->references.has_pin(id))
        problems.push_back({"session " + id.text(), "refs/escrow/base/" + id.text() + " keeps objects for a session "
                                                    "that has ended; `escrow gc` drops it"});
    }
  } catch (const Error& error) {
    problems.push_back({"catalog", error.what()});
  }
  for (const session::SessionId& id : impl_->directories.list()) {
    if (is_to_be_removed(impl_->catalog, id)) continue;
    add(check_session_directory(impl_->directories.path_of(id), id.text()));
  }
  for (Caches::Fault& fault : impl_->caches.check())
    problems.push_back({"cache '" + session::quote_path(fault.cache) + "'", std::move(fault.what)});
  return problems;
}

}  // namespace escrow::storage
