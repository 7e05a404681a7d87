// The three kinds of ByteSource: bytes in memory, a file, and a helper that streams any of them. All immutable and
// thread-safe.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>

#include "session/interfaces/object_store.h"
#include "storage/disk/unique_fd.h"

namespace escrow::storage {

class MemoryBytes final : public session::ByteSource {
 public:
  explicit MemoryBytes(std::string bytes) : bytes_(std::move(bytes)) {}
  std::uint64_t size() const override { return bytes_.size(); }
  std::size_t read(std::uint64_t offset, std::span<std::byte> out) const override;

 private:
  const std::string bytes_;
};

// Holds the descriptor: the file may be unlinked meanwhile.
class FileBytes final : public session::ByteSource {
 public:
  FileBytes(UniqueFd fd, std::uint64_t size_bytes, std::string what)
      : fd_(std::move(fd)), size_bytes_(size_bytes), what_(std::move(what)) {}
  std::uint64_t size() const override { return size_bytes_; }
  std::size_t read(std::uint64_t offset, std::span<std::byte> out) const override;

 private:
  const UniqueFd fd_;
  const std::uint64_t size_bytes_;
  const std::string what_;
};

// The whole source, piece by piece. Throws Error{input_output} when it ends before its size().
void for_each_piece(const session::ByteSource& source, const std::function<void(std::span<const std::byte>)>& visit);
// The same in one piece, of a source that fits into memory.
std::string read_unchanged(const session::ByteSource& source);

}  // namespace escrow::storage
