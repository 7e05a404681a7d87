#include "storage/git/git_references.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <set>
#include <vector>

#include "session/base/error.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/file_lookup.h"
#include "storage/git/branch_rules.h"
#include "storage/git/branch_turn.h"
#include "storage/git/git_error.h"
#include "storage/git/hidden_references.h"
#include "storage/git/packed_references.h"
#include "storage/git/reference_files.h"
#include "storage/git/reference_lock.h"
#include "storage/git/reflog.h"
#include "storage/git/shared_permissions.h"

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using session::Errc;
using session::Error;
using session::ObjectId;
using session::SessionId;

constexpr std::string_view kHeads = "refs/heads/";
constexpr char kPackedRefs[] = "packed-refs";
constexpr std::size_t kMostNamed = 1000;
// For git to end its packing. What is left is gc's to drop.
constexpr auto kPatienceForPins = std::chrono::milliseconds(1000);

// Gives `file`, if that is what it says, another name. As no file of a reference is ever written in place, what is at
// that name goes on saying so; and what was on disk is.
bool link_like(const std::string& file, const std::string& content, const std::string& name) {
  const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  std::string found(content.size() + 1, '\0');
  if (!fd || ::read(fd.get(), found.data(), found.size()) != static_cast<ssize_t>(content.size())) return false;
  found.resize(content.size());
  const std::string opened = "/proc/self/fd/" + std::to_string(fd.get());
  return found == content && ::linkat(AT_FDCWD, opened.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
}

std::string branch_reference(const std::string& branch) { return std::string(kHeads) + branch; }
constexpr char kPins[] = "refs/escrow/base/";
std::string pins_of(const SessionId& session) { return kPins + session.text() + "/"; }
constexpr char kResults[] = "refs/sessions/";
std::string result_name(const SessionId& session) { return kResults + session.text(); }
std::string file_content(const ObjectId& id) { return id.hex() + "\n"; }

// As git does it: read under the lock, written without the references that are to go, everything else as it is.
template <typename IsDropped>
void drop_packed(const std::string& git_directory, ReferenceLock& lock, IsDropped is_dropped) {
  const PackedReferences packed(git_directory);
  bool has_any = false;
  const std::string rest = packed.without([&](std::string_view name) {
    const bool drops = is_dropped(name);
    has_any = has_any || drops;
    return drops;
  });
  if (!has_any) return;
  lock.prepare(rest, packed.mode());
  lock.land();
}

// False: it was not there.
bool remove_loose(const std::string& path) {
  if (::unlink(path.c_str()) == 0) return true;
  if (errno != ENOENT && errno != ENOTDIR) throw system_error(errno, "remove the reference " + path);
  return false;
}

void check_exists(git_repository* repository, const ObjectId& commit) {
  git_odb* raw = nullptr;
  check_git(git_repository_odb(&raw, repository), "opening the objects of the repository");
  const GitOdb odb(raw);
  const git_oid id = to_git(commit);
  if (git_odb_exists(raw, &id) == 0)
    throw Error(Errc::damaged_repository, "the commit " + commit.hex() + " is not in the repository");
}

// git keeps references in files: "a" and "a/b" cannot both be.
void check_no_directory_conflict(const std::string& git_directory, const std::string& branch) {
  const auto refuse = [&](const std::string& other) {
    throw Error(Errc::bad_request, "cannot create the branch '" + branch + "': there is a branch '" + other +
                                       "', and git cannot have both; choose another name");
  };
  for (std::size_t slash = branch.find('/'); slash != std::string::npos; slash = branch.find('/', slash + 1)) {
    const std::string parent = branch.substr(0, slash);
    if (read_reference(git_directory, branch_reference(parent))) refuse(parent);
  }
  const std::vector<std::string> below = references_below(git_directory, branch_reference(branch) + "/");
  if (!below.empty()) refuse(below.front().substr(kHeads.size()));
}

// The reflog says who committed.
GitSignature reflog_identity(git_repository* repository, const ObjectId& commit) {
  const git_oid id = to_git(commit);
  git_signature* raw = nullptr;
  git_commit* found = nullptr;
  if (git_commit_lookup(&found, repository, &id) == 0) {
    const GitCommit owned(found);
    check_git(git_signature_dup(&raw, git_commit_committer(found)), "reading the committer of " + commit.hex());
  } else {
    check_git(git_signature_now(&raw, "escrow", "escrow@localhost"), "making a signature");
  }
  return GitSignature(raw);
}

// One line for each move.
std::string reflog_entries(git_repository* repository, ObjectId from, const std::vector<GitReferences::Move>& moves) {
  std::string entries;
  for (const GitReferences::Move& move : moves) {
    const GitSignature who = reflog_identity(repository, move.to);
    entries += reflog_entry(from, move.to, std::string(who->name) + " <" + who->email + ">", who->when.time,
                            who->when.offset, move.reflog_message);
    from = move.to;
  }
  return entries;
}

}  // namespace

