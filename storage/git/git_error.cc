#include "storage/git/git_error.h"

#include <cerrno>
#include <cstring>

#include "storage/disk/durable_file.h"

namespace escrow::storage {

using session::Errc;
using session::Error;

std::string git_message(int code) {
  const git_error* last = git_error_last();
  if (last == nullptr || last->message == nullptr) return "libgit2 error " + std::to_string(code);
  return last->message;
}

void throw_git_error(int code, const std::string& doing, Errc fallback) {
  const git_error* last = git_error_last();
  const bool system = last != nullptr && last->klass == GIT_ERROR_OS;
  const std::string message = git_message(code);
  // libgit2 tells no errno, but ends with its text. What the machine refuses is no damage of the repository.
  for (const int error : {ENOSPC, EDQUOT, EROFS, EACCES, EPERM, EIO, EMFILE, ENFILE, ENOMEM}) {
    if (system && message.ends_with(std::strerror(error))) throw Error(errc_of(error), doing + ": " + message);
  }
  // libgit2 fails so at every error of stat(2) but a missing configuration, and does not say which (config_file.c).
  if (last != nullptr && last->klass == GIT_ERROR_CONFIG && message.starts_with("failed to stat "))
    throw Error(Errc::input_output, doing + ": " + message);
  throw Error(fallback, doing + ": " + message);
}

}  // namespace escrow::storage
