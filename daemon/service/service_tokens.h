// The bearer tokens of escrowd: those whose hashes the configuration has, JSON Web Tokens of issuers that it names, and
// those that were made while the service runs, which expire, and which can be revoked at once (/v1/tokens).
//
// Only hashes are kept. A token that has ended is remembered for a while, for who asks what became of it, and each
// beginning and end is an event (service_events.h). Thread-safe. Throws what the store throws, and api::Problem.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "daemon/service/caller.h"
#include "session/base/clock.h"
#include "session/base/log.h"
#include "session/base/synchronized.h"
#include "storage/database/event_log.h"
#include "storage/database/token_store.h"

namespace escrow::daemon {

class ServiceTokens {
 public:
  using Token = storage::TokenStore::Token;
  // All must outlive this.
  ServiceTokens(const LiveConfig& config, storage::TokenStore& store, storage::EventLog& events,
                const session::Clock& clock, session::Log& log);

  // Of a request over TCP: whose token it is; empty: nobody's. Takes the same time whatever it has in common with a
  // valid one. Reads no disk.
  std::string principal_of(std::string_view token) const;
  // Whether the token that a request came with counts still: one that was made here until its end, a JSON Web Token
  // until it expires, one of the configuration as long as the connection.
  std::function<bool()> watch(const std::string& token) const;

  struct Wanted {
    std::string principal;  // empty: the caller
    std::string hash;       // empty: the service makes the token
    std::string note;
    std::int64_t expires_in_s = 0;
  };
  struct Made {
    Token token;
    std::string secret;  // empty: the caller made it
  };
  // A principal makes its own over the socket, where the kernel proves who asks: nobody prolongs a token by itself.
  // Operators make everybody's, but for users of this machine as whom they could not work themselves.
  Made create(const Caller& caller, const Wanted& wanted);

  struct Filter {
    std::optional<std::string> principal;
    bool with_ended = false;
    std::int64_t after = 0;
    std::size_t limit = 0;
  };
  // One's own; everybody's for operators.
  std::vector<Token> list(const Caller& caller, const Filter& filter) const;
  // Throws Problem{not_found}, also for somebody else's.
  Token find(const Caller& caller, const std::string& id) const;
  // As it is afterwards, whether it had ended before or not. No request that comes from here on is answered to it.
  Token revoke(const Caller& caller, const std::string& id);

  // Now and then: notes what has expired, forgets what ended longer ago than `keep_s`. A failure is logged.
  void tidy(std::int64_t keep_s) noexcept;

 private:
  struct Valid {
    std::string principal;
    std::int64_t expires_s = 0;
  };
  using All = std::unordered_map<std::string, Valid>;  // by hash

  void check_creation(const Caller& caller, const std::string& principal) const;
  std::optional<Valid> valid(const std::string& hash) const;
  // Of a JSON Web Token.
  std::optional<Valid> valid_jwt(std::string_view token) const;
  void tell();
  void try_to_tell() noexcept;

  const LiveConfig& config_;  // constant references, self-locking
  storage::TokenStore& store_;
  storage::EventLog& events_;
  const session::Clock& clock_;
  session::Log& log_;
  mutable session::Synchronized<All> valid_;  // self-locking; of each that the store has as valid
  struct Telling {};
  session::Synchronized<Telling> telling_;  // held meanwhile
};

}  // namespace escrow::daemon
