#include "api/jwt.h"

#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "api/resources.h"
#include "session/base/error.h"

namespace escrow::api {

namespace {

using ParsedJson = nlohmann::json;
using session::Errc;
using session::Error;

template <auto Free>
struct FreeWith {
  template <typename T>
  void operator()(T* handle) const noexcept {
    Free(handle);
  }
};
using PublicKey = std::unique_ptr<EVP_PKEY, FreeWith<EVP_PKEY_free>>;
using KeyContext = std::unique_ptr<EVP_PKEY_CTX, FreeWith<EVP_PKEY_CTX_free>>;
using DigestContext = std::unique_ptr<EVP_MD_CTX, FreeWith<EVP_MD_CTX_free>>;
using ParameterBuilder = std::unique_ptr<OSSL_PARAM_BLD, FreeWith<OSSL_PARAM_BLD_free>>;
using Parameters = std::unique_ptr<OSSL_PARAM, FreeWith<OSSL_PARAM_free>>;
using Number = std::unique_ptr<BIGNUM, FreeWith<BN_free>>;
using EcSignature = std::unique_ptr<ECDSA_SIG, FreeWith<ECDSA_SIG_free>>;

constexpr std::size_t kMaxKeys = 64;
constexpr int kLeastRsaBits = 2048;
constexpr std::size_t kP256Bytes = 32;
constexpr std::size_t kMaxToken = 16384;
constexpr double kLatest_s = 1e15;

// Without padding (RFC 7515, section 2).
std::optional<std::string> from_base64url(std::string_view text) { return decode_cursor(std::string(text)); }

std::string claim_text(const ParsedJson& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// The document, or one that is discarded.
ParsedJson parsed(std::string_view text) { return ParsedJson::parse(text.begin(), text.end(), nullptr, false); }

const unsigned char* raw_bytes_of(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

Number number_of(std::string_view bytes) {
  return Number(BN_bin2bn(raw_bytes_of(bytes), static_cast<int>(bytes.size()), nullptr));
}

PublicKey key_of(const char* type, OSSL_PARAM_BLD* builder) {
  const Parameters parameters(OSSL_PARAM_BLD_to_param(builder));
  const KeyContext context(EVP_PKEY_CTX_new_from_name(nullptr, type, nullptr));
  EVP_PKEY* key = nullptr;
  if (!parameters || !context || EVP_PKEY_fromdata_init(context.get()) != 1 ||
      EVP_PKEY_fromdata(context.get(), &key, EVP_PKEY_PUBLIC_KEY, parameters.get()) != 1) {
    return nullptr;
  }
  PublicKey made(key);
  const KeyContext check(EVP_PKEY_CTX_new_from_pkey(nullptr, made.get(), nullptr));
  return check && EVP_PKEY_public_check(check.get()) == 1 ? std::move(made) : nullptr;
}

PublicKey rsa_key(const ParsedJson& jwk) {
  const auto modulus = from_base64url(claim_text(jwk, "n")), exponent = from_base64url(claim_text(jwk, "e"));
  if (!modulus || !exponent || modulus->empty() || exponent->empty()) return nullptr;
  const Number n = number_of(*modulus), e = number_of(*exponent);
  const ParameterBuilder builder(OSSL_PARAM_BLD_new());
  if (!n || !e || !builder || OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_N, n.get()) != 1 ||
      OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_E, e.get()) != 1) {
    return nullptr;
  }
  PublicKey key = key_of("RSA", builder.get());
  return key && EVP_PKEY_get_bits(key.get()) >= kLeastRsaBits ? std::move(key) : nullptr;
}

PublicKey ec_key(const ParsedJson& jwk) {
  const auto x = from_base64url(claim_text(jwk, "x")), y = from_base64url(claim_text(jwk, "y"));
  if (!x || !y || x->size() != kP256Bytes || y->size() != kP256Bytes) return nullptr;
  const std::string point = '\x04' + *x + *y;
  const ParameterBuilder builder(OSSL_PARAM_BLD_new());
  if (!builder ||
      OSSL_PARAM_BLD_push_utf8_string(builder.get(), OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0) != 1 ||
      OSSL_PARAM_BLD_push_octet_string(builder.get(), OSSL_PKEY_PARAM_PUB_KEY, point.data(), point.size()) != 1) {
    return nullptr;
  }
  return key_of("EC", builder.get());
}

// As OpenSSL takes it: DER, of the two numbers that a token has one after the other (RFC 7518, section 3.4).
std::string der_of(std::string_view signature) {
  if (signature.size() != 2 * kP256Bytes) return {};
  Number r = number_of(signature.substr(0, kP256Bytes)), s = number_of(signature.substr(kP256Bytes));
  const EcSignature both(ECDSA_SIG_new());
  if (!r || !s || !both || ECDSA_SIG_set0(both.get(), r.get(), s.get()) != 1) return {};
  static_cast<void>(r.release());
  static_cast<void>(s.release());
  unsigned char* der = nullptr;
  const int size = i2d_ECDSA_SIG(both.get(), &der);
  if (size <= 0) return {};
  std::string text(reinterpret_cast<const char*>(der), static_cast<std::size_t>(size));
  OPENSSL_free(der);
  return text;
}

// A NumericDate (RFC 7519, section 2), fractions left out.
std::optional<std::int64_t> claim_time(const ParsedJson& value) {
  if (!value.is_number()) return std::nullopt;
  const double seconds = value.get<double>();
  if (!(seconds >= 0 && seconds < kLatest_s)) return std::nullopt;
  return static_cast<std::int64_t>(std::floor(seconds));
}

std::optional<JwtClaims> claims_of(const ParsedJson& payload) {
  if (!payload.is_object()) return std::nullopt;
  JwtClaims claims{.issuer = claim_text(payload, "iss")};
  const auto expires = payload.find("exp"), not_before = payload.find("nbf"), audience = payload.find("aud");
  const auto expires_s = expires == payload.end() ? std::nullopt : claim_time(*expires);
  if (!expires_s) return std::nullopt;
  claims.expires_s = *expires_s;
  if (not_before != payload.end()) {
    claims.not_before_s = claim_time(*not_before);
    if (!claims.not_before_s) return std::nullopt;
  }
  if (audience != payload.end() && audience->is_string()) claims.audiences.push_back(audience->get<std::string>());
  if (audience != payload.end() && audience->is_array()) {
    for (const ParsedJson& one : *audience) {
      if (one.is_string()) claims.audiences.push_back(one.get<std::string>());
    }
  }
  for (const auto& [name, value] : payload.items()) {
    if (value.is_string()) claims.texts[name] = value.get<std::string>();
    if (value.is_number_integer()) claims.texts[name] = value.dump();
  }
  return claims;
}

}  // namespace

struct JwtKeys::Key {
  std::string id, algorithm;
  PublicKey key;

