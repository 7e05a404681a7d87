#include "daemon/service/service_tokens.h"

#include <algorithm>
#include <utility>

#include "api/bearer_token.h"
#include "api/json_document.h"
#include "api/problem.h"
#include "daemon/service/jwt_identity.h"
#include "session/base/error.h"
#include "session/base/ids.h"

namespace escrow::daemon {

using api::Problem;
using api::ProblemCode;

namespace {

constexpr std::size_t kTokensAtOnce = 256;
constexpr const char* kPosition = "tokens";  // of EventLog

storage::EventLog::Event token_event(const storage::TokenStore::Change& change) {
  api::JsonObject document;
  document.time("time", {change.time_s, 0}).text("token", change.id).text("principal", change.principal);
  document.text("who", change.who).text("note", change.note).time("expires", {change.expires_s, 0});
  return {.number = 0,
          .type = "token." + change.kind,
          .repository = {},
          .session = {},
          .issuer = change.principal,
          .document = document.text()};
}

}  // namespace

ServiceTokens::ServiceTokens(const LiveConfig& config, storage::TokenStore& store, storage::EventLog& events,
                             const session::Clock& clock, session::Log& log)
    : config_(config), store_(store), events_(events), clock_(clock), log_(log) {
  auto all = valid_.lock();
  for (const Token& token : store_.valid()) (*all)[token.hash] = {token.principal, token.expires_s};
}

std::optional<ServiceTokens::Valid> ServiceTokens::valid(const std::string& hash) const {
  const auto all = valid_.lock();
  const auto found = all->find(hash);
  if (found == all->end() || found->second.expires_s <= clock_.now().seconds) return std::nullopt;
  return found->second;
}

std::string ServiceTokens::principal_of(std::string_view token) const {
  const std::string principal = principal_of_token(config_, token);
  // Which hashes are near to each other tells nobody a token.
  const std::optional<Valid> made = valid(api::hash_token(token));
  if (!principal.empty()) return principal;
  if (made) return made->principal;
  const std::optional<Valid> claimed = valid_jwt(token);
  return claimed ? claimed->principal : std::string();
}

std::function<bool()> ServiceTokens::watch(const std::string& token) const {
  if (token.empty() || !principal_of_token(config_, token).empty()) return [] { return true; };
  if (const std::optional<Valid> claimed = valid_jwt(token)) {
    return [this, until_s = claimed->expires_s] { return clock_.now().seconds < until_s; };
  }
  return [this, hash = api::hash_token(token)] { return valid(hash).has_value(); };
}

std::optional<ServiceTokens::Valid> ServiceTokens::valid_jwt(std::string_view token) const {
  const std::shared_ptr<const EscrowdConfig> config = config_.now();
  if (config->jwt_issuers.empty() || token.find('.') == std::string_view::npos) return std::nullopt;
  std::optional<JwtIdentity> identity = identity_of_jwt(*config, token, clock_.now().seconds);
  if (!identity) return std::nullopt;
  return Valid{.principal = std::move(identity->principal), .expires_s = identity->expires_s};
}

void ServiceTokens::check_creation(const Caller& caller, const std::string& principal) const {
  const auto forbid = [&](const std::string& why) {
    throw Problem(ProblemCode::forbidden, caller.principal + why, {{"field", "principal"}});
  };
  if (caller.is_remote() && !caller.is_operator) {
    forbid(" came with a token, and only operators make further ones with one; ask over the socket of the service");
  }
  // As an operator it could come back.
  if (caller.uid == 0 && !caller.has_our_rights) forbid(" has not all the rights of this service, and gets no token");
  if (principal == caller.principal) return;
  if (!caller.is_operator) forbid(" is no operator; only operators make tokens for others");
  const std::shared_ptr<const EscrowdConfig> config = config_.now();
  if (caller.may_become_anybody() || is_granted(*config, caller.principal, principal) ||
      account_of(*config, principal).uid == kOverflowId) {
    return;
  }
  forbid(" cannot work as the user of " + principal + " on this machine, and makes no token for it; root with the "
         "rights of the service does, and so may whom \"run_as\" of the configuration lets");
}

ServiceTokens::Made ServiceTokens::create(const Caller& caller, const Wanted& wanted) {
  const std::string& principal = wanted.principal.empty() ? caller.principal : wanted.principal;
  try {
    session::check_principal(principal, "the principal");
  } catch (const session::Error& error) {
    throw Problem(ProblemCode::invalid_value, error.what(), {{"field", "principal"}});
  }
  check_creation(caller, principal);
  Made made;
  if (wanted.hash.empty()) made.secret = api::make_token();
  const std::int64_t now_s = clock_.now().seconds;
  Token& token = made.token;
  token.id = session::SessionId::generate().text();
  token.hash = wanted.hash.empty() ? api::hash_token(made.secret) : wanted.hash;
  token.principal = principal;
  token.note = wanted.note;
  token.created_by = caller.principal;
  token.created_s = now_s;
  token.expires_s = now_s + wanted.expires_in_s;
  store_.add(token);
  (*valid_.lock())[token.hash] = {token.principal, token.expires_s};
  try_to_tell();
  return made;
}

std::vector<ServiceTokens::Token> ServiceTokens::list(const Caller& caller, const Filter& filter) const {
  if (!caller.is_operator && filter.principal && *filter.principal != caller.principal) return {};
  const std::optional<std::string> principal =
      caller.is_operator ? filter.principal : std::optional(caller.principal);
  return store_.list_after(filter.after, principal, filter.with_ended, filter.limit);
}

ServiceTokens::Token ServiceTokens::find(const Caller& caller, const std::string& id) const {
  std::optional<Token> found = store_.find(id);
  if (!found || !caller.may_end_of(found->principal)) {
    throw Problem(ProblemCode::not_found, "there is no token '" + id + "'");
  }
  return *std::move(found);
}

ServiceTokens::Token ServiceTokens::revoke(const Caller& caller, const std::string& id) {
  const Token found = find(caller, id);
  store_.revoke(id, caller.principal, clock_.now().seconds);
  valid_.lock()->erase(found.hash);
  try_to_tell();
  return store_.find(id).value_or(found);
}

void ServiceTokens::tidy(std::int64_t keep_s) noexcept {
  try {
    const std::int64_t now_s = clock_.now().seconds;
    while (store_.expire(now_s, kTokensAtOnce)) {
    }
    std::erase_if(*valid_.lock(), [&](const auto& one) { return one.second.expires_s <= now_s; });
    while (store_.forget(now_s - keep_s, kTokensAtOnce)) {
    }
    tell();
  } catch (const std::exception& failure) {
    log_.write(session::LogLevel::warning, std::string("the ends of tokens are noted later: ") + failure.what());
  }
}

// Each once: the events and how far they come are one transaction.
void ServiceTokens::tell() {
  const auto turn = telling_.lock();
  while (true) {
    const std::int64_t told = std::stoll(events_.position(kPosition).value_or("0"));
    const auto changes = store_.changes_after(told, kTokensAtOnce);
    if (changes.empty()) return;
    std::vector<storage::EventLog::Event> events;
    for (const auto& change : changes) {
      events.push_back(token_event(change));
      log_.write(session::LogLevel::info, "the token " + change.id + " of " + change.principal + " was " +
                                              change.kind + " by " + change.who);
    }
    events_.append(events, {{kPosition, std::to_string(changes.back().number)}});
    store_.forget_changes(changes.back().number);
  }
}

// What was made or revoked stays so; what is not told now tidy() tells.
void ServiceTokens::try_to_tell() noexcept {
  try {
    tell();
  } catch (const std::exception& failure) {
    log_.write(session::LogLevel::warning, std::string("events of tokens are late: ") + failure.what());
  }
}

}  // namespace escrow::daemon
