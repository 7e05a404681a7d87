#include "daemon/import/allowed_roots.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "api/problem.h"
#include "fuse/place.h"
#include "session/base/error.h"
#include "session/base/repo_path.h"
#include "storage/disk/durable_file.h"

namespace escrow::daemon {

using api::Problem;
using api::ProblemCode;
using session::Errc;
using session::Error;

namespace {

// None for what is not in the one form of a path below a root: no "", "." or "..", no NUL.
std::vector<std::string> components_of(std::string_view text) {
  std::vector<std::string> components;
  while (!text.empty()) {
    const std::size_t slash = std::min(text.find('/'), text.size());
    const std::string_view component = text.substr(0, slash);
    if (component.empty() || component == "." || component == ".." || component.find('\0') != std::string_view::npos) {
      return {};
    }
    components.emplace_back(component);
    if (slash + 1 == text.size()) return {};
    text.remove_prefix(std::min(slash + 1, text.size()));
  }
  return components;
}

bool only_we_may_write(int directory) {
  struct stat about {};
  if (::fstat(directory, &about) != 0) throw storage::system_error(errno, "look at a directory");
  return (about.st_uid == 0 || about.st_uid == ::geteuid()) && (about.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

[[noreturn]] void refuse(const std::string& path, const std::string& field, ProblemCode code, const std::string& why) {
  throw Problem(code, "\"" + field + "\": " + session::quote_path(path) + " " + why, {{"field", field}});
}

[[noreturn]] void refuse(const std::string& path, const std::string& field, int error) {
  // With a key, a refusal would be the answer for ever.
  if (fuse::is_the_machines(error)) throw storage::system_error(error, "use " + session::quote_path(path));
  const auto because = [&](ProblemCode code, const std::string& why) { refuse(path, field, code, why); };
  if (error == ELOOP) because(ProblemCode::forbidden, "has a symbolic link on the way");
  if (error == EXDEV) because(ProblemCode::forbidden, "is on another file system than its root, or mounted on");
  if (error == ENOENT) because(ProblemCode::invalid_value, "does not exist");
  if (error == ENOTDIR) because(ProblemCode::invalid_value, "is not a directory");
  refuse(path, field, ProblemCode::invalid_value, std::string("cannot be used: ") + std::strerror(error));
}

[[noreturn]] void refuse_reading(const std::string& path, const std::string& field, int error) {
  if (error == EACCES) refuse(path, field, ProblemCode::forbidden, "is not the caller's to read");
  refuse(path, field, error);
}

}  // namespace

FileDescriptor open_beneath(int directory, const std::string& name, int flags) {
  open_how how{};
  how.flags = static_cast<unsigned>(flags) | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV;
  return FileDescriptor(static_cast<int>(::syscall(SYS_openat2, directory, name.c_str(), &how, sizeof how)));
}

AllowedRoots::AllowedRoots(const std::vector<std::string>& roots, std::string what) : what_(std::move(what)) {
  auto opened = std::make_shared<std::vector<Root>>();
  for (const std::string& path : roots) {
    const auto refuse = [&](const std::string& why) {
      throw Error(Errc::bad_request, what_ + ": " + session::quote_path(path) + " " + why);
    };
    const std::unique_ptr<char, void (*)(void*)> real(::realpath(path.c_str(), nullptr), std::free);
    if (!real) refuse(std::string("cannot be used: ") + std::strerror(errno));
    if (path != real.get()) refuse("is not in its one form; write " + session::quote_path(real.get()));
    FileDescriptor directory(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!directory) refuse(std::string("cannot be opened: ") + std::strerror(errno));
    opened->push_back({path, std::move(directory)});
  }
  *roots_.lock() = std::move(opened);
}

void AllowedRoots::take(const AllowedRoots& other) {
  std::shared_ptr<const std::vector<Root>> theirs = *other.roots_.lock();
  *roots_.lock() = std::move(theirs);
}

AllowedRoots::Way AllowedRoots::way_to(const std::string& path, const std::string& field) const {
  const Root* root = nullptr;
  const std::shared_ptr<const std::vector<Root>> all = *roots_.lock();
  for (const Root& candidate : *all) {
    if (path == candidate.path) return {.all = all, .root = candidate, .names = {}};
    const std::string below = candidate.path == "/" ? "/" : candidate.path + "/";
    if (path.starts_with(below) && (root == nullptr || candidate.path.size() > root->path.size())) root = &candidate;
  }
  if (root == nullptr) {
    refuse(path, field, ProblemCode::forbidden,
           all->empty() ? "cannot be used, because the configuration of the service has no " + what_
                          : "is below none of the configured " + what_);
  }
  std::vector<std::string> names =
      components_of(std::string_view(path).substr(root->path.size() + (root->path == "/" ? 0 : 1)));
  if (names.empty()) {
    refuse(path, field, ProblemCode::forbidden, "is not in its one form: no empty component, '.' or '..'");
  }
  return {.all = all, .root = *root, .names = std::move(names)};
}

void AllowedRoots::check(const std::string& path, bool create, const std::string& field) const {
  const auto [all, root, names] = way_to(path, field);
  if (names.empty()) refuse(path, field, ProblemCode::forbidden, "is one of the configured " + what_ + ", not below");
  FileDescriptor above;
  for (std::size_t at = 0; at < names.size(); ++at) {
    const int directory = above ? above.get() : root.directory.get();
    if (!only_we_may_write(directory)) {
      refuse(path, field, ProblemCode::forbidden,
             "is in a directory that others may change; only root and this service may");
    }
    FileDescriptor next = open_beneath(directory, names[at], O_PATH | O_DIRECTORY);
    if (!next && errno == ENOENT && create && at + 1 == names.size()) {
      if (::mkdirat(directory, names[at].c_str(), 0755 | S_ISVTX) == 0 || errno == EEXIST) {
        next = open_beneath(directory, names[at], O_PATH | O_DIRECTORY);
      }
    }
    if (!next) refuse(path, field, errno);
    above = std::move(next);
  }
}

void AllowedRoots::remove_made(const std::string& path) const {
  const auto [all, root, names] = way_to(path, "mountpoint");
  FileDescriptor above;
  for (std::size_t at = 0; at < names.size(); ++at) {
    const int directory = above ? above.get() : root.directory.get();
    FileDescriptor next = open_beneath(directory, names[at], O_PATH | O_DIRECTORY);
    if (!next) return;
    struct stat about {};
    if (at + 1 == names.size() && ::fstat(next.get(), &about) == 0 && about.st_uid == ::geteuid() &&
        (about.st_mode & (S_ISVTX | S_IWGRP | S_IWOTH)) == S_ISVTX) {
      ::unlinkat(directory, names[at].c_str(), AT_REMOVEDIR);
    }
    above = std::move(next);
  }
}

FileDescriptor AllowedRoots::open(const std::string& path, const std::string& field, const OpenInside& open) const {
  const auto [all, root, names] = way_to(path, field);
  FileDescriptor above;
  for (const std::string& name : names) {
    FileDescriptor next = open(above ? above.get() : root.directory.get(), name, O_PATH | O_DIRECTORY);
    if (!next) refuse_reading(path, field, errno);
    above = std::move(next);
  }
  FileDescriptor directory = open(above ? above.get() : root.directory.get(), ".", O_RDONLY | O_DIRECTORY);
  if (!directory) refuse_reading(path, field, errno);
  return directory;
}

}  // namespace escrow::daemon
