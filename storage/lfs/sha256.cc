#include "storage/lfs/sha256.h"

#include <array>

namespace escrow::storage {

Sha256::Sha256() : context_(EVP_MD_CTX_new()) { EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr); }

void Sha256::update(std::span<const std::byte> bytes) { EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()); }

std::string Sha256::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  EVP_DigestFinal_ex(context_.get(), digest.data(), &length);
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned at = 0; at < length; ++at) {
    text += kDigits[digest[at] >> 4];
    text += kDigits[digest[at] & 0xf];
  }
  return text;
}

}  // namespace escrow::storage
