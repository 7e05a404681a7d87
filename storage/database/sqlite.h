// SQLite in a few lines: a database, statements prepared once, and transactions that roll back by themselves.
//
// Not thread-safe: a Database and its statements belong to one thread at a time, and never cross a fork(2). Throws
// Error{no_space}, {quota_exceeded}, {damaged_repository} (naming the file), {busy}, {input_output}.
// Source: sqlite.org/c3ref.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "session/base/error.h"

namespace escrow::storage {

class Database {
 public:
  struct Options {
    bool create = false;
    // One connection in the world owns the file: no shared memory, locks taken once (PRAGMA locking_mode).
    bool exclusive = false;
    int busy_timeout_ms = 10'000;
  };
  // A missing file is damage unless `create` is set. SQLite reads the file at the first use, not here. A user who may
  // write the file never gets a connection that can only read it: this or the first use throws instead.
  Database(const std::string& path, const Options& options);

  // One or more statements without results.
  void execute(const char* sql);
  // The first column of the first row of `sql`; 0 without rows.
  std::int64_t integer(const char* sql);
  std::string text(const char* sql);
  // Rows that the last INSERT, UPDATE or DELETE changed.
  std::int64_t changes() const noexcept { return sqlite3_changes64(handle_.get()); }
  bool in_transaction() const noexcept { return sqlite3_get_autocommit(handle_.get()) == 0; }

  // fsync(2) of the database file itself, through SQLite's own descriptor: closing another one of the same file
  // would drop SQLite's locks (fcntl(2)).
  void sync_main_file();
  // The write-ahead log stays when the last connection closes: as it is while it is short, or else emptied into the
  // database. So a process that writes little waits for the disk with what it writes alone, not for making the log's
  // header durable before it and for a checkpoint after it. A long log shrinks when it starts anew.
  void keep_log();
  // Nobody but checkpoint() does one from now on; log_pages() tells how long the log is.
  void checkpoint_by_hand();
  int log_pages() const noexcept { return *log_pages_; }
  // sqlite3_wal_checkpoint_v2() with SQLITE_CHECKPOINT_...: a result code.
  int checkpoint(int mode) noexcept;
  // Whether the call that just failed did so in a sync: what it was to bring to disk may be lost.
  bool has_failed_to_sync() const noexcept;
  // close() leaves the write-ahead log as it is.
  void forget_checkpoint_on_close() noexcept;

  sqlite3* handle() const noexcept { return handle_.get(); }
  const std::string& path() const noexcept { return path_; }
  // The error of the call that just failed.
  session::Error error(int result) const;

 private:
  struct Close {
    bool keeps_log;
    void operator()(sqlite3* handle) const noexcept;
  };
  std::string path_;                         // constant, as all here
  bool may_create_;
  std::unique_ptr<int> log_pages_ = std::make_unique<int>(0);  // SQLite has its address
  std::unique_ptr<sqlite3, Close> handle_{nullptr, Close{false}};
};

// Bytes bound as a BLOB; a string is bound as TEXT.
struct Bytes {
  std::string_view value;
};

class Statement {
 public:
  // `database` must outlive the statement.
  Statement(Database& database, std::string_view sql);

  // One execution: reads rows until next() says false. Resets the statement when it goes away.
  class Run {
   public:
    explicit Run(Statement& statement) noexcept : statement_(&statement) {}
    Run(Run&& other) noexcept : statement_(std::exchange(other.statement_, nullptr)) {}
    Run& operator=(Run&&) = delete;
    ~Run();

    bool next();
    bool is_null(int column) const noexcept;
    std::int64_t integer(int column) const noexcept;
    std::string bytes(int column) const;  // of TEXT and BLOB

   private:
    Statement* statement_;
  };

  // Binds copies of `values`, in order: integers, strings (TEXT), Bytes (BLOB), optionals (NULL without value).
  template <typename... Values>
  Run run(const Values&... values) {
    Run run(*this);
    int index = 0;
    (bind(++index, values), ...);
    return run;
  }
  template <typename... Values>
  void execute(const Values&... values) {
    Run once = run(values...);
    while (once.next()) {
    }
  }

 private:
  friend class Run;
  struct Finalize {
    void operator()(sqlite3_stmt* handle) const noexcept { sqlite3_finalize(handle); }
  };
  void bind(int index, std::int64_t value);
  void bind(int index, std::uint64_t value) { bind(index, static_cast<std::int64_t>(value)); }
  void bind(int index, std::uint32_t value) { bind(index, static_cast<std::int64_t>(value)); }
  void bind(int index, int value) { bind(index, static_cast<std::int64_t>(value)); }
  void bind(int index, bool value) { bind(index, static_cast<std::int64_t>(value)); }
  void bind(int index, std::string_view text);
  void bind(int index, const std::string& text) { bind(index, std::string_view(text)); }
  void bind(int index, const char* text) { bind(index, std::string_view(text)); }
  void bind(int index, Bytes bytes);
  void bind(int index, std::nullopt_t);
  template <typename T>
  void bind(int index, const std::optional<T>& value) {
    value ? bind(index, *value) : bind(index, std::nullopt);
  }

  Database* database_;                                // constant
  std::unique_ptr<sqlite3_stmt, Finalize> handle_;    // constant
};

// BEGIN IMMEDIATE ... COMMIT; without commit() everything is undone.
class Transaction {
 public:
  explicit Transaction(Database& database);
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  ~Transaction();
  void commit();

 private:
  Database& database_;
};

}  // namespace escrow::storage
