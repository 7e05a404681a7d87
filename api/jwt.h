// JSON Web Tokens: whether one was signed by a key of an issuer, and what it then claims.
//
// The key decides the algorithm, never the token: an RSA key verifies RS256 and an EC key on P-256 ES256; a token that
// says something else (`none`, HS256) is refused. What a token claims is not read before its signature is verified.
// Constant; thread-safe. Sources: RFC 7515, 7517, 7518, 7519, 8725.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace escrow::api {

struct JwtClaims {
  std::string issuer;
  std::vector<std::string> audiences;
  std::int64_t expires_s = 0;                 // since the epoch
  std::optional<std::int64_t> not_before_s;
  std::map<std::string, std::string> texts;   // every claim that is a string or a whole number
};

class JwtKeys {
 public:
  // A JWK set. Keys of other kinds or uses are left out. Throws Error{bad_request}, beginning with `what`: it is none,
  // no key is left, or one is weak or damaged.
  JwtKeys(std::string_view json, const std::string& what);
  ~JwtKeys();

  // nullopt: it is no token in compact form that one of the keys has signed and that says when it expires. Of a token
  // that names no key there must be one alone that fits.
  std::optional<JwtClaims> verify(std::string_view token) const;

 private:
  struct Key;
  std::vector<Key> keys_;
};

}  // namespace escrow::api
