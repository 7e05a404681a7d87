#include "storage/git_error.h"

#include <cerrno>
#include <cstring>

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
  if (system && message.find(std::strerror(ENOSPC)) != std::string::npos) {
    throw Error(Errc::no_space, doing + ": " + message);
  }
  throw Error(fallback, doing + ": " + message);
}

}  // namespace escrow::storage
