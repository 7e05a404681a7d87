// zlib as two small machines: one pulls inflated bytes out of a file, one pushes deflated bytes to a sink.
// Not thread-safe. Reading throws Error{input_output} for bytes that are not a whole zlib stream. See zlib.h.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace escrow::storage {

// Inflates the stream that starts at `offset` of `fd`, which must stay open. `what` names it in errors.
class InflateReader {
 public:
  // What is at an offset of the compressed bytes; fewer than fit in: no more follow. 0: there are none.
  using ReadAt = std::function<std::size_t(std::uint64_t offset, std::span<std::byte> out)>;
  InflateReader(ReadAt read_at, std::uint64_t offset, std::string what, std::size_t buffer_bytes = kBufferBytes);
  InflateReader(int fd, std::uint64_t offset, std::string what, std::size_t buffer_bytes = kBufferBytes);
  ~InflateReader();
  InflateReader(const InflateReader&) = delete;
  InflateReader& operator=(const InflateReader&) = delete;

  // Fills `out`; short only at the end of the stream, which has then been verified (Adler-32).
  std::size_t read(std::span<std::byte> out);
  // Deflated bytes consumed so far; the length of the stream once read() came back short.
  std::uint64_t consumed() const noexcept { return consumed_; }

  static constexpr std::size_t kBufferBytes = std::size_t{64} << 10;

 private:
  void fill();

  const ReadAt read_at_;
  std::uint64_t offset_;
  const std::string what_;
  std::vector<unsigned char> buffer_;
  std::uint64_t consumed_ = 0;
  bool ended_ = false;
  z_stream stream_{};
};

class Deflater {
 public:
  using Sink = std::function<void(std::span<const std::byte>)>;
  // zlib's levels: 0 stores, 1 is fastest.
  Deflater(int level, Sink sink);
  ~Deflater();
  Deflater(const Deflater&) = delete;
  Deflater& operator=(const Deflater&) = delete;

  void write(std::span<const std::byte> bytes) { run(bytes, Z_NO_FLUSH); }
  void finish() { run({}, Z_FINISH); }

 private:
  void run(std::span<const std::byte> bytes, int flush);

  Sink sink_;
  std::vector<unsigned char> buffer_;
  z_stream stream_{};
};

// One-shot, for small objects.
std::string deflate(int level, std::span<const std::byte> bytes);
// nullopt: no whole zlib stream, or more than `most_bytes` come out of it.
std::optional<std::string> inflate_small(std::string_view bytes, std::size_t most_bytes);

// Inflates a stream that lies in memory, in a third of zlib's time (libdeflate): whether `bytes` begin with a whole
// zlib stream that makes exactly `out`, verified (Adler-32). False does not tell what else they are.
bool inflate_exactly(std::span<const std::uint8_t> bytes, std::span<char> out);

std::uint32_t crc32_of(std::string_view bytes);

}  // namespace escrow::storage
