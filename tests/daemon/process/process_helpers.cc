#include "tests/daemon/process/process_helpers.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <stdexcept>

namespace escrow::tests {

bool eventually(const std::function<bool()>& condition, std::chrono::seconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    ::usleep(5000);
  }
  return true;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

namespace {

// The letter of proc_pid_stat(5); 'X' where there is no such process.
char state_of(pid_t pid) {
  const std::string stat = read_file("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && stat.size() > name_end + 2 ? stat[name_end + 2] : 'X';
}

}  // namespace

bool is_alive(pid_t pid) {
  const char state = state_of(pid);
  return state != 'Z' && state != 'X';
}

bool is_stopped(pid_t pid) { return state_of(pid) == 'T'; }

pid_t pid_from(const std::string& path) {
  if (!eventually([&] { return read_file(path).ends_with('\n'); })) throw std::runtime_error("nobody wrote " + path);
  return static_cast<pid_t>(std::stol(read_file(path)));
}

daemon::CommandSpec shell(const std::string& script, const std::string& directory) {
  daemon::CommandSpec spec;
  spec.arguments = {"sh", "-c", script};
  for (char** entry = environ; *entry; ++entry) spec.environment.push_back(*entry);
  spec.working_directory = directory;
  spec.grace = std::chrono::milliseconds(500);
  return spec;
}

}  // namespace escrow::tests
