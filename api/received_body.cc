#include "api/received_body.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "session/base/error.h"

namespace escrow::api {

std::shared_ptr<ReceivedBody> ReceivedBody::create(const std::string& directory, int& failed,
                                                   std::unique_ptr<ContentRoom::Share> share) {
  std::string path = directory + "/.content-XXXXXX";
  const int descriptor = ::mkostemp(path.data(), O_CLOEXEC);
  if (descriptor < 0) {
    failed = errno;
    return nullptr;
  }
  ::unlink(path.c_str());
  const std::shared_ptr<ReceivedBody> body(new ReceivedBody(descriptor));
  body->share_ = std::move(share);
  return body;
}

std::shared_ptr<ReceivedBody> ReceivedBody::of_descriptor(int descriptor) {
  const std::shared_ptr<ReceivedBody> body(new ReceivedBody(descriptor));
  struct stat about {};
  if (::fstat(descriptor, &about) == 0) body->size_bytes_ = static_cast<std::uint64_t>(about.st_size);
  return body;
}

ReceivedBody::~ReceivedBody() { ::close(descriptor_); }

int ReceivedBody::append(std::string_view bytes) {
  if (const int failed = share_ ? share_->take(bytes.size()) : 0; failed != 0) return failed;
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(size_bytes_));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    size_bytes_ += static_cast<std::uint64_t>(count);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return 0;
}

std::size_t ReceivedBody::read(std::uint64_t offset, std::span<std::byte> out) const {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t count =
        ::pread(descriptor_, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      throw session::Error(session::Errc::input_output,
                           std::string("cannot read the content that was received: ") + std::strerror(errno));
    }
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

}  // namespace escrow::api
