#include "daemon/host/config.h"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "session/base/error.h"
#include "storage/bucket/bucket_name.h"
#include "storage/repository/repository.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;

std::string absolute_path(const std::string& path) {
  if (storage::names_bucket(path)) return storage::parse_bucket_name(path).text();
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

std::string place_of_the_user(const GlobalOptions& options) {
  if (!options.repository.empty()) return absolute_path(options.repository);
  if (const char* named = std::getenv("ESCROW_REPO"); named != nullptr && *named != '\0') return absolute_path(named);
  std::error_code failed;
  return std::filesystem::current_path(failed).string();  // "" where it is gone: many commands need none
}

std::string repository_path(const GlobalOptions& options) {
  if (!options.repository.empty()) return absolute_path(options.repository);
  if (const char* named = std::getenv("ESCROW_REPO"); named != nullptr && *named != '\0') return absolute_path(named);
  const std::string here = absolute_path(".");
  if (std::optional<std::string> found = storage::Repository::discover(here)) return *std::move(found);
  throw Error(Errc::no_repository,
              "no repository: " + here + " is not inside a git repository; give --repo DIR or set ESCROW_REPO");
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
