#include "daemon/cgroup.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>
#include <vector>

namespace escrow::daemon {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::string_view kPrefix = "escrow-run-";

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The octal escapes of mountinfo (proc(5)): blanks, backslashes and newlines in paths.
std::string unescaped(const std::string& text) {
  std::string result;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\\' && at + 3 < text.size()) {
      result += static_cast<char>(std::strtol(text.substr(at + 1, 3).c_str(), nullptr, 8));
      at += 3;
    } else {
      result += text[at];
    }
  }
  return result;
}

bool has_word(const std::string& list, char separator, std::string_view word) {
  std::istringstream words(list);
  for (std::string each; std::getline(words, each, separator);) {
    if (each == word) return true;
  }
  return false;
}

// The path of this process's cgroup in the hierarchy that has `controller`; "" stands for version 2.
std::optional<std::string> own_cgroup(std::string_view controller) {
  std::istringstream lines(read_text("/proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool fits = controller.empty() ? line.starts_with("0::") : has_word(controllers, ',', controller);
    if (fits) return line.substr(second + 1);
  }
  return std::nullopt;
}

struct Place {
  std::string mountpoint;  // of the hierarchy
  std::string directory;   // of this process's own cgroup
};

// In the first hierarchy that shows it.
std::optional<Place> own_place(std::string_view controller) {
  const std::optional<std::string> own = own_cgroup(controller);
  if (!own) return std::nullopt;
  std::istringstream lines(read_text("/proc/self/mountinfo"));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t dash = line.find(" - cgroup");
    if (dash == std::string::npos) continue;
    std::istringstream about(line.substr(dash + 3));
    std::string type, source, options;
    about >> type >> source >> options;
    if (controller.empty() ? type != "cgroup2" : type != "cgroup" || !has_word(options, ',', controller)) continue;
    std::istringstream fields(line);
    std::string id, parent, device, root, mountpoint;
    fields >> id >> parent >> device >> root >> mountpoint;
    root = unescaped(root);
    if (root == "/") root.clear();
    if (!own->starts_with(root)) continue;
    const std::string below = own->substr(root.size());
    return Place{unescaped(mountpoint), unescaped(mountpoint) + (below == "/" ? "" : below)};
  }
  return std::nullopt;
}

bool is_writable(const std::string& directory) { return ::access(directory.c_str(), W_OK) == 0; }

// The nearest cgroup of version 2, from this process's own upwards, whose children have the controller.
std::optional<std::string> parent_with_memory() {
  const std::optional<Place> place = own_place("");
  if (!place) return std::nullopt;
  for (std::string at = place->directory; at.size() >= place->mountpoint.size(); at.resize(at.rfind('/'))) {
    std::string controllers = read_text(at + "/cgroup.subtree_control");
    while (controllers.ends_with('\n')) controllers.pop_back();
    if (has_word(controllers, ' ', "memory") && is_writable(at)) return at;
  }
  return std::nullopt;
}

bool write_text(const std::string& path, std::string_view text) {
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

// Of version 1 there is nothing but the list of processes.
bool populated(const std::string& path) {
  const std::string events = read_text(path + "/cgroup.events");
  return events.empty() ? !read_text(path + "/cgroup.procs").empty() : events.find("populated 1") != std::string::npos;
}

std::vector<std::string> children(const std::string& path) {
  std::vector<std::string> names;
  DIR* directory = ::opendir(path.c_str());
  if (!directory) return names;
  while (const dirent* entry = ::readdir(directory)) {
    const std::string name = entry->d_name;
    if (entry->d_type == DT_DIR && name != "." && name != "..") names.push_back(path + "/" + name);
  }
  ::closedir(directory);
  return names;
}

// Kernels before 5.14 have no cgroup.kill.
void kill_one_by_one(const std::string& path) {
  std::istringstream pids(read_text(path + "/cgroup.procs"));
  for (pid_t pid; pids >> pid;) ::kill(pid, SIGKILL);
  for (const std::string& child : children(path)) kill_one_by_one(child);
}

// Waits until cgroup.events changes, or for `wait`.
void await_change(const std::string& path, milliseconds wait) {
  const FileDescriptor events(::open((path + "/cgroup.events").c_str(), O_RDONLY | O_CLOEXEC));
  char text[256];
  if (events && ::read(events.get(), text, sizeof text) < 0) return;
  pollfd descriptor{events.get(), POLLPRI, 0};
  ::poll(&descriptor, 1, static_cast<int>(wait.count()));
}

bool end_all_in(const std::string& path, milliseconds patience) {
  const auto deadline = steady_clock::now() + patience;
  while (populated(path)) {
    if (!write_text(path + "/cgroup.kill", "1")) kill_one_by_one(path);
    if (!populated(path)) return true;
    if (steady_clock::now() >= deadline) return false;
    await_change(path, milliseconds(20));
  }
  return true;
}

// A command may have made cgroups of its own inside.
void remove_tree(const std::string& path) {
  for (const std::string& child : children(path)) remove_tree(child);
  ::rmdir(path.c_str());
}

FileDescriptor lock_directory(const std::string& path) {
  FileDescriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory && ::flock(directory.get(), LOCK_EX | LOCK_NB) != 0) directory.reset();
  return directory;
}

