#include "tests/mount/scene.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <thread>

namespace escrow::support {
namespace {

// Longer than a tick of the kernel's coarse clock, which stamps inodes.
constexpr std::chrono::milliseconds kTick{15};

const char* type_name(unsigned mode) {
  switch (mode & S_IFMT) {
    case S_IFREG:
      return "file";
    case S_IFDIR:
      return "directory";
    case S_IFLNK:
      return "symlink";
    case S_IFIFO:
      return "fifo";
    case S_IFSOCK:
      return "socket";
    case S_IFCHR:
      return "character device";
    case S_IFBLK:
      return "block device";
    default:
      return "unknown";
  }
}

std::string compare_times(const char* name, const timespec& before, const timespec& after) {
  const auto rank = [](const timespec& t) { return std::pair(t.tv_sec, t.tv_nsec); };
  if (rank(before) == rank(after)) return "";
  return std::string(" ") + name + (rank(after) > rank(before) ? "+" : "-");
}

// Runs `body` in a child; returns what it wrote, and says when it did not end well.
std::string in_child(const std::function<std::string()>& body) {
  int ends[2];
  if (pipe(ends) != 0) return "pipe failed\n";
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    std::string text;
    try {
      text = body();
    } catch (const std::exception& error) {
      text = std::string("exception: ") + error.what() + "\n";
    }
    std::size_t written = 0;
    while (written < text.size()) {
      const ssize_t n = ::write(ends[1], text.data() + written, text.size() - written);
      if (n <= 0) break;
      written += static_cast<std::size_t>(n);
    }
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  ssize_t n;
  while ((n = ::read(ends[0], buffer, sizeof buffer)) > 0) text.append(buffer, static_cast<std::size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFEXITED(status)) text += "died of signal " + std::to_string(WTERMSIG(status)) + "\n";
  return text;
}

void become(unsigned uid) {
  if (uid == 0) return;
  if (setgroups(0, nullptr) != 0 || setgid(uid) != 0 || setuid(uid) != 0)
    throw std::runtime_error("cannot switch user");
}

}  // namespace

const char* errno_name(int error) { return strerrorname_np(error); }

long Scene::check(const std::string& what, long result) {
  const int error = errno;
  transcript_ += what + " -> " + (result < 0 ? errno_name(error) : "ok") + "\n";
  errno = error;
  return result;
}

long Scene::value(const std::string& what, long result) {
  const int error = errno;
  transcript_ += what + " -> " + (result < 0 ? errno_name(error) : std::to_string(result)) + "\n";
  errno = error;
  return result;
}

void Scene::note(const std::string& line) { transcript_ += line + "\n"; }

void Scene::write(const std::string& name, const std::string& content, unsigned mode) {
  const int file = open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  if (file < 0 || ::write(file, content.data(), content.size()) != static_cast<ssize_t>(content.size())) {
    check("writing " + name, -1);
  }
  if (file >= 0) close(file);
}

void Scene::make_directory(const std::string& name, unsigned mode) {
  if (mkdir(name.c_str(), mode) != 0) check("mkdir " + name, -1);
}

void Scene::make_symlink(const std::string& target, const std::string& name) {
  if (symlink(target.c_str(), name.c_str()) != 0) check("symlink " + name, -1);
}

void Scene::stat(const std::string& name) {
  struct stat values {};
  if (lstat(name.c_str(), &values) != 0) {
    check("lstat " + name, -1);
    return;
  }
  char line[256];
  std::snprintf(line, sizeof line, ": %s %04o uid=%u gid=%u", type_name(values.st_mode), values.st_mode & 07777,
                values.st_uid, values.st_gid);
  std::string text = name + line;
  if (!S_ISDIR(values.st_mode)) {
    text += " links=" + std::to_string(values.st_nlink) + " size=" + std::to_string(values.st_size);
  }
  if (S_ISCHR(values.st_mode) || S_ISBLK(values.st_mode)) text += " rdev=" + std::to_string(values.st_rdev);
  if (S_ISLNK(values.st_mode)) {
    char target[4096];
    const ssize_t size = readlink(name.c_str(), target, sizeof target);
    text += " -> " + (size < 0 ? std::string(errno_name(errno)) : std::string(target, static_cast<std::size_t>(size)));
  }
  note(text);
}

void Scene::content(const std::string& name) {
  const int file = open(name.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    check("open " + name, -1);
    return;
  }
  std::string bytes(65536, '\0');
  const ssize_t size = ::read(file, bytes.data(), bytes.size());
  if (size < 0) {
    check("read " + name, -1);
  } else {
    bytes.resize(static_cast<std::size_t>(size));
    std::string shown;
    for (const char c : bytes) shown += c == '\0' ? '.' : c;
    note(name + " = \"" + shown + "\"");
  }
  close(file);
}

void Scene::list(const std::string& directory) {
  DIR* const listing = opendir(directory.c_str());
  if (listing == nullptr) {
    check("opendir " + directory, -1);
    return;
  }
  std::vector<std::string> names;
  while (const dirent* entry = readdir(listing)) {
    names.push_back(entry->d_name + std::string(":") + std::to_string(entry->d_type));
  }
  closedir(listing);
  std::sort(names.begin(), names.end());
  std::string text = directory + " has";
  for (const std::string& name : names) text += " " + name;
  note(text);
}

void Scene::times(const std::string& what, const std::string& name, const std::function<void()>& action) {
  struct stat before {
  }, after{};
  lstat(name.c_str(), &before);
  std::this_thread::sleep_for(kTick);
  action();
  if (lstat(name.c_str(), &after) != 0) {
    check("lstat " + name, -1);
    return;
  }
  note(what + " changes of " + name + ":" + compare_times("mtime", before.st_mtim, after.st_mtim) +
       compare_times("ctime", before.st_ctim, after.st_ctim) + compare_times("atime", before.st_atim, after.st_atim));
}

void Scene::as(unsigned uid, const std::function<void()>& action) {
  transcript_ += in_child([&] {
    transcript_.clear();
    become(uid);
    action();
    return transcript_;
  });
}

std::string perform(const Scenario& scenario, const std::string& directory, unsigned uid) {
  return in_child([&] {
    Scene scene;
    if (chdir(directory.c_str()) != 0) throw std::runtime_error("chdir to " + directory);
    umask(022);
    become(uid);
    scenario(scene);
    return scene.transcript();
  });
}

long try_open(const std::string& name, int flags, unsigned mode) {
  const int file = open(name.c_str(), flags | O_CLOEXEC, mode);
  if (file < 0) return -1;
  close(file);
  return 0;
}

}  // namespace escrow::support
