// The bearer tokens that escrowd was told to accept while it ran: of each the hash, for whom, until when, and who made
// and ended it. <state>/tokens.db: WAL, synchronous=FULL.
//
// Thread-safe (one connection behind a lock); one process at a time. What a method changed is on disk when it returns.
// Throws Error{no_space}, {damaged_repository}, {newer_state}. Times are seconds of the wall clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "session/base/synchronized.h"

namespace escrow::storage {

class TokenStore {
 public:
  // Creates the database when it is missing.
  explicit TokenStore(const std::string& database_path);
  ~TokenStore();

  struct Token {
    std::int64_t number = 0;  // add() gives it, and none twice
    std::string id;
    std::string hash;  // "sha256:..."
    std::string principal, note, created_by;
    std::int64_t created_s = 0, expires_s = 0;
    std::optional<std::int64_t> ended_s;  // nullopt: it is valid, as far as anybody has noted
    std::string ended_by;                 // empty: it has expired
  };
  // Throws Error{exists} when the hash is known, whoever's it is.
  void add(const Token& token);
  std::optional<Token> find(const std::string& id) const;
  // At most `limit` with a higher number, by number: of one principal, or of all; with those that have ended, or not.
  std::vector<Token> list_after(std::int64_t number, const std::optional<std::string>& principal, bool with_ended,
                                std::size_t limit) const;
  std::vector<Token> valid() const;
  // False: it had ended before, or there is none.
  bool revoke(const std::string& id, const std::string& who, std::int64_t now_s);
  // Notes of at most `most` that they have expired. True: there may be more.
  bool expire(std::int64_t now_s, std::size_t most);
  // Forgets at most `most` that ended before `before_s`. True: there may be more.
  bool forget(std::int64_t before_s, std::size_t most);

  // What happened to tokens, until it is told.
  struct Change {
    std::int64_t number = 0;  // none comes twice
    std::string kind;         // "created", "revoked", "expired"
    std::string who;
    std::int64_t time_s = 0;
    std::string id, principal, note;
    std::int64_t expires_s = 0;
  };
  std::vector<Change> changes_after(std::int64_t number, std::size_t limit) const;
  // Those up to this number were told.
  void forget_changes(std::int64_t number);

 private:
  struct Connection;
  mutable session::Synchronized<std::unique_ptr<Connection>> connection_;  // self-locking
};

}  // namespace escrow::storage