void sweep(const std::string& parent) {
  for (const std::string& child : children(parent)) {
    if (!child.substr(parent.size() + 1).starts_with(kPrefix)) continue;
    const FileDescriptor lock = lock_directory(child);
    if (!lock) continue;
    end_all_in(child, milliseconds(1000));
    remove_tree(child);
  }
}

}  // namespace

std::unique_ptr<Cgroup> Cgroup::create_below(const std::string& parent) {
  sweep(parent);
  std::random_device random;
  const std::string path =
      parent + "/" + std::string(kPrefix) + std::to_string(::getpid()) + "-" + std::to_string(random());
  if (::mkdir(path.c_str(), 0755) != 0) return nullptr;
  FileDescriptor directory = lock_directory(path);
  FileDescriptor entrance(::open((path + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
  if (!directory || !entrance) {
    ::rmdir(path.c_str());
    return nullptr;
  }
  return std::unique_ptr<Cgroup>(new Cgroup(path, std::move(directory), std::move(entrance)));
}

std::unique_ptr<Cgroup> Cgroup::try_create() {
  const std::optional<Place> place = own_place("");
  if (!place || !is_writable(place->directory)) return nullptr;
  return create_below(place->directory);
}

std::unique_ptr<Cgroup> Cgroup::try_create_limited(std::uint64_t memory_bytes, std::string& why) {
  const std::string limit = std::to_string(memory_bytes);
  if (const std::optional<std::string> parent = parent_with_memory()) {
    std::unique_ptr<Cgroup> made = create_below(*parent);
    if (made && write_text(made->path_ + "/memory.max", limit)) {
      write_text(made->path_ + "/memory.swap.max", "0");
      write_text(made->path_ + "/memory.oom.group", "1");
      return made;
    }
  } else if (const std::optional<Place> place = own_place("memory"); place && is_writable(place->directory)) {
    std::unique_ptr<Cgroup> made = create_below(place->directory);
    if (made && write_text(made->path_ + "/memory.limit_in_bytes", limit)) {
      write_text(made->path_ + "/memory.memsw.limit_in_bytes", limit);
      return made;
    }
  }
  why = "its memory cannot be limited: that takes a cgroup with the controller memory, of version 2 (on for the "
        "children of this process's cgroup, or of one above it) or of version 1, in which this user may make cgroups";
  return nullptr;
}

Cgroup::Cgroup(std::string path, FileDescriptor directory, FileDescriptor entrance)
    : path_(std::move(path)), directory_(std::move(directory)), entrance_(std::move(entrance)) {}

Cgroup::~Cgroup() { remove_cgroup(path_, milliseconds(1000)); }

bool Cgroup::is_populated() const { return populated(path_); }

bool Cgroup::ran_out_of_memory() const {
  for (const char* name : {"/memory.events", "/memory.oom_control"}) {
    std::istringstream lines(read_text(path_ + name));
    std::string key;
    for (std::uint64_t value; lines >> key >> value;) {
      if (key == "oom_kill") return value > 0;
    }
  }
  return false;
}

bool Cgroup::end_all(milliseconds patience) { return end_all_in(path_, patience); }

void remove_cgroup(const std::string& path, milliseconds patience) {
  end_all_in(path, patience);
  remove_tree(path);
}

}  // namespace escrow::daemon
