#include "storage/database/sqlite.h"

#include <cerrno>
#include <optional>
#include <utility>

#include "storage/database/sqlite_files.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/file_lookup.h"

namespace escrow::storage {

using session::Errc;
using session::Error;

namespace {

constexpr std::int64_t kMostOfAnIdleLogBytes = std::int64_t{16} << 20;
// The first connection after the last one reads a log that stayed, a tenth of a millisecond for so much. Some 25
// sessions write it.
constexpr std::int64_t kShortLogBytes = std::int64_t{1} << 20;

// Whether the disk failed the last call on the database or on its log.
bool has_failed_on_disk(sqlite3* database) {
  if (database == nullptr) return false;
  int last = 0;
  sqlite3_file_control(database, "main", SQLITE_FCNTL_LAST_ERRNO, &last);
  if (last == EIO) return true;
  sqlite3_file* log = nullptr;
  sqlite3_file_control(database, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log);
  if (log == nullptr || log->pMethods == nullptr) return false;
  last = 0;
  log->pMethods->xFileControl(log, SQLITE_FCNTL_LAST_ERRNO, &last);
  return last == EIO;
}

// Nothing when it is not known.
std::optional<std::int64_t> log_bytes(sqlite3* database) {
  sqlite3_file* log = nullptr;
  sqlite3_file_control(database, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log);
  sqlite3_int64 bytes = 0;
  if (log == nullptr || log->pMethods == nullptr || log->pMethods->xFileSize(log, &bytes) != SQLITE_OK) return {};
  return bytes;
}

}  // namespace

void Database::Close::operator()(sqlite3* handle) const noexcept {
  if (keeps_log && log_bytes(handle).value_or(kShortLogBytes) < kShortLogBytes)
    sqlite3_db_config(handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  sqlite3_close_v2(handle);
}

Database::Database(const std::string& path, const Options& options) : path_(path), may_create_(options.create) {
  int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  if (options.create) flags |= SQLITE_OPEN_CREATE;
  check_no_link(path);
  sqlite3* handle = nullptr;
  const int result = sqlite3_open_v2(path.c_str(), &handle, flags, files_of_databases());
  handle_.reset(handle);
  if (result != SQLITE_OK) throw error(result);
  sqlite3_busy_timeout(handle, options.busy_timeout_ms);
  if (options.exclusive) execute("PRAGMA locking_mode = EXCLUSIVE");
}

Error Database::error(int result) const {
  const int kind = result & 0xff;
  const int system = handle_ ? sqlite3_system_errno(handle_.get()) : 0;
  const std::string said = handle_ ? sqlite3_errmsg(handle_.get()) : sqlite3_errstr(result);
  switch (kind) {
    case SQLITE_FULL: return system_error(system == EDQUOT ? EDQUOT : ENOSPC, "write " + path_);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      // SQLite calls malformed, too, what the disk did not let it read.
      if (has_failed_on_disk(handle_.get())) return system_error(EIO, "read " + path_);
      return Error(Errc::damaged_repository, "the database " + path_ + " is damaged: " + said +
                                                 "; restore it from a backup, or see what `escrow verify` says");
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return Error(Errc::busy, "the database " + path_ + " is in use by another process; try again later");
    case SQLITE_CANTOPEN:
      // SQLite tries again without making the file, so that the errno of a log that cannot be opened is lost.
      if (system == ENOENT && !may_create_ && !is_there(path_))
        return Error(Errc::damaged_repository, "the database " + path_ + " is missing");
      break;
    case SQLITE_READONLY:
      return Error(Errc::access_denied, "cannot write the database " + path_ + ": it, or its directory, is read-only");
    default: break;
  }
  if (system == ENOENT || (kind == SQLITE_CANTOPEN && system == 0)) {
    return Error(Errc::input_output, "cannot open the database " + path_ + ", or its log: SQLite does not say why; a "
                                     "full or failing disk and too many open files are reasons");
  }
  const std::string doing = "use the database " + path_;
  if (system != 0 && errc_of(system) != Errc::invalid_argument) return system_error(system, doing);
  return Error(Errc::input_output, "cannot " + doing + ": " + said);
}

void Database::execute(const char* sql) {
  const int result = sqlite3_exec(handle_.get(), sql, nullptr, nullptr, nullptr);
  if (result != SQLITE_OK) throw error(result);
}

std::int64_t Database::integer(const char* sql) {
  Statement statement(*this, sql);
  auto run = statement.run();
  return run.next() ? run.integer(0) : 0;
}

std::string Database::text(const char* sql) {
  Statement statement(*this, sql);
  auto run = statement.run();
  return run.next() ? run.bytes(0) : std::string();
}

void Database::sync_main_file() {
  sqlite3_file* file = nullptr;
  int result = sqlite3_file_control(handle_.get(), "main", SQLITE_FCNTL_FILE_POINTER, &file);
  if (result == SQLITE_OK && file != nullptr && file->pMethods != nullptr)
    result = file->pMethods->xSync(file, SQLITE_SYNC_NORMAL);
  if (result != SQLITE_OK) throw error(result);
}

void Database::keep_log() {
  int keep = 1;
  const int result = sqlite3_file_control(handle_.get(), "main", SQLITE_FCNTL_PERSIST_WAL, &keep);
  if (result != SQLITE_OK) throw error(result);
  handle_.get_deleter().keeps_log = true;
  execute(("PRAGMA journal_size_limit = " + std::to_string(kMostOfAnIdleLogBytes)).c_str());
}

void Database::checkpoint_by_hand() {
  // It takes the place of SQLite's own, which does a checkpoint and passes over its errors.
  sqlite3_wal_hook(
      handle_.get(),
      [](void* pages, sqlite3*, const char*, int count) {
        *static_cast<int*>(pages) = count;
        return SQLITE_OK;
      },
      log_pages_.get());
}

int Database::checkpoint(int mode) noexcept {
  return sqlite3_wal_checkpoint_v2(handle_.get(), nullptr, mode, nullptr, nullptr);
}

bool Database::has_failed_to_sync() const noexcept {
  const int result = sqlite3_extended_errcode(handle_.get());
  return result == SQLITE_IOERR_FSYNC || result == SQLITE_IOERR_DIR_FSYNC;
}

void Database::forget_checkpoint_on_close() noexcept {
  sqlite3_db_config(handle_.get(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
}

Statement::Statement(Database& database, std::string_view sql) : database_(&database) {
  sqlite3_stmt* handle = nullptr;
  const int result = sqlite3_prepare_v3(database.handle(), sql.data(), static_cast<int>(sql.size()),
                                        SQLITE_PREPARE_PERSISTENT, &handle, nullptr);
  handle_.reset(handle);
  if (result != SQLITE_OK) throw database.error(result);
}

void Statement::bind(int index, std::int64_t value) {
  if (const int result = sqlite3_bind_int64(handle_.get(), index, value); result != SQLITE_OK)
    throw database_->error(result);
}

void Statement::bind(int index, std::string_view text) {
  const char* data = text.data() != nullptr ? text.data() : "";
  const int result = sqlite3_bind_text64(handle_.get(), index, data, text.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  if (result != SQLITE_OK) throw database_->error(result);
}

void Statement::bind(int index, Bytes bytes) {
  const char* data = bytes.value.data() != nullptr ? bytes.value.data() : "";
  const int result = sqlite3_bind_blob64(handle_.get(), index, data, bytes.value.size(), SQLITE_TRANSIENT);
  if (result != SQLITE_OK) throw database_->error(result);
}

void Statement::bind(int index, std::nullopt_t) {
  if (const int result = sqlite3_bind_null(handle_.get(), index); result != SQLITE_OK) throw database_->error(result);
}

Statement::Run::~Run() {
  if (statement_ == nullptr) return;
  sqlite3_reset(statement_->handle_.get());
  sqlite3_clear_bindings(statement_->handle_.get());
}

bool Statement::Run::next() {
  const int result = sqlite3_step(statement_->handle_.get());
  if (result == SQLITE_ROW) return true;
  if (result == SQLITE_DONE) return false;
  throw statement_->database_->error(result);
}

bool Statement::Run::is_null(int column) const noexcept {
  return sqlite3_column_type(statement_->handle_.get(), column) == SQLITE_NULL;
}

std::int64_t Statement::Run::integer(int column) const noexcept {
  return sqlite3_column_int64(statement_->handle_.get(), column);
}

std::string Statement::Run::bytes(int column) const {
  const void* data = sqlite3_column_blob(statement_->handle_.get(), column);
  const int size = sqlite3_column_bytes(statement_->handle_.get(), column);
  return data == nullptr ? std::string() : std::string(static_cast<const char*>(data), static_cast<std::size_t>(size));
}

Transaction::Transaction(Database& database) : database_(database) { database_.execute("BEGIN IMMEDIATE"); }

Transaction::~Transaction() {
  // SQLite has already rolled back by itself after some errors (a full disk among them).
  if (database_.in_transaction()) sqlite3_exec(database_.handle(), "ROLLBACK", nullptr, nullptr, nullptr);
}

void Transaction::commit() { database_.execute("COMMIT"); }

}  // namespace escrow::storage
