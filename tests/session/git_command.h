// Runs the real git, as the judge of what we write. Throws std::runtime_error when it fails.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace escrow::support {

// A directory that goes with the object.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    const char* base = std::getenv("TMPDIR");
    path_ = std::string(base && *base ? base : "/tmp") + "/escrow-test-XXXXXX";
    if (!mkdtemp(path_.data())) throw std::runtime_error("mkdtemp failed for " + path_);
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Standard output of `git ARGUMENTS` in `directory`, with `input` on its standard input. No user configuration.
inline std::string run_git(const TemporaryDirectory& directory, const std::string& arguments,
                           const std::string& input = "", bool any_status = false) {
  const std::string in = directory.path() + "/.stdin", out = directory.path() + "/.stdout";
  std::ofstream(in, std::ios::binary) << input;
  const std::string command = "cd '" + directory.path() +
                              "' && GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 git " + arguments + " < '" + in +
                              "' > '" + out + "'";
  const int status = std::system(command.c_str());
  if (!any_status && status != 0)
    throw std::runtime_error("git " + arguments + " ended with status " + std::to_string(status));
  std::ifstream stream(out, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace escrow::support
