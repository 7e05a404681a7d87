#include "storage/repository.h"

#include <filesystem>
#include <fstream>
#include <set>

#include "session/error.h"
#include "storage/branch_rules.h"
#include "storage/consolidate.h"
#include "storage/diff.h"
#include "storage/file_session_directories.h"
#include "storage/gc_lock.h"
#include "storage/git_directory.h"
#include "storage/git_error.h"
#include "storage/git_object_store.h"
#include "storage/git_references.h"
#include "storage/history.h"
#include "storage/quarantine.h"
#include "storage/reachable.h"
#include "storage/repository_init.h"
#include "storage/sqlite_session_catalog.h"
#include "storage/state_check.h"
#include "storage/verify.h"

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using session::Errc;
using session::Error;
using session::ObjectId;
using session::SessionRecord;

// Packs that sessions published and whose fate is open; see quarantine.h.
std::set<std::string> undecided_packs(const std::string& sessions) {
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(sessions, error)) {
    for (const auto& [root, name] : read_published(entry.path() / "objects" / "published")) names.insert(name);
  }
  return names;
}

// .keep files that a crash left. Nobody is publishing: the caller has the gc lock alone.
void release_abandoned_packs(const std::string& git_directory, const std::string& sessions) {
  const std::set<std::string> undecided = undecided_packs(sessions);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(git_directory + "/objects/pack", error)) {
    if (entry.path().extension() != ".keep" || undecided.contains(entry.path().stem())) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    std::string content(kKeepMark.size(), '\0');
    in.read(content.data(), static_cast<std::streamsize>(content.size()));
    std::error_code ignored;
    if (content == kKeepMark) fs::remove(entry.path(), ignored);
  }
}

}  // namespace

// Members in the order in which they need one another.
struct Repository::Impl {
  Impl(const std::string& git_directory, session::Log& log_to)
      : state(git_directory + "/escrow"),
        log(log_to),
        pool(git_directory),
        objects(pool, state + "/cache"),
        references(pool),
        catalog(state + "/catalog.db"),
        directories(state + "/sessions", [this](const std::string& objects_directory) {
          return std::make_unique<GitQuarantine>(pool, objects, objects_directory, gc_lock_path());
        }) {}

  std::string gc_lock_path() const { return state + "/gc.lock"; }

  const std::string state;
  session::Log& log;
  GitRepositoryPool pool;
  GitObjectStore objects;
  GitReferences references;
  SqliteSessionCatalog catalog;
  FileSessionDirectories directories;
};

