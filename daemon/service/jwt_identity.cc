#include "daemon/service/jwt_identity.h"

#include <algorithm>
#include <utility>

#include "api/jwt.h"
#include "daemon/service/caller.h"
#include "session/base/error.h"
#include "session/base/glob.h"

namespace escrow::daemon {

namespace {

// How far the issuer's clock may be ahead.
constexpr std::int64_t kSkew_s = 60;

bool fits(const JwtIssuer::Rule& rule, const api::JwtClaims& claims) {
  return std::ranges::all_of(rule.claims, [&](const auto& one) {
    const auto claim = claims.texts.find(one.first);
    return claim != claims.texts.end() && session::glob_match(one.second, claim->second);
  });
}

// "agent:{sub}" with what the claim says; nullopt where there is no such claim.
std::optional<std::string> filled_in(const std::string& pattern, const api::JwtClaims& claims) {
  std::string principal;
  for (std::size_t at = 0; at < pattern.size();) {
    const std::size_t open = pattern.find('{', at), close = pattern.find('}', open);
    if (close == std::string::npos) return principal + pattern.substr(at);
    const auto claim = claims.texts.find(pattern.substr(open + 1, close - open - 1));
    if (claim == claims.texts.end()) return std::nullopt;
    principal += pattern.substr(at, open - at) + claim->second;
    at = close + 1;
  }
  return principal;
}

bool is_for(const JwtIssuer& issuer, const api::JwtClaims& claims, std::int64_t now_s) {
  const bool is_audience = std::ranges::find(claims.audiences, issuer.audience) != claims.audiences.end();
  const bool has_begun = !claims.not_before_s || *claims.not_before_s <= now_s + kSkew_s;
  return claims.issuer == issuer.issuer && is_audience && has_begun && now_s < claims.expires_s;
}

std::optional<std::string> principal_of(const JwtIssuer& issuer, const api::JwtClaims& claims) {
  const auto rule = std::ranges::find_if(issuer.rules, [&](const auto& one) { return fits(one, claims); });
  if (rule == issuer.rules.end()) return std::nullopt;
  std::optional<std::string> principal = filled_in(rule->principal, claims);
  if (!principal) return std::nullopt;
  try {
    session::check_principal(*principal, "the principal");
  } catch (const session::Error&) {
    return std::nullopt;
  }
  return principal;
}

}  // namespace

std::optional<JwtIdentity> identity_of_jwt(const EscrowdConfig& config, std::string_view token, std::int64_t now_s) {
  for (const JwtIssuer& issuer : config.jwt_issuers) {
    const std::optional<api::JwtClaims> claims = issuer.keys->verify(token);
    if (!claims || !is_for(issuer, *claims, now_s)) continue;
    std::optional<std::string> principal = principal_of(issuer, *claims);
    // Root of the machine is nobody whom another service names.
    if (!principal || account_of(config, *principal).uid == 0) continue;
    return JwtIdentity{.principal = *std::move(principal), .expires_s = claims->expires_s};
  }
  return std::nullopt;
}

}  // namespace escrow::daemon
