#include "storage/git/git_identity.h"

#include <cstdlib>
#include <string_view>

#include "storage/git/git_error.h"
#include "storage/git/git_handle.h"
#include "storage/git/git_repository_pool.h"

namespace escrow::storage {
namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// Without an error: what cannot be read says nothing.
std::string value_in(git_config* config, const char* key) {
  git_buf buffer = GIT_BUF_INIT;
  std::string value;
  if (git_config_get_string_buf(&buffer, config, key) == 0) value.assign(buffer.ptr, buffer.size);
  git_buf_dispose(&buffer);
  return value;
}

// The files of one level after the other: libgit2 knows neither GIT_CONFIG_GLOBAL nor GIT_CONFIG_NOSYSTEM.
class Levels {
 public:
  explicit Levels(git_config* whole) : whole_(whole), user_file_(variable("GIT_CONFIG_GLOBAL")) {}

  std::string value(const char* key) const {
    std::string found = at(GIT_CONFIG_LEVEL_LOCAL, key);
    if (!user_file_.empty()) {
      if (found.empty()) found = in_user_file(key);
    } else {
      if (found.empty()) found = at(GIT_CONFIG_LEVEL_GLOBAL, key);
      if (found.empty()) found = at(GIT_CONFIG_LEVEL_XDG, key);
    }
    if (found.empty() && variable("GIT_CONFIG_NOSYSTEM").empty()) found = at(GIT_CONFIG_LEVEL_SYSTEM, key);
    return found;
  }

 private:
  std::string at(git_config_level_t level, const char* key) const {
    git_config* raw = nullptr;
    const int code = git_config_open_level(&raw, whole_, level);
    const GitConfig config(raw);
    return code == 0 ? value_in(raw, key) : std::string();
  }
  std::string in_user_file(const char* key) const {
    git_config* raw = nullptr;
    const int code = git_config_open_ondisk(&raw, user_file_.c_str());
    const GitConfig config(raw);
    return code == 0 ? value_in(raw, key) : std::string();
  }

  git_config* const whole_;
  const std::string user_file_;
};

}  // namespace

std::optional<GitIdentity> author_identity(const std::string& git_directory) {
  GitIdentity identity{.name = variable("GIT_AUTHOR_NAME"), .email = variable("GIT_AUTHOR_EMAIL")};
  if (identity.name.empty() || identity.email.empty()) {
    start_libgit2();
    git_repository* raw_repository = nullptr;
    // One in object storage has no configuration of its own: the user's counts.
    const int opened = git_repository_open(&raw_repository, git_directory.c_str());
    const GitRepository repository(raw_repository);
    git_config* raw_config = nullptr;
    if ((opened == 0 ? git_repository_config(&raw_config, raw_repository) : git_config_open_default(&raw_config)) != 0)
      return std::nullopt;
    const GitConfig config(raw_config);
    const Levels levels(raw_config);
    const auto complete = [&](std::string& part, const char* of_author, const char* of_user) {
      if (part.empty()) part = levels.value(of_author);
      if (part.empty()) part = levels.value(of_user);
    };
    complete(identity.name, "author.name", "user.name");
    complete(identity.email, "author.email", "user.email");
  }
  if (identity.name.empty() || identity.email.empty()) return std::nullopt;
  return identity;
}

}  // namespace escrow::storage
