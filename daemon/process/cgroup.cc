#include "daemon/process/cgroup.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <random>
#include <set>
#include <sstream>

namespace escrow::daemon {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::string_view kCgroupPrefix = "escrow-run-";
constexpr int kCgroupAttempts = 100;
constexpr std::uint64_t kCpuPeriod_us = 100'000;  // the kernel's own default

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

// The path of a process's cgroup in the hierarchy that has `controller`; "" stands for version 2.
std::optional<std::string> cgroup_of(const std::string& process, std::string_view controller) {
  std::istringstream lines(read_text("/proc/" + process + "/cgroup"));
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
  std::string directory;   // of the process's cgroup
};

// In the first hierarchy that shows it.
std::optional<Place> place_of_cgroup(const std::string& cgroup, std::string_view controller) {
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
    if (!cgroup.starts_with(root)) continue;
    const std::string below = cgroup.substr(root.size());
    return Place{unescaped(mountpoint), unescaped(mountpoint) + (below == "/" ? "" : below)};
  }
  return std::nullopt;
}

std::optional<Place> place_of(const std::string& process, std::string_view controller) {
  const std::optional<std::string> own = cgroup_of(process, controller);
  return own ? place_of_cgroup(*own, controller) : std::nullopt;
}

std::optional<Place> own_place(std::string_view controller) { return place_of("self", controller); }

bool is_writable(const std::string& directory) { return ::access(directory.c_str(), W_OK) == 0; }

struct Parent {
  std::string directory;
  std::set<std::string> controllers;  // that its children have
};

// Of version 2, from this process's own cgroup upwards: the nearest whose children have as many of the wanted
// controllers as they can have.
std::optional<Parent> parent_with(const std::set<std::string>& wanted) {
  const std::optional<Place> place = own_place("");
  if (!place) return std::nullopt;
  Parent best{place->directory, {}};
  for (std::string at = place->directory; at.size() >= place->mountpoint.size(); at.resize(at.rfind('/'))) {
    std::istringstream words(read_text(at + "/cgroup.subtree_control"));
    std::set<std::string> controllers;
    for (std::string word; words >> word;) {
      if (wanted.contains(word)) controllers.insert(word);
    }
    if (controllers.size() > best.controllers.size() && is_writable(at)) best = {at, controllers};
  }
  if (!is_writable(best.directory)) return std::nullopt;
  return best;
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

// Kernels before 5.14 have no cgroup.kill. A process of a foreign pid namespace is 0 there, which would be all of ours.
void kill_one_by_one(const std::string& path) {
  std::istringstream pids(read_text(path + "/cgroup.procs"));
  for (pid_t pid; pids >> pid;)
    if (pid > 0) ::kill(pid, SIGKILL);
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
  write_text(path + "/pids.max", "0");  // where it can be: what cannot fork cannot outrun being killed
  while (populated(path)) {
    if (!write_text(path + "/cgroup.kill", "1")) kill_one_by_one(path);
    if (!populated(path)) return true;
    if (steady_clock::now() >= deadline) return false;
    await_change(path, milliseconds(20));
  }
  return true;
}

// Of a file of "KEY NUMBER" lines.
std::uint64_t count_in(const std::string& path, std::string_view wanted) {
  std::istringstream lines(read_text(path));
  std::string key;
  for (std::uint64_t value; lines >> key >> value;) {
    if (key == wanted) return value;
  }
  return 0;
}

// With its driver "cgroupfs", and with "systemd". Only of a whole id: others could name the cgroup of all containers.
std::optional<Place> place_of_docker(const std::string& container, std::string_view controller) {
  const bool is_id = container.size() == 64 && container.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!is_id) return std::nullopt;
  for (const std::string& cgroup : {"/docker/" + container, "/system.slice/docker-" + container + ".scope"}) {
    std::optional<Place> place = place_of_cgroup(cgroup, controller);
    if (place && ::access(place->directory.c_str(), F_OK) == 0) return place;
  }
  return std::nullopt;
}

// Of versions 2 and 1, where there is such a cgroup.
std::string counters_where(const std::function<std::optional<Place>(std::string_view)>& place_in) {
  for (const auto& [controller, name] : {std::pair("", "/memory.events"), std::pair("memory", "/memory.oom_control")}) {
    const std::optional<Place> place = place_in(controller);
    if (place && ::access((place->directory + name).c_str(), R_OK) == 0) return place->directory + name;
  }
  return {};
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
    if (!child.substr(parent.size() + 1).starts_with(kCgroupPrefix)) continue;
    const FileDescriptor lock = lock_directory(child);
    if (!lock) continue;
    end_all_in(child, milliseconds(1000));
    remove_tree(child);
  }
}

}  // namespace

