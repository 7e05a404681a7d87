#include "daemon/import/file_source.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "session/base/error.h"
#include "session/base/repo_path.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;

FileSource::FileSource(FileDescriptor file, std::uint64_t size, std::string name,
                       const std::function<void(std::uint64_t)>& on_read)
    : file_(std::move(file)), size_(size), name_(std::move(name)), on_read_(on_read) {}

std::size_t FileSource::read(std::uint64_t offset, std::span<std::byte> out) const {
  const std::uint64_t left = offset < size_ ? size_ - offset : 0;
  const std::size_t wanted = static_cast<std::size_t>(std::min<std::uint64_t>(left, out.size()));
  std::size_t done = 0;
  while (done < wanted) {
    const ssize_t count = pread(file_.get(), out.data() + done, wanted - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      throw Error(Errc::input_output, "cannot read " + session::quote_path(name_) + ": " + std::strerror(errno));
    }
    if (count == 0) {
      throw Error(Errc::busy, session::quote_path(name_) +
                                  " became shorter while it was read; stop what writes to it and try again");
    }
    done += static_cast<std::size_t>(count);
  }
  if (on_read_) on_read_(offset + done);
  return done;
}

std::size_t StringSource::read(std::uint64_t offset, std::span<std::byte> out) const {
  if (offset >= text_.size()) return 0;
  const std::size_t count = std::min<std::size_t>(text_.size() - static_cast<std::size_t>(offset), out.size());
  std::memcpy(out.data(), text_.data() + offset, count);
  return count;
}

}  // namespace escrow::daemon