std::string GitReferences::default_branch() const {
  const auto repository = pool_.borrow();
  git_reference* raw = nullptr;
  check_git(git_reference_lookup(&raw, repository.get(), "HEAD"), "reading HEAD of " + pool_.git_directory());
  const GitReference head(raw);
  const char* target = git_reference_symbolic_target(raw);
  if (target == nullptr || !std::string_view(target).starts_with(kHeads)) {
    throw Error(Errc::no_branch, "HEAD of " + pool_.git_directory() + " is on no branch; name one with --branch");
  }
  return std::string(target).substr(kHeads.size());
}

void GitReferences::check_target(const std::string& branch) const {
  int valid = 0;
  const std::string name = branch_reference(branch);
  check_git(git_reference_name_is_valid(&valid, name.c_str()), "checking the name of a branch", Errc::bad_request);
  if (valid == 0 || branch.empty() || branch.front() == '-' || branch == "HEAD") {
    throw Error(Errc::bad_request, "'" + branch + "' is not a name that git accepts for a branch; see git "
                                   "check-ref-format");
  }
  const auto refuse = [&](const std::string& where) {
    throw Error(Errc::wrong_state, "the branch '" + branch + "' is checked out in the work tree of " + where +
                                       ", whose files would no longer match it; check out another branch there, or "
                                       "commit to another branch");
  };
  const auto is_checked_out = [&](const std::string& directory) {
    return first_line_of(directory + "/HEAD") == "ref: " + name;
  };
  const std::string& git_directory = pool_.git_directory();
  const auto repository = pool_.borrow();
  if (git_repository_is_bare(repository.get()) == 0 && is_checked_out(git_directory)) refuse(git_directory);
  for (const std::string& tree : names_in(git_directory + "/worktrees")) {
    const std::string directory = git_directory + "/worktrees/" + tree;
    if (is_checked_out(directory)) refuse(directory);
  }
}

std::optional<ObjectId> GitReferences::target(const std::string& name) const {
  return read_reference(pool_.git_directory(), name);
}

std::optional<ObjectId> GitReferences::head(const std::string& branch) const {
  int valid = 0;
  const std::string name = branch_reference(branch);
  check_git(git_reference_name_is_valid(&valid, name.c_str()), "checking the name of a branch", Errc::bad_request);
  if (valid == 0) throw Error(Errc::bad_request, "'" + branch + "' is not a name that git accepts for a branch");
  return target(name);
}

bool GitReferences::move_through(const std::string& branch, const std::optional<ObjectId>& expected,
                                 const std::vector<Move>& moves) {
  const ObjectId& desired = moves.back().to;
  const std::string& git_directory = pool_.git_directory();
  const std::string name = resolve_reference(git_directory, branch_reference(branch));
  if (!expected) check_no_directory_conflict(git_directory, branch);
  ReferenceLock lock(git_directory, name, file_content(desired));
  // Under the lock: nobody moves it between this look and the move.
  if (target(name) != expected) return false;
  if (!expected) check_no_directory_conflict(git_directory, branch);
  const std::string entries = reflog_entries(pool_.borrow().get(), expected.value_or(ObjectId{}), moves);
  Reflog reflog(git_directory, name, entries);
  lock.land();
  // What fails from here on leaves a branch that has moved, for all that anybody can see, and may yet be back at
  // `expected` after a power loss.
  sync_directory(git_directory + "/" + parent_of(name));
  sync_names_above(parent_of(name));
  // Recovery believes that the branch was where an entry says it was.
  reflog.append();
  return true;
}

std::unique_ptr<session::ReferenceStore::Turn> GitReferences::take_turn(const std::string& branch) {
  return std::make_unique<BranchTurn>(pool_.git_directory() + "/escrow", branch);
}

