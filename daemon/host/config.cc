#include "daemon/host/config.h"

#include <pwd.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "session/base/error.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;

std::string absolute_path(const std::string& path) {
  std::error_code failed;
  const std::filesystem::path here = std::filesystem::current_path(failed);
  if (failed && !path.starts_with('/')) {
    throw Error(Errc::bad_request,
                "cannot resolve '" + path + "': the current directory is gone; give an absolute path");
  }
  std::string text = (here / path).lexically_normal().string();
  while (text.size() > 1 && text.ends_with('/')) text.pop_back();
  return text;
}

std::string principal_of(unsigned uid) {
  std::vector<char> buffer(16384);
  passwd entry{};
  passwd* found = nullptr;
  getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found);
  return "user:" + (found != nullptr ? std::string(found->pw_name) : std::to_string(uid));
}

std::string current_principal() { return principal_of(getuid()); }

}  // namespace escrow::daemon
