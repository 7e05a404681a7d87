#include "storage/disk/byte_sources.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "session/base/error.h"
#include "storage/disk/durable_file.h"

namespace escrow::storage {

std::size_t MemoryBytes::read(std::uint64_t offset, std::span<std::byte> out) const {
  if (offset >= bytes_.size()) return 0;
  const std::size_t count = std::min<std::size_t>(out.size(), bytes_.size() - offset);
  std::memcpy(out.data(), bytes_.data() + offset, count);
  return count;
}

std::size_t FileBytes::read(std::uint64_t offset, std::span<std::byte> out) const {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t count =
        ::pread(fd_.get(), out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error(errno, "read " + what_);
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

void for_each_piece(const session::ByteSource& source,
                    const std::function<void(std::span<const std::byte>)>& visit) {
  constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;
  std::vector<std::byte> buffer(static_cast<std::size_t>(std::min(source.size(), kPieceBytes)));
  std::uint64_t offset = 0;
  while (offset < source.size()) {
    const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), source.size() - offset));
    const std::size_t count = source.read(offset, std::span(buffer).first(wanted));
    if (count == 0) {
      throw session::Error(session::Errc::input_output,
                           "a file ended at byte " + std::to_string(offset) + " of " + std::to_string(source.size()) +
                               " while it was being read; it was changed meanwhile, or is damaged");
    }
    visit(std::span<const std::byte>(buffer).first(count));
    offset += count;
  }
}

std::string read_unchanged(const session::ByteSource& source) {
  std::string content;
  content.reserve(source.size());
  for_each_piece(source, [&content](std::span<const std::byte> bytes) {
    content.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  return content;
}

}  // namespace escrow::storage