// Written anew: a sync that failed has dropped what it was to write, and the next one would say nothing.
void GitReferences::make_durable(const std::string& branch) {
  const std::string& git_directory = pool_.git_directory();
  const std::string name = resolve_reference(git_directory, branch_reference(branch));
  ReferenceLock lock(git_directory, name);
  const std::optional<ObjectId> head = target(name);
  if (!head) return;
  lock.prepare(file_content(*head));
  lock.land();
  sync_directory(git_directory + "/" + parent_of(name));
  sync_names_above(parent_of(name));
  // The attempt that failed has taken its entry back, or left one that may not be on disk.
  if (!storage::reflog_has(git_directory, name, *head)) {
    const std::vector<Move> move = {{*head, "escrow: a commit whose first attempt at this entry failed"}};
    Reflog(git_directory, name, reflog_entries(pool_.borrow().get(), ObjectId{}, move)).append();
  }
  Reflog::sync_names(git_directory, name);
}

// The directories on the way to what is in `directory`, which is on disk itself. One whose name was put on disk before
// is known by its inode and birth: another in its place is another. The name of refs/heads is on disk since init.
void GitReferences::sync_names_above(std::string directory) {
  for (; directory != "refs" && directory != "refs/heads"; directory = parent_of(directory)) {
    struct statx status {};
    const std::string path = pool_.git_directory() + "/" + directory;
    if (::statx(AT_FDCWD, path.c_str(), 0, STATX_INO | STATX_BTIME, &status) != 0) {
      if (errno == ENOENT) return;  // gone with its last reference: nothing is left to be named
      throw system_error(errno, "look at the directory " + path);
    }
    const NamedDirectory named{status.stx_ino, status.stx_btime.tv_sec, status.stx_btime.tv_nsec};
    if ((status.stx_mask & STATX_BTIME) != 0 && named_.lock()->contains(named)) return;
    sync_directory(pool_.git_directory() + "/" + parent_of(directory));
    auto known = named_.lock();
    if (known->size() >= kMostNamed) known->clear();
    known->insert(named);
  }
}

session::BranchRule GitReferences::rule_of(const std::string& branch) const {
  return read_branch_rule(pool_.git_directory(), branch);
}

bool GitReferences::reflog_has(const std::string& branch, const ObjectId& commit) const {
  const std::string& git_directory = pool_.git_directory();
  return storage::reflog_has(git_directory, resolve_reference(git_directory, branch_reference(branch)), commit);
}

// Durable on return.
void GitReferences::set(const std::string& name, const ObjectId& id) {
  ReferenceLock lock(pool_.git_directory(), name, file_content(id));
  lock.land();
  sync_directory(pool_.git_directory() + "/" + parent_of(name));
  sync_names_above(parent_of(name));
}

// In git's order: where it was packed it goes there first, or the older value that is packed would show; and nobody
// may pack it again meanwhile. Call sync_removed_references() before removing
// objects that it held.
void GitReferences::remove(const std::string& name) {
  const std::string& git_directory = pool_.git_directory();
  ReferenceLock lock(git_directory, name);
  ReferenceLock packed(git_directory, kPackedRefs);
  drop_packed(git_directory, packed, [&](std::string_view each) { return each == name; });
  remove_loose(git_directory + "/" + name);
}

// Nobody else writes these, so that there is nothing to lock: a file is put in place whole, and what was left of one
// that was not is written over.
void GitReferences::pin(const SessionId& session, const ObjectId& commit, const std::string& like) {
  const std::string path = pool_.git_directory() + "/" + pins_of(session) + commit.hex();
  check_exists(pool_.borrow().get(), commit);
  for (int attempt = 0; !is_pinned(session, commit); ++attempt) {
    const SharedPermissions permissions = SharedPermissions::of(pool_.git_directory());
    permissions.make_directories(pool_.git_directory(), parent_of(path));
    if (!like.empty() && link_like(pool_.git_directory() + "/" + like, file_content(commit), path)) return;
    try {
      put_file(path, path + ".lock", file_content(commit), 0666);
      return permissions.apply(path);
    } catch (const Error&) {
      std::error_code error;
      if (fs::exists(parent_of(path), error) || attempt > 4) throw;  // else git swept away what it found empty
    }
  }
}

void GitReferences::pin_fresh(const SessionId& session, const std::string& branch, const ObjectId& commit) {
  pin(session, commit, branch_reference(branch));
}