Repository::Repository(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Repository::~Repository() = default;

std::unique_ptr<Repository> Repository::open(const std::string& path, session::Log& log) {
  const std::optional<std::string> git_directory = find_git_directory(path);
  if (!git_directory) {
    throw Error(Errc::no_repository, "there is no git repository at " + path + "; make one with: escrow --repo " +
                                         path + " init");
  }
  open_git_repository(*git_directory);
  check_state_version(*git_directory);
  std::error_code ignored;
  fs::create_directory(*git_directory + "/escrow/sessions", ignored);
  return std::unique_ptr<Repository>(new Repository(std::make_unique<Impl>(*git_directory, log)));
}

std::string Repository::git_directory() const { return impl_->pool.git_directory(); }
std::string Repository::state_directory() const { return impl_->state; }
const session::ObjectReader& Repository::objects() const { return impl_->objects; }
session::ReferenceStore& Repository::references() { return impl_->references; }
session::SessionCatalog& Repository::catalog() { return impl_->catalog; }

std::vector<NumberedTransition> Repository::transitions_after(std::int64_t number, std::size_t limit) const {
  return impl_->catalog.transitions_after(number, limit);
}

std::vector<NumberedDenial> Repository::denials_after(std::int64_t number, std::size_t limit) const {
  return impl_->catalog.denials_after(number, limit);
}

CatalogNumbers Repository::numbers() const { return impl_->catalog.numbers(); }
std::uint64_t Repository::denied_calls() const { return impl_->catalog.denied_calls(); }
CacheCounts Repository::cache_counts() const {
  const auto [hits, misses] = impl_->objects.cache_counts();
  return {hits, misses};
}

session::SessionDirectories& Repository::directories() { return impl_->directories; }

void Repository::write_diff(const std::optional<ObjectId>& before, const std::optional<ObjectId>& after,
                            DiffFormat format, const session::Quarantine* quarantine,
                            const std::function<void(std::string_view)>& out, const std::string& path) const {
  const auto* own = dynamic_cast<const GitQuarantine*>(quarantine);
  if (quarantine != nullptr && own == nullptr) {
    throw Error(Errc::not_supported, "cannot compare trees over a quarantine that is not this repository's");
  }
  write_tree_diff(git_directory(), before, after, format, own, path, out);
}

void Repository::log(const std::string& branch, const std::string& path,
                     const std::function<bool(const LogEntry&)>& visit) const {
  const auto repository = impl_->pool.borrow();
  walk_history(repository.get(), impl_->objects, branch, path, visit);
}

std::vector<AuditEntry> Repository::audit(const std::function<bool(const SessionRecord&)>& wanted) const {
  std::vector<AuditEntry> entries;
  for (SessionRecord& record : impl_->catalog.list()) {
    const bool is_over = session::is_final(record.state) || record.state == session::State::awaiting_approval;
    if (!is_over || !wanted(record)) continue;
    AuditEntry& entry = entries.emplace_back(AuditEntry{.record = std::move(record), .history = {}});
    entry.history = impl_->catalog.history(entry.record.id);
    entry.denied_calls = impl_->catalog.denied_calls(entry.record.id);
  }
  return entries;
}

void Repository::forget(const session::SessionId& id) { impl_->catalog.forget(id); }

std::chrono::seconds Repository::audit_retention() const { return read_audit_retention(git_directory()); }

std::vector<std::pair<std::string, ObjectId>> Repository::branches() const {
  return list_branches(impl_->pool.borrow().get());
}

std::size_t Repository::fold_packs() {
  if (!has_many_packs(impl_->objects)) return 0;
  const UniqueFd alone = try_gc_lock_alone(impl_->gc_lock_path());
  if (!alone) return 0;
  const GitRepository repository = open_git_repository(git_directory());
  const std::size_t folded = fold_small_packs(repository.get(), impl_->objects, impl_->state);
  if (folded > 0) renew_handles();
  return folded;
}

void Repository::renew_handles() { impl_->pool.renew(); }

GcReport Repository::gc() {
  const UniqueFd alone = take_gc_lock(impl_->gc_lock_path(), LockKind::exclusive);
  release_abandoned_packs(git_directory(), impl_->state + "/sessions");
  std::set<session::SessionId> forgotten;  // with a result but without a record: it was pruned
  for (const session::SessionId& id : impl_->references.results()) forgotten.insert(id);
  std::vector<ObjectId> needed;
  for (const SessionRecord& record : impl_->catalog.list()) {
    forgotten.erase(record.id);
    if (session::is_final(record.state)) continue;
    for (const auto& id : {record.base, record.swap_from, record.swap_to, record.result}) {
      if (id) needed.push_back(*id);
    }
  }
  for (const session::SessionId& id : forgotten) impl_->references.drop_result(id);
  // A handle of its own, so that nothing is answered from a cache.
  const GitRepository repository = open_git_repository(git_directory());
  return consolidate(repository.get(), impl_->objects, needed, impl_->state);
}

std::vector<Problem> Repository::verify(const std::function<void(std::uint64_t, std::uint64_t)>& progress) const {
  const GitRepository repository = open_git_repository(git_directory());
  std::vector<Problem> problems = verify_objects(repository.get(), impl_->objects, progress);
  const auto add = [&](std::vector<Problem> more) {
    problems.insert(problems.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  };
  add(check_catalog(impl_->state + "/catalog.db"));
  try {
    for (const SessionRecord& record : impl_->catalog.list()) {
      if (session::is_final(record.state)) continue;
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
      const std::string pin = "refs/escrow/base/" + record.id.text() + "/*";
      git_reference_iterator* raw = nullptr;
      const char* name = nullptr;
      check_git(git_reference_iterator_glob_new(&raw, repository.get(), pin.c_str()), "listing pins");
      const GitReferenceIterator iterator(raw);
      if (record.base && git_reference_next_name(&name, raw) != 0) {
        problems.push_back({where, "no reference under refs/escrow/base/ protects its base commit from gc"});
      }
    }
  } catch (const Error& error) {
    problems.push_back({"catalog", error.what()});
  }
  for (const session::SessionId& id : impl_->directories.list()) {
    add(check_session_directory(impl_->directories.path_of(id), id.text()));
  }
  return problems;
}

}  // namespace escrow::storage
