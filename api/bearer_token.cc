#include "api/bearer_token.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <strings.h>

#include <array>
#include <new>

#include "api/resources.h"
#include "session/base/error.h"

namespace escrow::api {

namespace {

constexpr std::string_view kTokenMark = "escrow_";
constexpr std::string_view kHashMark = "sha256:";
constexpr std::string_view kDigits = "0123456789abcdef";
constexpr std::size_t kHashBytes = 32;
constexpr std::size_t kRandomBytes = 32;
constexpr std::string_view kScheme = "Bearer ";

using Digest = std::array<unsigned char, kHashBytes>;

std::string in_digits(const Digest& digest) {
  std::string text;
  for (const unsigned char byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace

std::string make_token() {
  std::string bytes(kRandomBytes, '\0');
  if (::RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(bytes.size())) != 1) {
    throw session::Error(session::Errc::unavailable, "cannot make a token: the system gave no random bytes");
  }
  return std::string(kTokenMark) + encode_cursor(bytes);
}

std::string hash_token(std::string_view token) {
  Digest digest;
  unsigned size = 0;
  if (::EVP_Digest(token.data(), token.size(), digest.data(), &size, ::EVP_sha256(), nullptr) != 1) {
    throw std::bad_alloc();
  }
  return std::string(kHashMark) + in_digits(digest);
}

std::string mac_of(std::string_view text, std::string_view secret) {
  Digest digest;
  std::size_t size = 0;
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  if (::EVP_Q_mac(nullptr, "HMAC", nullptr, "SHA256", nullptr, secret.data(), secret.size(), bytes, text.size(),
                  digest.data(), digest.size(), &size) == nullptr) {
    throw std::bad_alloc();
  }
  return in_digits(digest);
}

bool is_token_hash(std::string_view text) {
  return text.starts_with(kHashMark) && text.size() == kHashMark.size() + 2 * kHashBytes &&
         text.find_first_not_of(kDigits, kHashMark.size()) == std::string_view::npos;
}

bool is_same_hash(std::string_view left, std::string_view right) {
  return left.size() == right.size() && ::CRYPTO_memcmp(left.data(), right.data(), left.size()) == 0;
}

std::string_view token_of(std::string_view authorization) {
  if (authorization.size() < kScheme.size()) return {};
  if (::strncasecmp(authorization.data(), kScheme.data(), kScheme.size()) != 0) return {};
  authorization.remove_prefix(kScheme.size());
  return authorization;
}

}  // namespace escrow::api
