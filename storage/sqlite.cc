#include "storage/sqlite.h"

#include <cerrno>

#include "storage/durable_file.h"

namespace escrow::storage {

using session::Errc;
using session::Error;

Database::Database(const std::string& path, const Options& options) : path_(path) {
  int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  if (options.create) flags |= SQLITE_OPEN_CREATE;
  sqlite3* handle = nullptr;
  const int result = sqlite3_open_v2(path.c_str(), &handle, flags, nullptr);
  handle_.reset(handle);
  if (result != SQLITE_OK) throw error(result);
  sqlite3_busy_timeout(handle, options.busy_timeout_ms);
  if (options.exclusive) execute("PRAGMA locking_mode = EXCLUSIVE");
}

Error Database::error(int result) const {
  const int system = handle_ ? sqlite3_system_errno(handle_.get()) : 0;
  const std::string said = handle_ ? sqlite3_errmsg(handle_.get()) : sqlite3_errstr(result);
  switch (result & 0xff) {
    case SQLITE_FULL: return system_error(system == EDQUOT ? EDQUOT : ENOSPC, "write " + path_);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Error(Errc::damaged_repository, "the database " + path_ + " is damaged: " + said +
                                                 "; restore it from a backup, or see what `escrow verify` says");
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return Error(Errc::busy, "the database " + path_ + " is in use by another process; try again later");
    case SQLITE_CANTOPEN:
      if (system == ENOENT) return Error(Errc::damaged_repository, "the database " + path_ + " is missing");
      break;
    case SQLITE_READONLY:
      return Error(Errc::access_denied, "cannot write the database " + path_ + ": it, or its directory, is read-only");
    default: break;
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
