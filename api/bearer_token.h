// Bearer tokens (RFC 6750): 256 random bits each, of which only a hash is kept.
//
// The bits are random, so a plain SHA-256 is as good as a slow hash: there is nothing to guess. Pure functions.
#pragma once

#include <string>
#include <string_view>

namespace escrow::api {

// "escrow_" and 43 letters of base64url.
std::string make_token();
// "sha256:" and 64 hexadecimal digits.
std::string hash_token(std::string_view token);
bool is_token_hash(std::string_view text);
// The same time whatever they have in common.
bool is_same_hash(std::string_view left, std::string_view right);

// The HMAC-SHA256 of a text by a secret, 64 hexadecimal digits (RFC 2104).
std::string mac_of(std::string_view text, std::string_view secret);

// Of the header "Authorization: Bearer TOKEN"; empty: it is something else.
std::string_view token_of(std::string_view authorization);

}  // namespace escrow::api
