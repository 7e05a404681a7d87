// SHA-256 over bytes that come in pieces: the name of an object of Git LFS. For one thread.
#pragma once

#include <openssl/evp.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace escrow::storage {

class Sha256 {
 public:
  Sha256();
  void update(std::span<const std::byte> bytes);
  // 64 lower-case hexadecimal digits. The object may not be used afterwards.
  std::string finish();

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const noexcept { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

}  // namespace escrow::storage
