#include "storage/staging/file_session_directories.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "session/base/error.h"
#include "session/base/synchronized.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/file_lookup.h"
#include "storage/disk/remove_tree.h"
#include "storage/staging/file_read_log.h"
#include "storage/staging/sqlite_session_journal.h"
#include "storage/staging/tiered_staging_area.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::Error;
using session::SessionId;

// Of a directory in which others may just be making or removing a lock file.
constexpr int kMostAttempts = 100;

// In a session's objects (storage/objects/quarantine.h).
constexpr const char* kPublished = "published";

// A file of one of these names says how far the opening of a session came: the second is the first one under another
// name. A sync of the directory brings the name to disk, too.
constexpr const char* kOpening = "opening";
constexpr const char* kOpened = "opened";

struct flock whole_file(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

// false: somebody else has it.
bool try_lock(int fd, const std::string& path) {
  struct flock lock = whole_file(F_WRLCK);
  if (::fcntl(fd, F_OFD_SETLK, &lock) == 0) return true;
  if (errno == EAGAIN || errno == EACCES) return false;
  throw system_error(errno, "lock " + path);
}

// Whether somebody removed the session between our open and our lock.
bool was_removed(int fd) {
  struct stat status;
  return ::fstat(fd, &status) == 0 && status.st_nlink == 0;
}

UniqueFd directory_of(const std::string& session) {
  return UniqueFd(::open(session.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

// The file `name` in a session's directory; none, with errno set: ENOENT where there is no such directory.
UniqueFd open_in(const std::string& session, const char* name, int flags) {
  const UniqueFd directory = directory_of(session);
  if (!directory) return {};
  return UniqueFd(::openat(directory.get(), name, flags | O_NOFOLLOW | O_CLOEXEC, 0600));
}

std::vector<SessionId> ids_in(const std::string& directory) {
  std::vector<SessionId> ids;
  for (const std::string& name : names_in(directory))
    if (auto id = SessionId::parse(name)) ids.push_back(std::move(*id));
  std::sort(ids.begin(), ids.end());
  return ids;
}

// Not synced: after a power cut it is at the one place or at the other, and the next recovery goes on. Of what is there
// already only an empty directory is replaced.
void move_session(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    throw system_error(errno, "move the session's directory " + from + " to " + to);
}

class FileSessionDirectory final : public session::SessionDirectory {
 public:
  FileSessionDirectory(std::string path, std::string path_aside, UniqueFd lock,
                       const QuarantineFactory& quarantine_factory, const CacheVerbs& caches)
      : path_(std::move(path)),
        path_aside_(std::move(path_aside)),
        lock_(std::move(lock)),
        quarantine_factory_(quarantine_factory),
        caches_(caches),
        journal_(path_),
        reads_(path_) {}

  session::StagingArea& staging() override { return files(); }
  session::SessionJournal& journal() override { return journal_; }
  session::Quarantine& quarantine() override {
    auto quarantine = quarantine_.lock();
    if (!*quarantine) *quarantine = quarantine_factory_(path_ + "/objects");
    return **quarantine;
  }
  session::ReadLog& reads() override { return reads_; }
  std::string path() const override { return path_; }
  void opened() override;
  bool has_work() const override;
  std::string set_aside() override;
  bool drop_staged() override;
  void publish_caches() override {
    if (has_caches()) caches_.publish(path_);
  }
  std::vector<std::string> drop_caches() override {
    return has_caches() ? caches_.drop(path_) : std::vector<std::string>();
  }
  void share_staging(const std::vector<session::StagingId>& files, SessionDirectory& heir) override;
  void remove() override;

 private:
  bool has_caches() const { return caches_.publish && is_directory(path_ + "/caches"); }
  TieredStagingArea& files() {
    auto staging = staging_.lock();
    if (!*staging) *staging = std::make_unique<TieredStagingArea>(path_ + "/staging");
    return **staging;
  }

  const std::string path_;                       // constant
  const std::string path_aside_;                 // constant
  const UniqueFd lock_;                          // constant; closing it ends the hold
  const QuarantineFactory quarantine_factory_;   // constant
  const CacheVerbs caches_;                      // constant
  session::Synchronized<std::unique_ptr<TieredStagingArea>> staging_;  // self-locking; null until it is needed
  SqliteSessionJournal journal_;                 // the flusher's
  FileReadLog reads_;                            // used under the lock of who records
  session::Synchronized<std::unique_ptr<session::Quarantine>> quarantine_;  // self-locking
};

void FileSessionDirectory::opened() {
  journal_.directory_changed();
  const UniqueFd directory = directory_of(path_);
  if (directory && ::renameat(directory.get(), kOpening, directory.get(), kOpened) == 0) return;
  if (directory && errno == ENOENT && open_in(path_, kOpened, O_WRONLY | O_CREAT)) return;
  const int error = errno;
  if (directory) ::unlinkat(directory.get(), kOpening, 0);
  throw system_error(error, "make " + path_ + "/" + kOpened);
}

// Where neither name is left, as in a session of an earlier version, whatever is there may be somebody's work.
bool FileSessionDirectory::has_work() const {
  if (is_there(path_ + "/" + kOpened)) return true;
  if (is_there(path_ + "/" + kOpening)) return false;
  const std::vector<std::string> names = names_in(path_);
  return std::any_of(names.begin(), names.end(), [](const std::string& name) { return name != "lock"; });
}

std::string FileSessionDirectory::set_aside() {
  const std::string orphans = parent_of(path_aside_);
  // As `sessions`: others may be there, too, each in a directory of its own user's.
  if (::mkdir(orphans.c_str(), 0755) == 0) {
    const std::optional<struct stat> above = status_of(parent_of(orphans));
    if (::geteuid() == 0 && above && ::lchown(orphans.c_str(), above->st_uid, above->st_gid) != 0)
      throw system_error(errno, "give " + orphans + " to the repository's owner");
  } else if (errno != EEXIST) {
    throw system_error(errno, "make " + orphans);
  }
  check_own_directory(orphans);
  move_session(path_, path_aside_);
  return path_aside_;
}

// The names are gone then; what is still open goes with its descriptors.
bool FileSessionDirectory::drop_staged() {
  journal_.abandon();
  const bool here = remove_inside(path_, {"lock", kOpened, "objects", "caches"});
  const bool in_objects = remove_inside(path_ + "/objects", {kPublished});
  return here || in_objects;
}

void FileSessionDirectory::share_staging(const std::vector<session::StagingId>& files, SessionDirectory& heir) {
  const std::string staging = heir.path() + "/staging";
  if (::mkdir(staging.c_str(), 0700) != 0 && errno != EEXIST) throw system_error(errno, "create " + staging);
  this->files().share(files, staging);
  sync_directory(staging);
  sync_directory(heir.path());
}

void FileSessionDirectory::remove() {
  journal_.abandon();
  // What the session published in vain lies in the repository: only its quarantine knows which packs that is.
  if (::access((path_ + "/objects/" + kPublished).c_str(), F_OK) == 0 || errno != ENOENT) quarantine().discard();
  // The lock's name goes last: until then nobody takes the rest for a session of their own. Once it is gone, another
  // process may put a lock file of its own there: the directory is then its, for a fresh session or for a recovery.
  // Only what nobody holds is taken away too.
  const std::string lock = path_ + "/lock";
  UniqueFd other;
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    remove_inside(path_, {"lock"});
    if (::unlink(lock.c_str()) != 0 && errno != ENOENT) throw system_error(errno, "remove " + lock);
    // Not synced: should it be back after a power cut, the next command removes it again.
    if (::rmdir(path_.c_str()) == 0 || errno == ENOENT) return;
    if (errno != ENOTEMPTY && errno != EEXIST) throw system_error(errno, "remove the session's directory " + path_);
    // Made when it is missing: an attempt without a hold could unlink the lock of a session that was just created.
    UniqueFd next = open_in(path_, "lock", O_RDWR | O_CREAT);
    if (!next && errno == ENOENT) return;
    if (!next) throw system_error(errno, "open " + lock);
    if (!try_lock(next.get(), lock) || was_removed(next.get())) return;
    other = std::move(next);
  }
  throw Error(Errc::busy, "cannot remove the session's directory " + path_ +
                              ": another process keeps making files in it; the next command tries again");
}

}  // namespace

FileSessionDirectories::FileSessionDirectories(const std::string& sessions_path, QuarantineFactory quarantine_factory,
                                               CacheVerbs caches)
    : sessions_path_(sessions_path),
      orphans_path_(parent_of(sessions_path) + "/orphans"),
      quarantine_factory_(std::move(quarantine_factory)),
      caches_(std::move(caches)) {}

std::string FileSessionDirectories::path_of(const SessionId& id) const { return sessions_path_ + '/' + id.text(); }

std::string FileSessionDirectories::path_aside(const SessionId& id) const { return orphans_path_ + '/' + id.text(); }

std::unique_ptr<session::SessionDirectory> FileSessionDirectories::create(const SessionId& id) {
  const std::string path = path_of(id);
  // A recovery in another process takes a directory that nobody holds for an orphan: it may be faster than our lock,
  // and then we begin again.
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    if (attempt > 0) ::usleep(2'000);  // it holds the directory until it has removed it
    if (::mkdir(path.c_str(), 0700) != 0) {
      if (errno == EEXIST && attempt > 0) continue;
      throw system_error(errno, "create the session's directory " + path);
    }
    UniqueFd lock = open_in(path, "lock", O_RDWR | O_CREAT);
    if (!lock && errno != ENOENT) throw system_error(errno, "create " + path + "/lock");
    if (lock && try_lock(lock.get(), path + "/lock") && !was_removed(lock.get())) {
      if (!open_in(path, kOpening, O_WRONLY | O_CREAT)) throw system_error(errno, "create " + path + "/" + kOpening);
      return std::make_unique<FileSessionDirectory>(path, path_aside(id), std::move(lock), quarantine_factory_,
                                                    caches_);
    }
  }
  throw Error(Errc::busy, "cannot create the session's directory " + path + ": another process keeps removing it");
}

std::unique_ptr<session::SessionDirectory> FileSessionDirectories::try_open(const SessionId& id) {
  const std::string path = path_of(id);
  const auto gone = [&] { return Error(Errc::no_session, "session " + id.text() + " has no directory " + path); };
  UniqueFd lock = open_in(path, "lock", O_RDWR | O_CREAT);
  if (!lock && errno == ENOENT) throw gone();
  if (!lock) throw system_error(errno, "open " + path + "/lock");
  if (!try_lock(lock.get(), path + "/lock")) return nullptr;
  if (was_removed(lock.get())) throw gone();
  return std::make_unique<FileSessionDirectory>(path, path_aside(id), std::move(lock), quarantine_factory_, caches_);
}

std::unique_ptr<session::SessionDirectory> FileSessionDirectories::borrow(const SessionId& id) {
  if (!exists(id)) throw Error(Errc::no_session, "session " + id.text() + " has no directory " + path_of(id));
  return std::make_unique<FileSessionDirectory>(path_of(id), path_aside(id), UniqueFd(), quarantine_factory_, caches_);
}

bool FileSessionDirectories::exists(const SessionId& id) const { return ::access(path_of(id).c_str(), F_OK) == 0; }

bool FileSessionDirectories::is_held(const SessionId& id) const {
  const std::string path = path_of(id) + "/lock";
  const UniqueFd fd = open_in(path_of(id), "lock", O_RDONLY);
  if (!fd && errno == ENOENT) return false;
  if (!fd) throw system_error(errno, "open " + path);
  struct flock lock = whole_file(F_WRLCK);
  if (::fcntl(fd.get(), F_OFD_GETLK, &lock) != 0) throw system_error(errno, "examine the lock " + path);
  return lock.l_type != F_UNLCK;
}

std::vector<SessionId> FileSessionDirectories::list() const {
  if (!is_directory(sessions_path_)) throw system_error(ENOENT, "list the sessions in " + sessions_path_);
  check_own_directory(parent_of(sessions_path_));
  check_own_directory(sessions_path_);
  return ids_in(sessions_path_);
}

std::vector<SessionId> FileSessionDirectories::list_aside() const {
  if (!is_there(orphans_path_)) return {};
  check_own_directory(orphans_path_);
  return ids_in(orphans_path_);
}

bool FileSessionDirectories::is_aside(const SessionId& id) const { return is_there(path_aside(id)); }

// The lock file keeps the time at which the opening began.
std::int64_t FileSessionDirectories::opened_aside_s(const SessionId& id) const {
  const auto lock = status_of(path_aside(id) + "/lock");
  return lock ? lock->st_mtim.tv_sec : 0;
}

void FileSessionDirectories::bring_back(const SessionId& id) {
  check_own_directory(orphans_path_);
  if (!is_aside(id) && exists(id)) return;  // another process was faster
  move_session(path_aside(id), path_of(id));
}

}  // namespace escrow::storage
