#include "daemon/service/repository_watch.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "session/base/error.h"

namespace escrow::daemon {

namespace fs = std::filesystem;
using session::Errc;
using session::Error;

namespace {

constexpr std::size_t kMaxDepth = 64;

}  // namespace

RepositoryWatch::RepositoryWatch() : inotify_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
  if (!inotify_) {
    throw Error(Errc::unavailable, std::string("cannot watch the repositories: ") + std::strerror(errno) +
                                       "; see fs.inotify.max_user_instances in inotify(7)");
  }
}

void RepositoryWatch::watch(const std::string& path, const Watched& what, unsigned mask) {
  const int descriptor = ::inotify_add_watch(inotify_.get(), path.c_str(), mask | IN_ONLYDIR | IN_DONT_FOLLOW);
  if (descriptor >= 0) {
    watched_[descriptor] = what;
  } else if (errno != ENOENT && errno != ENOTDIR) {
    throw Error(Errc::unavailable, "cannot watch " + path + ": " + std::strerror(errno) +
                                       "; see fs.inotify.max_user_watches in inotify(7)");
  }
}

void RepositoryWatch::watch_branches(const std::string& name, const std::string& git_directory,
                                     const std::string& below) {
  const std::string path = git_directory + "/refs/heads/" + below;
  // The directory first: what is made in it from here on is told.
  watch(path, {name, git_directory, Kind::branches, below}, IN_MOVED_TO | IN_CREATE | IN_DELETE);
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    const bool is_plain = entry.is_directory(error) && !entry.is_symlink(error);
    const std::string deeper = below + entry.path().filename().string() + "/";
    if (is_plain && static_cast<std::size_t>(std::count(deeper.begin(), deeper.end(), '/')) <= kMaxDepth) {
      watch_branches(name, git_directory, deeper);
    }
  }
}

void RepositoryWatch::add(const std::string& name, const std::string& git_directory) {
  watch(git_directory, {name, git_directory, Kind::git_directory, ""}, IN_MOVED_TO);
  watch(git_directory + "/escrow", {name, git_directory, Kind::state, ""}, IN_MODIFY);
  watch_branches(name, git_directory, "");
}

void RepositoryWatch::remove(const std::string& name) {
  std::erase_if(watched_, [&](const auto& one) {
    if (one.second.name != name) return false;
    ::inotify_rm_watch(inotify_.get(), one.first);
    return true;
  });
}

void RepositoryWatch::note(const Watched& where, unsigned mask, const std::string& file, Changed& changed) {
  switch (where.kind) {
    case Kind::git_directory:
      changed.all_branches = changed.all_branches || file == "packed-refs";
      return;
    case Kind::state:
      changed.catalog = changed.catalog || file.starts_with("catalog.db");
      return;
    case Kind::branches:
      break;
  }
  if ((mask & IN_ISDIR) != 0) {
    // Branches may have been made in it before it was watched.
    changed.all_branches = true;
    if ((mask & IN_DELETE) == 0) watch_branches(where.name, where.git_directory, where.below);
  } else if ((mask & IN_CREATE) == 0 && !file.ends_with(".lock")) {
    changed.branches.insert(where.below + file);
  }
}

std::map<std::string, RepositoryWatch::Changed> RepositoryWatch::take() {
  std::map<std::string, Changed> changed;
  alignas(inotify_event) std::array<char, 65536> buffer;
  while (true) {
    const ssize_t size = ::read(inotify_.get(), buffer.data(), buffer.size());
    if (size <= 0) return changed;
    for (ssize_t at = 0; at < size;) {
      inotify_event event;
      std::memcpy(&event, buffer.data() + at, sizeof event);
      const std::string file = event.len == 0 ? "" : buffer.data() + at + sizeof event;
      at += static_cast<ssize_t>(sizeof event + event.len);
      if ((event.mask & IN_Q_OVERFLOW) != 0) {
        for (const auto& [descriptor, where] : watched_) {
          changed[where.name].all_branches = changed[where.name].catalog = true;
        }
        continue;
      }
      const auto where = watched_.find(event.wd);
      if (where == watched_.end()) continue;
      const Watched copy = where->second;
      if ((event.mask & IN_IGNORED) != 0) {
        watched_.erase(where);
        continue;
      }
      note(copy, event.mask, file, changed[copy.name]);
    }
  }
}

}  // namespace escrow::daemon
