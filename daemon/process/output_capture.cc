#include "daemon/process/output_capture.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace escrow::daemon {
namespace {

constexpr std::size_t kPieceBytes = 64 * 1024;  // of a pipe, at once
constexpr int kPiecesAtOnce = 16;               // before the supervisor looks at something else

}  // namespace

OutputCapture::OutputCapture(const CommandSpec::Output& output) : most_bytes_(output.most_bytes) {
  if (output.directory.empty()) return;
  for (std::size_t at = 0; at < streams_.size(); ++at) open(streams_[at], output.directory + "/" + kOutputNames[at]);
}

void OutputCapture::open(Stream& stream, const std::string& path) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    failure_ = std::string("no pipe could be made for the command's output: ") + std::strerror(errno);
    return;
  }
  stream.reader.reset(ends[0]);
  stream.writer.reset(ends[1]);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  stream.file.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, kOutputMode));
  if (!stream.file) failure_ = "the command's output could not be kept in " + path + ": " + std::strerror(errno);
}

int OutputCapture::enter() const noexcept {
  for (std::size_t at = 0; at < streams_.size(); ++at) {
    if (streams_[at].writer && ::dup2(streams_[at].writer.get(), static_cast<int>(at) + 1) < 0) return errno;
  }
  return 0;
}

void OutputCapture::command_started() {
  for (Stream& stream : streams_) stream.writer.reset();
}

void OutputCapture::watch(std::vector<pollfd>& descriptors) const {
  for (const Stream& stream : streams_) {
    if (stream.reader) descriptors.push_back({stream.reader.get(), POLLIN, 0});
  }
}

void OutputCapture::keep(Stream& stream, const char* bytes, std::size_t length) const {
  std::size_t fits = static_cast<std::size_t>(std::min<std::uint64_t>(length, most_bytes_ - stream.kept_bytes));
  bool dropped = fits < length;
  while (fits > 0) {
    const ssize_t written = ::write(stream.file.get(), bytes, fits);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      dropped = true;
      break;
    }
    bytes += written;
    fits -= static_cast<std::size_t>(written);
    stream.kept_bytes += static_cast<std::uint64_t>(written);
  }
  if (!dropped) return;
  stream.kept_bytes = most_bytes_;  // nothing is kept after a gap
  ::fchmod(stream.file.get(), kTruncatedOutputMode);
}

void OutputCapture::take() {
  std::array<char, kPieceBytes> piece;
  for (Stream& stream : streams_) {
    for (int turn = 0; stream.reader && turn < kPiecesAtOnce; ++turn) {
      const ssize_t length = ::read(stream.reader.get(), piece.data(), piece.size());
      if (length < 0 && errno == EINTR) continue;
      if (length < 0 && errno == EAGAIN) break;
      if (length <= 0) {
        stream.reader.reset();  // nobody can write any more
      } else {
        keep(stream, piece.data(), static_cast<std::size_t>(length));
      }
    }
  }
}

void OutputCapture::finish() {
  command_started();
  // A pipe holds less than what one turn takes. What survived every attempt to end it is not waited for.
  take();
  for (Stream& stream : streams_) {
    stream.reader.reset();
    if (stream.file) ::fdatasync(stream.file.get());
    stream.file.reset();
  }
}

}  // namespace escrow::daemon