void GitReferences::pin_base(const SessionId& session, const ObjectId& commit) {
  pin(session, commit, "");
  const std::string directory = parent_of(pins_of(session) + commit.hex());
  const std::string path = pool_.git_directory() + "/" + directory;
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd && errno == ENOENT) return;  // git has packed the pin meanwhile, which is as good
  if (!fd || ::fsync(fd.get()) != 0) throw system_error(errno, "sync the directory " + path);
  sync_names_above(directory);
}

bool GitReferences::is_pinned(const SessionId& session, const ObjectId& commit) const {
  return target(pins_of(session) + commit.hex()).has_value();
}

void GitReferences::pin_as(const SessionId& session, const SessionId& heir) {
  for (const std::string& name : names_below(pins_of(session)))
    if (const auto commit = ObjectId::from_hex(name.substr(name.rfind('/') + 1))) pin_base(heir, *commit);
}

std::vector<std::string> GitReferences::names_below(const std::string& directory) const {
  return references_below(pool_.git_directory(), directory);
}

// Nobody else writes these, so that the loose ones need no lock. The directory goes, too: else every session that ever
// was would leave one that each listing of the references reads. Pins are unlinked before the look at packed-refs: who
// packs references holds its lock from before it reads them until what it read is there to be seen.
void GitReferences::unpin_base(const SessionId& session) {
  const std::string& git_directory = pool_.git_directory();
  const std::string pins = pins_of(session);
  for (const std::string& name : names_in(git_directory + "/" + pins)) remove_loose(git_directory + "/" + pins + name);
  ::rmdir((git_directory + "/" + pins).c_str());
  drop_packed_pins(pins);
}

// `prefix`: a pin, or the directory of all of a session's.
void GitReferences::drop_packed_pins(const std::string& prefix) {
  const std::string& git_directory = pool_.git_directory();
  bool is_packed = is_there(git_directory + "/" + kPackedRefs + ".lock");
  PackedReferences(git_directory).visit_below(prefix, [&](const std::string&, const ObjectId&) { is_packed = true; });
  if (!is_packed) return;
  try {
    ReferenceLock packed(git_directory, kPackedRefs, std::nullopt, kPatienceForPins);
    drop_packed(git_directory, packed, [&](std::string_view name) { return name.starts_with(prefix); });
  } catch (const Error& error) {
    // A pin too many is dropped by the next gc; no end of a session waits for one of git's.
    if (error.code() != Errc::busy) throw;
  }
}

void GitReferences::unpin(const std::string& name) {
  remove_loose(pool_.git_directory() + "/" + name);
  drop_packed_pins(name);
}

void GitReferences::unpin_older(const SessionId& session, const ObjectId& base) {
  const auto repository = pool_.borrow();
  const git_oid tip = to_git(base);
  for (const std::string& name : names_below(pins_of(session))) {
    const auto commit = ObjectId::from_hex(name.substr(name.rfind('/') + 1));
    if (!commit || *commit == base) continue;
    const git_oid older = to_git(*commit);
    if (git_graph_descendant_of(repository.get(), &tip, &older) == 1) unpin(name);
  }
}

std::vector<SessionId> GitReferences::pinned() const {
  std::vector<SessionId> sessions;
  for (const std::string& name : names_below(kPins)) {
    const std::size_t begin = std::string_view(kPins).size();
    const auto id = SessionId::parse(name.substr(begin, name.find('/', begin) - begin));
    if (id && (sessions.empty() || sessions.back() != *id)) sessions.push_back(*id);
  }
  return sessions;
}

bool GitReferences::has_pin(const SessionId& session) const { return !names_below(pins_of(session)).empty(); }

void GitReferences::sweep_locks() { sweep_reference_locks(pool_.git_directory()); }

void GitReferences::keep_result(const SessionId& session, const ObjectId& commit) {
  set(result_name(session), commit);
}

std::optional<ObjectId> GitReferences::result(const SessionId& session) const { return target(result_name(session)); }

void GitReferences::hide_result(const SessionId& session) {
  hide_reference(pool_.git_directory(), result_name(session));
}

void GitReferences::drop_result(const SessionId& session) {
  remove(result_name(session));
  try {
    forget_hidden_reference(pool_.git_directory(), result_name(session));
  } catch (const Error&) {
    // The line that stays hides nothing.
  }
}

std::vector<SessionId> GitReferences::results() const {
  std::vector<SessionId> sessions;
  for (const std::string& name : names_below(kResults)) {
    if (const auto id = SessionId::parse(std::string_view(name).substr(std::string_view(kResults).size())))
      sessions.push_back(*id);
  }
  return sessions;
}

}  // namespace escrow::storage
