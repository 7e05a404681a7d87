// The body of a request that was kept in a file of no name while it came: gone with its last holder, or the process.
// One thread at a time appends; reading, by pread(2) or read(), is thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace escrow::api {

class ReceivedBody {
 public:
  // In this directory. Null: `failed` is the errno.
  static std::shared_ptr<ReceivedBody> create(const std::string& directory, int& failed);
  ReceivedBody(const ReceivedBody&) = delete;
  ReceivedBody& operator=(const ReceivedBody&) = delete;
  ~ReceivedBody();

  // 0 or the errno.
  int append(std::string_view bytes);
  std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  // Short only at the end. Throws Error{input_output}.
  std::size_t read(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  explicit ReceivedBody(int descriptor) : descriptor_(descriptor) {}
  const int descriptor_;
  std::uint64_t size_bytes_ = 0;
};

}  // namespace escrow::api
