// Writes a new file from front to back; runs of zeros become holes. Not thread-safe. Throws Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

namespace escrow::storage {

bool is_all_zero(std::span<const std::byte> bytes) noexcept;

class SparseWriter {
 public:
  // Called with each number of bytes that are to be written; may throw.
  using Before = std::function<void(std::uint64_t bytes)>;

  // `fd`: an empty file, open to be written for as long as this lives. `path` is for messages.
  SparseWriter(int fd, std::string path, Before before)
      : fd_(fd), path_(std::move(path)), before_(std::move(before)) {}

  void append(std::span<const std::byte> bytes);
  // Gives the file its length. Nothing is synced.
  void finish() const;

 private:
  const int fd_;
  const std::string path_;
  const Before before_;
  std::uint64_t length_ = 0;
};

}  // namespace escrow::storage
