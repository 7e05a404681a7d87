#include "storage/objects/zlib_stream.h"

#include <libdeflate.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <memory>
#include <new>

#include "storage/disk/durable_file.h"

namespace escrow::storage {

using session::Errc;
using session::Error;

InflateReader::InflateReader(int fd, std::uint64_t offset, std::string what, std::size_t buffer_bytes)
    : InflateReader(
          [fd, what](std::uint64_t at, std::span<std::byte> out) {
            ssize_t count = 0;
            do count = ::pread(fd, out.data(), out.size(), static_cast<off_t>(at));
            while (count < 0 && errno == EINTR);
            if (count < 0) throw system_error(errno, "read " + what);
            return static_cast<std::size_t>(count);
          },
          offset, what, buffer_bytes) {}

InflateReader::InflateReader(ReadAt read_at, std::uint64_t offset, std::string what, std::size_t buffer_bytes)
    : read_at_(std::move(read_at)), offset_(offset), what_(std::move(what)),
      buffer_(std::max<std::size_t>(buffer_bytes, 64)) {
  if (inflateInit(&stream_) != Z_OK) throw std::bad_alloc();
}

InflateReader::~InflateReader() { inflateEnd(&stream_); }

void InflateReader::fill() {
  const std::size_t count = read_at_(offset_, std::as_writable_bytes(std::span(buffer_)));
  if (count == 0) throw Error(Errc::input_output, what_ + " is damaged: its file ends too early");
  offset_ += count;
  stream_.next_in = buffer_.data();
  stream_.avail_in = static_cast<uInt>(count);
}

std::size_t InflateReader::read(std::span<std::byte> out) {
  std::size_t done = 0;
  while (done < out.size() && !ended_) {
    if (stream_.avail_in == 0) {
      fill();
      continue;
    }
    const std::size_t wanted = std::min<std::size_t>(out.size() - done, std::numeric_limits<uInt>::max());
    stream_.next_out = reinterpret_cast<Bytef*>(out.data() + done);
    stream_.avail_out = static_cast<uInt>(wanted);
    const uInt before = stream_.avail_in;
    const int code = inflate(&stream_, Z_NO_FLUSH);
    consumed_ += before - stream_.avail_in;
    done += wanted - stream_.avail_out;
    if (code == Z_STREAM_END) {
      ended_ = true;
    } else if (code != Z_OK && code != Z_BUF_ERROR) {
      throw Error(Errc::input_output, what_ + " is damaged: its compressed bytes are not valid");
    }
  }
  return done;
}

Deflater::Deflater(int level, Sink sink) : sink_(std::move(sink)), buffer_(std::size_t{64} << 10) {
  if (deflateInit(&stream_, level) != Z_OK) throw std::bad_alloc();
}

Deflater::~Deflater() { deflateEnd(&stream_); }

void Deflater::run(std::span<const std::byte> bytes, int flush) {
  // zlib's interface predates const.
  stream_.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(bytes.data()));
  stream_.avail_in = static_cast<uInt>(bytes.size());
  int code = Z_OK;
  do {
    stream_.next_out = buffer_.data();
    stream_.avail_out = static_cast<uInt>(buffer_.size());
    code = ::deflate(&stream_, flush);
    const std::size_t produced = buffer_.size() - stream_.avail_out;
    if (produced > 0) sink_(std::as_bytes(std::span(buffer_.data(), produced)));
  } while (stream_.avail_out == 0 || (flush == Z_FINISH && code != Z_STREAM_END));
}

std::string deflate(int level, std::span<const std::byte> bytes) {
  std::string out(compressBound(bytes.size()), '\0');
  uLongf length = out.size();
  if (compress2(reinterpret_cast<Bytef*>(out.data()), &length, reinterpret_cast<const Bytef*>(bytes.data()),
                bytes.size(), level) != Z_OK) {
    throw std::bad_alloc();
  }
  out.resize(length);
  return out;
}

std::optional<std::string> inflate_small(std::string_view bytes, std::size_t most_bytes) {
  std::string out(most_bytes, '\0');
  uLongf length = out.size();
  if (uncompress(reinterpret_cast<Bytef*>(out.data()), &length, reinterpret_cast<const Bytef*>(bytes.data()),
                 bytes.size()) != Z_OK) {
    return std::nullopt;
  }
  out.resize(length);
  return out;
}

bool inflate_exactly(std::span<const std::uint8_t> bytes, std::span<char> out) {
  struct Free {
    void operator()(libdeflate_decompressor* made) const noexcept { libdeflate_free_decompressor(made); }
  };
  thread_local const std::unique_ptr<libdeflate_decompressor, Free> decompressor(libdeflate_alloc_decompressor());
  if (!decompressor) throw std::bad_alloc();
  std::size_t taken = 0, made = 0;
  return libdeflate_zlib_decompress_ex(decompressor.get(), bytes.data(), bytes.size(), out.data(), out.size(), &taken,
                                       &made) == LIBDEFLATE_SUCCESS && made == out.size();
}

std::uint32_t crc32_of(std::string_view bytes) {
  return static_cast<std::uint32_t>(::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace escrow::storage