// A sweep of somebody else's can take it for a leftover in the moment before it is locked: then it is made again. Once
// the list of its processes was opened under the lock it is there to stay. Only its user can lock it.
std::unique_ptr<Cgroup> Cgroup::create_below(const std::string& parent) {
  sweep(parent);
  std::random_device random;
  for (int attempt = 0; attempt < kCgroupAttempts; ++attempt) {
    const std::string path =
        parent + "/" + std::string(kCgroupPrefix) + std::to_string(::getpid()) + "-" + std::to_string(random());
    if (::mkdir(path.c_str(), 0700) != 0) return nullptr;
    FileDescriptor directory = lock_directory(path);
    if (directory) {
      FileDescriptor entrance(::openat(directory.get(), "cgroup.procs", O_WRONLY | O_CLOEXEC));
      if (entrance) return std::unique_ptr<Cgroup>(new Cgroup(path, std::move(directory), std::move(entrance)));
    }
    const bool was_swept = errno == EWOULDBLOCK || errno == ENOENT || errno == ENODEV;
    ::rmdir(path.c_str());
    if (!was_swept) return nullptr;
  }
  return nullptr;
}

bool Cgroup::limit(const std::string& file, const std::string& value) {
  if (!write_text(path_ + "/" + file, value)) return false;
  is_limited_ = true;
  return true;
}

std::vector<std::unique_ptr<Cgroup>> Cgroup::make(Limits& limits) {
  std::vector<std::unique_ptr<Cgroup>> made;
  std::set<std::string> wanted;
  if (limits.memory_bytes) wanted.insert("memory");
  if (limits.processes) wanted.insert("pids");
  if (limits.millicpus) wanted.insert("cpu");
  const auto number = [](const std::optional<std::uint64_t>& value) { return std::to_string(*value); };
  std::optional<std::uint64_t> quota_us;  // of each period
  if (limits.millicpus) quota_us = *limits.millicpus * (kCpuPeriod_us / 1000);
  const std::optional<Parent> parent = parent_with(wanted);
  if (std::unique_ptr<Cgroup> group = parent ? create_below(parent->directory) : nullptr) {
    if (parent->controllers.contains("memory") && group->limit("memory.max", number(limits.memory_bytes))) {
      write_text(group->path_ + "/memory.swap.max", "0");
      write_text(group->path_ + "/memory.oom.group", "1");
      limits.memory_bytes.reset();
    }
    if (parent->controllers.contains("pids") && group->limit("pids.max", number(limits.processes)))
      limits.processes.reset();
    if (parent->controllers.contains("cpu") &&
        group->limit("cpu.max", number(quota_us) + " " + std::to_string(kCpuPeriod_us))) {
      quota_us.reset();
    }
    made.push_back(std::move(group));
  }
  // What version 2 does not have, version 1 may.
  const auto make_old = [&](const char* controller, const char* file, std::optional<std::uint64_t>& value) {
    const std::optional<Place> place = value ? own_place(controller) : std::nullopt;
    if (!place || !is_writable(place->directory)) return;
    std::unique_ptr<Cgroup> group = create_below(place->directory);
    if (!group || !group->limit(file, number(value))) return;
    write_text(group->path_ + "/memory.memsw.limit_in_bytes", std::to_string(*value));
    value.reset();
    made.push_back(std::move(group));
  };
  make_old("memory", "memory.limit_in_bytes", limits.memory_bytes);
  make_old("pids", "pids.max", limits.processes);
  make_old("cpu", "cpu.cfs_quota_us", quota_us);
  if (!quota_us) limits.millicpus.reset();
  return made;
}

Cgroup::Cgroup(std::string path, FileDescriptor directory, FileDescriptor entrance)
    : path_(std::move(path)), directory_(std::move(directory)), entrance_(std::move(entrance)) {}

Cgroup::~Cgroup() { remove_cgroup(path_, milliseconds(1000)); }

bool Cgroup::is_populated() const { return populated(path_); }

bool Cgroup::ran_out_of_memory() const {
  return count_in(path_ + "/memory.events", "oom_kill") > 0 || count_in(path_ + "/memory.oom_control", "oom_kill") > 0;
}

std::uint64_t Cgroup::refused_processes() const { return count_in(path_ + "/pids.events", "max"); }

bool Cgroup::end_all(milliseconds patience) { return end_all_in(path_, patience); }

std::string memory_counters_of(pid_t process) {
  return counters_where([&](std::string_view controller) { return place_of(std::to_string(process), controller); });
}

std::string memory_counters_of_docker(const std::string& container) {
  return counters_where([&](std::string_view controller) { return place_of_docker(container, controller); });
}

bool end_container_of_docker(const std::string& container, milliseconds patience) {
  for (const char* controller : {"", "memory"}) {
    const std::optional<Place> place = place_of_docker(container, controller);
    if (!place || !populated(place->directory)) continue;
    if (!is_writable(place->directory) || !end_all_in(place->directory, patience)) return false;
  }
  return true;
}

void remove_cgroup(const std::string& path, milliseconds patience) {
  end_all_in(path, patience);
  remove_tree(path);
}

}  // namespace escrow::daemon
