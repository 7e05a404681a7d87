#include "daemon/process/git_variables.h"

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace escrow::daemon {
namespace {

// Up to GIT_WORK_TREE those of `git rev-parse --local-env-vars`, of versions before 2.40, too.
constexpr const char* kGitVariables[] = {
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_CONFIG",
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_PARAMETERS",
    "GIT_DIR",
    "GIT_GRAFT_FILE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_INTERNAL_SUPER_PREFIX",
    "GIT_NO_REPLACE_OBJECTS",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
    "GIT_NAMESPACE",        // of git-http-backend and upload-pack
    "GIT_QUARANTINE_PATH",  // of pre-receive: below the repository
};

// Numbered; GIT_CONFIG_COUNT says how many count.
constexpr std::string_view kGitVariablePrefixes[] = {"GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_"};

}  // namespace

void leave_git_variables() noexcept {
  for (const char* name : kGitVariables) ::unsetenv(name);
  std::vector<std::string> numbered;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    for (const std::string_view prefix : kGitVariablePrefixes)
      if (text.starts_with(prefix)) numbered.emplace_back(text.substr(0, text.find('=')));
  }
  for (const std::string& name : numbered) ::unsetenv(name.c_str());
}

}  // namespace escrow::daemon
