#include "storage/database/sqlite_files.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

namespace escrow::storage {
namespace {

constexpr int kFrameHeaderBytes = 24;
constexpr int kWriteLock = 0;  // its place among the locks of the shared memory
constexpr int kPagesAfterCommitAt = 4;  // in that header: a number of 4 bytes, 0 unless the frame ends a transaction
constexpr sqlite3_int64 kNone = std::numeric_limits<sqlite3_int64>::max();

sqlite3_vfs* sqlites() {
  static sqlite3_vfs* const found = sqlite3_vfs_find("unix");
  return found;
}

int bytes_of_sqlites() { return (sqlites()->szOsFile + 7) / 8 * 8; }

// Escrow's state lies behind SQLite's in each open database and log.
struct Ours {
  sqlite3_file* other;      // of a database its log, of a log its database; null: that is not open
  sqlite3_int64 commit_at;  // of a log: where the frame begins that ends a transaction not known to be committed
};
Ours& ours_of(sqlite3_file* file) {
  return *reinterpret_cast<Ours*>(reinterpret_cast<char*>(file) + bytes_of_sqlites());
}

const sqlite3_io_methods* sqlites_for_databases = nullptr;
const sqlite3_io_methods* sqlites_for_logs = nullptr;

// The writer's lock is still held: no reader has seen the frame, and no writer has put another in its place.
int take_back_transaction(sqlite3_file* log, int result) {
  if (result == SQLITE_OK || ours_of(log).commit_at == kNone) return result;
  const int error = errno;
  sqlites_for_logs->xTruncate(log, ours_of(log).commit_at);
  ours_of(log).commit_at = kNone;
  errno = error;
  return result;
}

// Also the last step of a transaction, after its sync: its frames are entered in an index that may have to grow.
int map_shared_memory(sqlite3_file* file, int region, int bytes, int extends, void volatile** address) {
  const int result = sqlites_for_databases->xShmMap(file, region, bytes, extends, address);
  if (sqlite3_file* const log = ours_of(file).other) take_back_transaction(log, result);
  if ((result & 0xff) != SQLITE_READONLY) return result;
  errno = 0;  // SQLite has lost the errno of the open that failed
  return SQLITE_CANTOPEN;
}

// Outside of the writer's lock the log is another's to write, and nothing in it is taken back.
int lock_shared_memory(sqlite3_file* file, int offset, int count, int flags) {
  const int result = sqlites_for_databases->xShmLock(file, offset, count, flags);
  if (offset == kWriteLock && (flags & SQLITE_SHM_EXCLUSIVE) != 0 && ours_of(file).other != nullptr)
    ours_of(ours_of(file).other).commit_at = kNone;
  return result;
}

// The end of a transaction where there is no shared memory to lock.
int control_database(sqlite3_file* file, int operation, void* argument) {
  if (operation == SQLITE_FCNTL_COMMIT_PHASETWO && ours_of(file).other != nullptr)
    ours_of(ours_of(file).other).commit_at = kNone;
  return sqlites_for_databases->xFileControl(file, operation, argument);
}

int close_database(sqlite3_file* file) {
  if (sqlite3_file* const log = ours_of(file).other) ours_of(log).other = nullptr;
  return sqlites_for_databases->xClose(file);
}

int close_log(sqlite3_file* log) {
  if (sqlite3_file* const database = ours_of(log).other) ours_of(database).other = nullptr;
  return sqlites_for_logs->xClose(log);
}

int write_frame(sqlite3_file* log, const void* bytes, int size, sqlite3_int64 at) {
  if (size == kFrameHeaderBytes) {
    const char* const pages = static_cast<const char*>(bytes) + kPagesAfterCommitAt;
    const bool is_commit = std::any_of(pages, pages + 4, [](char byte) { return byte != 0; });
    if (is_commit) ours_of(log).commit_at = std::min(ours_of(log).commit_at, at);
  }
  return take_back_transaction(log, sqlites_for_logs->xWrite(log, bytes, size, at));
}

int sync_frames(sqlite3_file* log, int flags) {
  return take_back_transaction(log, sqlites_for_logs->xSync(log, flags));
}

void take_database(sqlite3_file* file) {
  static const sqlite3_io_methods methods = [file] {
    sqlites_for_databases = file->pMethods;
    sqlite3_io_methods own = *file->pMethods;
    own.xShmMap = map_shared_memory;
    own.xShmLock = lock_shared_memory;
    own.xFileControl = control_database;
    own.xClose = close_database;
    return own;
  }();
  file->pMethods = &methods;
}

void take_log(sqlite3_file* log, const char* path) {
  sqlite3_file* const database = sqlite3_database_file_object(path);
  ours_of(log) = {database, kNone};
  ours_of(database).other = log;
  static const sqlite3_io_methods methods = [log] {
    sqlites_for_logs = log->pMethods;
    sqlite3_io_methods own = *log->pMethods;
    own.xWrite = write_frame;
    own.xSync = sync_frames;
    own.xClose = close_log;
    return own;
  }();
  log->pMethods = &methods;
}

bool is_refused_writing(const char* path) {
  if (::faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) == 0) return false;
  return errno == EACCES || errno == EPERM || errno == EROFS;
}

// Closes a file again that SQLite has opened for reading only, though this process may write it.
int open_file(sqlite3_vfs*, const char* path, sqlite3_file* file, int flags, int* opened_with) {
  int opened = 0;
  errno = 0;
  const int result = sqlites()->xOpen(sqlites(), path, file, flags, &opened);
  const int reason = errno;
  if (opened_with != nullptr) *opened_with = opened;
  if (result != SQLITE_OK) return result;
  if ((flags & SQLITE_OPEN_MAIN_DB) != 0) ours_of(file) = {nullptr, kNone};
  if ((flags & SQLITE_OPEN_READWRITE) == 0) return SQLITE_OK;
  if ((opened & SQLITE_OPEN_READONLY) != 0) {
    if (is_refused_writing(path)) return SQLITE_OK;
    file->pMethods->xClose(file);
    file->pMethods = nullptr;
    errno = reason;
    return SQLITE_CANTOPEN;
  }
  if ((flags & SQLITE_OPEN_MAIN_DB) != 0) take_database(file);
  if ((flags & SQLITE_OPEN_WAL) != 0) take_log(file, path);
  return SQLITE_OK;
}

}  // namespace

const char* files_of_databases() {
  static sqlite3_vfs own = *sqlites();
  static const bool is_registered [[maybe_unused]] = [] {
    own.zName = "escrow";
    own.szOsFile = bytes_of_sqlites() + static_cast<int>(sizeof(Ours));
    own.xOpen = open_file;
    return sqlite3_vfs_register(&own, 0) == SQLITE_OK;
  }();
  return own.zName;
}

}  // namespace escrow::storage
