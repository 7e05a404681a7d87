#include "storage/git_references.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "session/error.h"
#include "storage/branch_rules.h"
#include "storage/durable_file.h"
#include "storage/git_error.h"
#include "storage/reference_lock.h"

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using session::Errc;
using session::Error;
using session::ObjectId;
using session::SessionId;

constexpr std::string_view kHeads = "refs/heads/";
constexpr std::size_t kMostNamed = 1000;
constexpr auto kLockPatience = std::chrono::seconds(10);
constexpr auto kLongestPause = std::chrono::milliseconds(100);

// false: it is not there, or cannot be synced.
bool sync_there(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return fd && ::fsync(fd.get()) == 0;
}

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
std::string pins_of(const SessionId& session) { return "refs/escrow/base/" + session.text() + "/"; }
constexpr char kResults[] = "refs/sessions/";
std::string result_name(const SessionId& session) { return kResults + session.text(); }

// Calls `attempt`, which returns a libgit2 code, again while others hold a lock file, or take away the empty
// directory it was to be in.
template <typename Attempt>
int patiently(Attempt attempt) {
  const auto deadline = std::chrono::steady_clock::now() + kLockPatience;
  auto pause = std::chrono::milliseconds(1);
  for (int failures = 0;;) {
    const int code = attempt();
    const git_error* last = code == GIT_ERROR ? git_error_last() : nullptr;
    const bool swept = last != nullptr && last->klass == GIT_ERROR_OS && ++failures < 5;
    if ((code != GIT_ELOCKED && !swept) || std::chrono::steady_clock::now() > deadline) return code;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
}

[[noreturn]] void throw_reference_error(int code, const std::string& doing, const std::string& path) {
  if (code == GIT_ELOCKED) {
    throw Error(Errc::busy, doing + ": another process has held the lock " + path +
                                ".lock for 10 s; if no git process is running, remove that file");
  }
  throw_git_error(code, doing, Errc::damaged_repository);
}

// nullopt: there is none. Fresh from disk.
std::optional<ObjectId> read_target(git_repository* repository, const std::string& name) {
  git_oid id;
  const int code = git_reference_name_to_id(&id, repository, name.c_str());
  if (code == GIT_ENOTFOUND) return std::nullopt;
  check_git(code, "reading the reference " + name);
  return from_git(id);
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
void check_no_directory_conflict(git_repository* repository, const std::string& branch) {
  const auto refuse = [&](const std::string& other) {
    throw Error(Errc::bad_request, "cannot create the branch '" + branch + "': there is a branch '" + other +
                                       "', and git cannot have both; choose another name");
  };
  for (std::size_t slash = branch.find('/'); slash != std::string::npos; slash = branch.find('/', slash + 1)) {
    const std::string parent = branch.substr(0, slash);
    if (read_target(repository, branch_reference(parent))) refuse(parent);
  }
  git_reference_iterator* raw = nullptr;
  const std::string below = branch_reference(branch) + "/*";
  check_git(git_reference_iterator_glob_new(&raw, repository, below.c_str()), "listing branches");
  const GitReferenceIterator iterator(raw);
  const char* name = nullptr;
  if (git_reference_next_name(&name, raw) == 0) refuse(std::string(name).substr(kHeads.size()));
}

// One line, as git appends it (refs/files-backend.c, log_ref_write_fd()).
void append_reflog(const std::string& git_directory, const std::string& name, const ObjectId& before,
                   const ObjectId& after, const git_signature& who, const std::string& message) {
  const std::string path = git_directory + "/logs/" + name;
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  const int offset = std::abs(who.when.offset);
  char when[64];
  std::snprintf(when, sizeof when, "%lld %c%02d%02d", static_cast<long long>(who.when.time),
                who.when.offset < 0 ? '-' : '+', offset / 60, offset % 60);
  const std::string line = before.hex() + " " + after.hex() + " " + who.name + " <" + who.email + "> " + when + "\t" +
                           message + "\n";
  const UniqueFd fd = open_or_throw(AT_FDCWD, path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666, "open " + path);
  if (::write(fd.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    throw system_error(errno == 0 ? ENOSPC : errno, "write " + path);
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
  const auto is_checked_out = [&](const fs::path& head) {
    std::ifstream in(head);
    std::string line;
    std::getline(in, line);
    return line == "ref: " + name;
  };
  const fs::path git_directory = pool_.git_directory();
  const auto repository = pool_.borrow();
  if (git_repository_is_bare(repository.get()) == 0 && is_checked_out(git_directory / "HEAD")) {
    refuse(git_directory.string());
  }
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(git_directory / "worktrees", error)) {
    if (is_checked_out(entry.path() / "HEAD")) refuse(entry.path().string());
  }
}

std::optional<ObjectId> GitReferences::target(const std::string& name) const {
  const auto repository = pool_.borrow();
  return read_target(repository.get(), name);
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
  const std::string name = branch_reference(branch);
  const auto repository = pool_.borrow();
  if (!expected) check_no_directory_conflict(repository.get(), branch);
  ReferenceLock lock(pool_.git_directory(), name, desired);
  // Under the lock: nobody moves it between this look and the commit.
  if (read_target(repository.get(), name) != expected) return false;
  if (!expected) check_no_directory_conflict(repository.get(), branch);
  std::vector<GitSignature> identities;
  for (const Move& move : moves) identities.push_back(reflog_identity(repository.get(), move.to));
  lock.land();
  // After the move: a log entry says that the branch was there, and recovery believes it.
  ObjectId from = expected.value_or(ObjectId{});
  for (std::size_t at = 0; at < moves.size(); ++at) {
    append_reflog(pool_.git_directory(), name, from, moves[at].to, *identities[at], moves[at].reflog_message);
    from = moves[at].to;
  }
  // Readers of the reflog, recovery among them, trust what it says; git syncs neither it nor the directories.
  sync_there(pool_.git_directory() + "/logs/" + name);
  sync_there(pool_.git_directory() + "/" + parent_of(name));
  sync_names_above(parent_of(name));
  return true;
}

// The directories on the way to what is in `directory`, which is on disk itself. One whose name was put on disk before
// is known by its inode and birth: another in its place is another. The name of refs/heads is on disk since init.
void GitReferences::sync_names_above(std::string directory) {
  for (; directory != "refs" && directory != "refs/heads"; directory = parent_of(directory)) {
    struct statx status {};
    if (::statx(AT_FDCWD, (pool_.git_directory() + "/" + directory).c_str(), 0, STATX_INO | STATX_BTIME, &status) != 0)
      return;  // gone with its last reference: nothing is left to be named
    const NamedDirectory named{status.stx_ino, status.stx_btime.tv_sec, status.stx_btime.tv_nsec};
    if ((status.stx_mask & STATX_BTIME) != 0 && named_.lock()->contains(named)) return;
    if (!sync_there(pool_.git_directory() + "/" + parent_of(directory))) return;
    auto known = named_.lock();
    if (known->size() >= kMostNamed) known->clear();
    known->insert(named);
  }
}

session::BranchRule GitReferences::rule_of(const std::string& branch) const {
  return read_branch_rule(pool_.git_directory(), branch);
}

bool GitReferences::reflog_has(const std::string& branch, const ObjectId& commit) const {
  const auto repository = pool_.borrow();
  git_reflog* raw = nullptr;
  check_git(git_reflog_read(&raw, repository.get(), branch_reference(branch).c_str()),
            "reading the reflog of the branch '" + branch + "'");
  const GitReflog reflog(raw);
  for (std::size_t i = 0; i < git_reflog_entrycount(raw); ++i) {
    if (from_git(*git_reflog_entry_id_new(git_reflog_entry_byindex(raw, i))) == commit) return true;
  }
  return false;
}

// libgit2 syncs the file and its directory (GIT_OPT_ENABLE_FSYNC_GITDIR).
void GitReferences::set(const std::string& name, const ObjectId& id) {
  const auto repository = pool_.borrow();
  const git_oid oid = to_git(id);
  const int code = patiently([&] {
    git_reference* raw = nullptr;
    const int result = git_reference_create(&raw, repository.get(), name.c_str(), &oid, 1, nullptr);
    const GitReference created(raw);
    return result;
  });
  if (code < 0) throw_reference_error(code, "writing the reference " + name, pool_.git_directory() + "/" + name);
  sync_names_above(parent_of(name));
}

void GitReferences::remove(const std::string& name) {
  const auto repository = pool_.borrow();
  const int code = patiently([&] { return git_reference_remove(repository.get(), name.c_str()); });
  if (code < 0 && code != GIT_ENOTFOUND) {
    throw_reference_error(code, "removing the reference " + name, pool_.git_directory() + "/" + name);
  }
}

// As git writes one, by a lock file. libgit2 would wait for the disk three times; nobody else writes these.
void GitReferences::pin(const SessionId& session, const ObjectId& commit, const std::string& like) {
  const std::string path = pool_.git_directory() + "/" + pins_of(session) + commit.hex();
  const fs::path directory = fs::path(path).parent_path();
  const std::string content = commit.hex() + "\n";
  check_exists(pool_.borrow().get(), commit);
  for (int attempt = 0; !is_pinned(session, commit); ++attempt) {
    std::error_code error;
    fs::create_directories(directory, error);
    if (!like.empty() && link_like(pool_.git_directory() + "/" + like, content, path)) return;
    try {
      return put_file(path, path + ".lock", content, 0666);
    } catch (const Error&) {
      if (fs::exists(directory, error) || attempt > 4) throw;  // else others swept away what they found empty
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
  // Gone when git has packed the pin meanwhile, which is as good.
  if (!sync_there(path) && fs::exists(path)) throw Error(Errc::input_output, "cannot sync the directory " + path);
  sync_names_above(directory);
}

bool GitReferences::is_pinned(const SessionId& session, const ObjectId& commit) const {
  return target(pins_of(session) + commit.hex()).has_value();
}

// Only the process that holds a session's directory writes its references: a lock file there is a dead one's.
void GitReferences::sweep_lock(const SessionId& session) {
  ::unlink((pool_.git_directory() + "/" + result_name(session) + ".lock").c_str());
}

std::vector<std::string> GitReferences::names_below(const std::string& directory) const {
  const auto repository = pool_.borrow();
  git_reference_iterator* raw = nullptr;
  check_git(git_reference_iterator_glob_new(&raw, repository.get(), (directory + "*").c_str()),
            "listing the references in " + directory);
  const GitReferenceIterator iterator(raw);
  std::vector<std::string> names;
  for (const char* name = nullptr; git_reference_next_name(&name, raw) == 0;) names.push_back(name);
  return names;
}

// Nobody else writes these, so that they need no lock, and a lock file is a dead process's. The directory goes, too:
// else every session that ever was would leave one that each listing of the references reads.
void GitReferences::unpin_base(const SessionId& session) {
  const std::string directory = pool_.git_directory() + "/" + pins_of(session);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) ::unlink(entry.path().c_str());
  ::rmdir(directory.c_str());
  for (const std::string& packed : names_below(pins_of(session))) remove(packed);
}

void GitReferences::keep_result(const SessionId& session, const ObjectId& commit) {
  sweep_lock(session);
  set(result_name(session), commit);
}

std::optional<ObjectId> GitReferences::result(const SessionId& session) const { return target(result_name(session)); }

void GitReferences::drop_result(const SessionId& session) {
  sweep_lock(session);
  remove(result_name(session));
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