  bool has_signed(std::string_view content, const std::string& signature) const {
    const DigestContext context(EVP_MD_CTX_new());
    return context && EVP_DigestVerifyInit(context.get(), nullptr, EVP_sha256(), nullptr, key.get()) == 1 &&
           EVP_DigestVerify(context.get(), raw_bytes_of(signature), signature.size(), raw_bytes_of(content),
                            content.size()) == 1;
  }
};

JwtKeys::JwtKeys(std::string_view json, const std::string& what) {
  const auto refuse = [&](const std::string& why) { throw Error(Errc::bad_request, what + " " + why); };
  const ParsedJson document = parsed(json);
  const auto keys = document.is_object() ? document.find("keys") : document.end();
  if (!document.is_object() || keys == document.end() || !keys->is_array()) refuse("is no JWK set: it has no \"keys\"");
  if (keys->size() > kMaxKeys) refuse("has more than " + std::to_string(kMaxKeys) + " keys");
  for (const ParsedJson& jwk : *keys) {
    if (!jwk.is_object()) refuse("has a key that is no object");
    const std::string type = claim_text(jwk, "kty"), use = claim_text(jwk, "use"), only = claim_text(jwk, "alg");
    const bool is_rsa = type == "RSA", is_ec = type == "EC" && claim_text(jwk, "crv") == "P-256";
    const std::string algorithm = is_rsa ? "RS256" : "ES256";
    if ((!is_rsa && !is_ec) || (!use.empty() && use != "sig") || (!only.empty() && only != algorithm)) continue;
    PublicKey key = is_rsa ? rsa_key(jwk) : ec_key(jwk);
    if (!key) {
      refuse("has the key '" + claim_text(jwk, "kid") + "', which is damaged, or has fewer than " +
             std::to_string(kLeastRsaBits) + " bits");
    }
    keys_.push_back({.id = claim_text(jwk, "kid"), .algorithm = algorithm, .key = std::move(key)});
  }
  if (keys_.empty()) refuse("has no key for RS256 or ES256");
}

JwtKeys::~JwtKeys() = default;

std::optional<JwtClaims> JwtKeys::verify(std::string_view token) const {
  const std::size_t first = token.find('.'), last = token.rfind('.');
  if (token.size() > kMaxToken || first == last || token.find('.', first + 1) != last) return std::nullopt;
  const auto header_text = from_base64url(token.substr(0, first));
  const auto signature = from_base64url(token.substr(last + 1));
  if (!header_text || !signature) return std::nullopt;
  const ParsedJson header = parsed(*header_text);
  // `crit` names what nobody here knows (RFC 7515, section 4.1.11).
  if (!header.is_object() || header.contains("crit")) return std::nullopt;
  const std::string algorithm = claim_text(header, "alg"), id = claim_text(header, "kid");
  const Key* fits = nullptr;
  for (const Key& key : keys_) {
    if (key.algorithm != algorithm || (!id.empty() && key.id != id)) continue;
    if (fits != nullptr) return std::nullopt;
    fits = &key;
  }
  if (fits == nullptr) return std::nullopt;
  const std::string raw = algorithm == "ES256" ? der_of(*signature) : *signature;
  if (raw.empty() || !fits->has_signed(token.substr(0, last), raw)) return std::nullopt;
  const auto payload = from_base64url(token.substr(first + 1, last - first - 1));
  return payload ? claims_of(parsed(*payload)) : std::nullopt;
}

}  // namespace escrow::api
