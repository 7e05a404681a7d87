#include <cstdlib>
#include <filesystem>

#include "daemon/host/config.h"
#include "daemon/host/session_here.h"
#include "session/base/error.h"
#include "storage/bucket/bucket_name.h"
#include "storage/repository/repository.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;

namespace {

std::string absolute_place(const std::string& place) {
  return storage::names_bucket(place) ? storage::parse_bucket_name(place).text() : absolute_path(place);
}

std::string repository_around(const SessionHere& here) {
  if (std::optional<std::string> found = repository_of(here)) return *std::move(found);
  throw Error(Errc::no_repository, "the current directory is in the mount of session " + here.id +
                                       ", and the process that serves it does not show its repository to this user; "
                                       "give --repo DIR or --host URL");
}

}  // namespace

std::string place_of_the_user(const GlobalOptions& options) {
  if (!options.repository.empty()) return absolute_place(options.repository);
  if (const char* named = std::getenv("ESCROW_REPO"); named != nullptr && *named != '\0') return absolute_place(named);
  std::error_code failed;
  return std::filesystem::current_path(failed).string();  // "" where it is gone: many commands need none
}

std::string repository_path(const GlobalOptions& options) {
  if (!options.repository.empty()) return absolute_place(options.repository);
  if (const char* named = std::getenv("ESCROW_REPO"); named != nullptr && *named != '\0') return absolute_place(named);
  if (const std::optional<SessionHere> session = session_here()) return repository_around(*session);
  const std::string here = absolute_path(".");
  if (std::optional<std::string> found = storage::Repository::discover(here)) return *std::move(found);
  throw Error(Errc::no_repository,
              "no repository: " + here + " is not inside a git repository; give --repo DIR or set ESCROW_REPO");
}

}  // namespace escrow::daemon
