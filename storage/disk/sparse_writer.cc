#include "storage/disk/sparse_writer.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "storage/disk/durable_file.h"

namespace escrow::storage {
namespace {

// A shorter run of zeros is written: a file of many holes is slow to read.
constexpr std::uint64_t kHole_bytes = std::uint64_t{64} << 10;

}  // namespace

// memcmp(3) compares words; to libstdc++ a std::byte is no integer, and std::all_of would go byte by byte.
bool is_all_zero(std::span<const std::byte> bytes) noexcept {
  return bytes.empty() ||
         (bytes.front() == std::byte{0} && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

void SparseWriter::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto piece = bytes.first(
        static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), kHole_bytes - length_ % kHole_bytes)));
    if (!is_all_zero(piece)) {
      before_(piece.size());
      write_at(fd_, std::string_view(reinterpret_cast<const char*>(piece.data()), piece.size()), length_, path_);
    }
    length_ += piece.size();
    bytes = bytes.subspan(piece.size());
  }
}

void SparseWriter::finish() const {
  if (::ftruncate(fd_, static_cast<off_t>(length_)) != 0) throw system_error(errno, "write " + path_);
}

}  // namespace escrow::storage
