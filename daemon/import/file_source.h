// Bytes of a file on the host, and of a string, as the core reads content. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "daemon/process/file_descriptor.h"
#include "session/interfaces/object_store.h"

namespace escrow::daemon {

// The file must keep its size while it is read: a shorter one throws Error{busy} naming it.
class FileSource final : public session::ByteSource {
 public:
  // `name` is for messages. `on_read` is told up to where each read went.
  FileSource(FileDescriptor file, std::uint64_t size, std::string name,
             const std::function<void(std::uint64_t)>& on_read);
  std::uint64_t size() const override { return size_; }
  std::size_t read(std::uint64_t offset, std::span<std::byte> out) const override;

 private:
  FileDescriptor file_;
  std::uint64_t size_;
  std::string name_;
  const std::function<void(std::uint64_t)>& on_read_;
};

class StringSource final : public session::ByteSource {
 public:
  explicit StringSource(std::string text) : text_(std::move(text)) {}
  std::uint64_t size() const override { return text_.size(); }
  std::size_t read(std::uint64_t offset, std::span<std::byte> out) const override;

 private:
  std::string text_;
};

}  // namespace escrow::daemon
