#include "daemon/host/run_conclusion.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>

#include "api/json_document.h"
#include "daemon/process/output_capture.h"
#include "session/base/error.h"

namespace escrow::daemon {

namespace {

std::string path_in(const std::string& directory) { return directory + "/" + kOmittedName; }

std::string promise_in(const std::string& directory) { return directory + "/host"; }

struct flock whole(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

}  // namespace

void write_conclusion(const std::string& directory, const std::vector<session::Omission>& omitted,
                      std::uint64_t most_bytes) noexcept {
  try {
    const std::string path = path_in(directory), unfinished = path + ".new";
    std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
    std::uint64_t bytes = 0, count = 0;
    for (const session::Omission& omission : omitted) {
      const std::string line =
          api::JsonObject().text("path", omission.path).text("kind", session::name_of(omission.kind)).text() + "\n";
      if (bytes += line.size(); bytes > most_bytes) break;
      file << line;
      ++count;
    }
    if (count < omitted.size()) file << api::JsonObject().number("left_out", omitted.size() - count).text() << "\n";
    if (!(file << std::flush)) return;
    if (count < omitted.size()) ::chmod(unfinished.c_str(), kTruncatedOutputMode);
    ::rename(unfinished.c_str(), path.c_str());
  } catch (const std::exception&) {
    // As for a disk that is full: it is missing.
  }
}

FileDescriptor promise_conclusion(const std::string& directory) {
  FileDescriptor file(::open(promise_in(directory).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  struct flock lock = whole(F_WRLCK);
  if (!file || ::fcntl(file.get(), F_OFD_SETLK, &lock) != 0) {
    throw session::Error(session::Errc::input_output,
                         "cannot lock " + promise_in(directory) + ": " + std::strerror(errno));
  }
  return file;
}

bool is_conclusion_promised(const std::string& directory) {
  const FileDescriptor file(::open(promise_in(directory).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file && errno == ENOENT) return false;
  struct flock lock = whole(F_WRLCK);
  if (!file || ::fcntl(file.get(), F_OFD_GETLK, &lock) != 0) {
    throw session::Error(session::Errc::unavailable,
                         "cannot look at the lock " + promise_in(directory) + ": " + std::strerror(errno));
  }
  return lock.l_type != F_UNLCK;
}

bool has_conclusion(const std::string& directory) { return ::access(path_in(directory).c_str(), F_OK) == 0; }

}  // namespace escrow::daemon
