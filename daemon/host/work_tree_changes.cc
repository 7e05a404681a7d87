#include "daemon/host/work_tree_changes.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "daemon/process/file_descriptor.h"
#include "session/base/error.h"
#include "session/base/repo_path.h"
#include "session/overlay/overlay.h"
#include "session/transaction/apply_changes.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;
using session::NodeId;
using session::Overlay;

namespace {

constexpr std::size_t kCopiedPieceBytes = std::size_t{1} << 20;
constexpr std::uint32_t kFileMode = 0666, kProgramMode = 0777;

// Nothing is followed out of the work tree: git takes what is behind a symbolic link for removed.
FileDescriptor open_below(int root, const std::string& path, int flags) {
  open_how how{};
  how.flags = static_cast<unsigned>(flags | O_NOFOLLOW | O_CLOEXEC);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV;
  return FileDescriptor(static_cast<int>(::syscall(SYS_openat2, root, path.c_str(), &how, sizeof how)));
}

[[noreturn]] void cannot_read(const std::string& path, int error) {
  throw Error(Errc::input_output, "cannot take \"" + session::quote_path(path) +
                                      "\" of the work tree into the session: " + std::strerror(error) +
                                      "; make it readable, or leave --with-changes out");
}

// One file or symbolic link of the work tree, found but not yet read.
struct Found {
  std::string path;   // from the root of the work tree
  std::string below;  // from the session's root
  FileDescriptor at;  // O_PATH
  mode_t mode = 0;
};

class Taking {
 public:
  Taking(int root, session::Session& session)
      : root_(root), overlay_(session.overlay()), options_(session.record().options) {}

  void remove(const std::string& below) {
    session::apply_changes(overlay_, {{below, session::Did::deleted, std::nullopt, std::nullopt}},
                           [](const std::vector<Overlay::Stale>&) {});
  }

  void put(const Found& found) {
    overlay_.replace(found.below, std::nullopt);
    const auto [directory, name] = place_for(found.below);
    if (S_ISLNK(found.mode)) {
      std::string target(PATH_MAX, '\0');
      const ssize_t length = ::readlinkat(found.at.get(), "", target.data(), target.size());
      if (length < 0) cannot_read(found.path, errno);
      target.resize(static_cast<std::size_t>(length));
      overlay_.make_symlink(directory, name, target, owner());
      return;
    }
    const bool is_program = (found.mode & S_IXUSR) != 0;
    const std::uint32_t mode = (is_program ? kProgramMode : kFileMode) & ~options_.umask;
    copy(found.path, overlay_.make_node(directory, name, S_IFREG | mode, 0, owner()).node);
  }

  void flush() { overlay_.flush(true); }

 private:
  session::Caller owner() const { return {options_.uid, options_.gid}; }

  std::pair<NodeId, std::string> place_for(const std::string& below) {
    NodeId directory = session::kRootNode;
    std::string_view left = below;
    for (std::size_t slash = left.find('/'); slash != left.npos; slash = left.find('/')) {
      const std::string_view name = left.substr(0, slash);
      auto next = overlay_.lookup(directory, name);
      if (!next) next = overlay_.make_node(directory, name, S_IFDIR | (kProgramMode & ~options_.umask), 0, owner());
      directory = next->node;
      left.remove_prefix(slash + 1);
    }
    return {directory, std::string(left)};
  }

  void copy(const std::string& path, NodeId node) {
    const FileDescriptor file = open_below(root_, path, O_RDONLY | O_NONBLOCK);
    if (!file) cannot_read(path, errno);
    piece_.resize(kCopiedPieceBytes);
    for (std::uint64_t at = 0;;) {
      const ssize_t count = ::read(file.get(), piece_.data(), piece_.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) cannot_read(path, errno);
      if (count == 0) return;
      overlay_.write(node, at, std::span(piece_).first(static_cast<std::size_t>(count)), session::WriteOrigin::call);
      at += static_cast<std::size_t>(count);
    }
  }

  const int root_;
  Overlay& overlay_;
  const session::SessionOptions options_;
  std::vector<std::byte> piece_;
};

// From the session's root; nullopt: it is not below it.
std::optional<std::string> path_below_prefix(const std::string& path, const std::string& prefix) {
  if (prefix.empty()) return path;
  if (!path.starts_with(prefix + "/")) return std::nullopt;
  return path.substr(prefix.size() + 1);
}

}  // namespace

TakenChanges take_changes(const std::string& work_tree, const std::vector<std::string>& paths,
                          session::Session& session) {
  const FileDescriptor root(::open(work_tree.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root) cannot_read(work_tree, errno);
  const std::string prefix = session.record().options.prefix.text();
  Taking taking(root.get(), session);
  TakenChanges changes;
  std::vector<Found> there;
  // Removed paths come first: a file may be where a directory was, and the other way round.
  for (const std::string& path : paths) {
    const std::optional<std::string> below = path_below_prefix(path, prefix);
    Found found{.path = path, .below = below.value_or(""), .at = open_below(root.get(), path, O_PATH)};
    const int error = found.at ? 0 : errno;
    if (!below || path.ends_with('/') || error == EXDEV) {
      changes.left.push_back(path);
      continue;
    }
    if (error != 0 && error != ENOENT && error != ENOTDIR && error != ELOOP) cannot_read(path, error);
    struct stat status {};
    if (error == 0 && ::fstat(found.at.get(), &status) != 0) cannot_read(path, errno);
    found.mode = status.st_mode;
    changes.taken += 1;
    if (S_ISREG(found.mode) || S_ISLNK(found.mode)) {
      // Descriptors are not kept: there may be more paths than there may be descriptors.
      found.at = FileDescriptor();
      there.push_back(std::move(found));
    } else {
      taking.remove(found.below);
    }
  }
  for (Found& found : there) {
    found.at = open_below(root.get(), found.path, O_PATH);
    if (!found.at) cannot_read(found.path, errno);
    taking.put(found);
  }
  taking.flush();
  return changes;
}

}  // namespace escrow::daemon
