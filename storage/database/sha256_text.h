// "sha256:" and the digits of the hash of a text. Stateless.
#pragma once

#include <string>

namespace escrow::storage {

std::string sha256_text(const std::string& text);

}  // namespace escrow::storage
