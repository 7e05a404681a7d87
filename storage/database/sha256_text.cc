#include "storage/database/sha256_text.h"

#include <openssl/evp.h>

#include <array>
#include <new>

namespace escrow::storage {

std::string sha256_text(const std::string& text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1) throw std::bad_alloc();
  constexpr char kHex[] = "0123456789abcdef";
  std::string hex = "sha256:";
  for (unsigned at = 0; at < size; ++at) {
    hex += kHex[digest[at] >> 4];
    hex += kHex[digest[at] & 15];
  }
  return hex;
}

}  // namespace escrow::storage
