#include "fuse/mount_visits.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/openat2.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "fuse/place.h"
#include "session/base/error.h"

namespace escrow::fuse {
namespace {

using session::NodeId;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// FILEID_INO64_GEN, the kernel's file handle for FUSE: node id (high, low word) and generation.
constexpr int kHandleType = 0x81;
constexpr unsigned kHandleWords = 3;
// Programs that go on renaming what is to be reached by path: tried again so often.
constexpr int kRounds = 8;
constexpr std::size_t kMaxTroubles = 64;
constexpr std::chrono::minutes kRequestsLeft{1};
constexpr std::size_t kMaxPath_bytes = 4000;  // of one call; a longer path is walked in pieces

// What a helper reports, first byte of a message.
constexpr char kEntered = 'E', kHandlesRefused = 'H', kTrouble = 'T';

// ---- In the helper: system calls only.

bool is_device(int file, dev_t device) {
  struct statx about {};
  return ::statx(file, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &about) == 0 &&
         makedev(about.stx_dev_major, about.stx_dev_minor) == device;
}

// A directory of the mount, or -1. What the path leads to is known before anything is asked of it.
int enter(const std::vector<std::string>& entrances, dev_t device) {
  for (const std::string& path : entrances) {
    const int there = ::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (there < 0) continue;
    const int opened = is_device(there, device) ? ::openat(there, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    ::close(there);
    if (opened >= 0) return opened;
  }
  return -1;
}

int open_handle(int mount, NodeId node, int flags) {
  alignas(file_handle) unsigned char memory[sizeof(file_handle) + kHandleWords * sizeof(std::uint32_t)];
  auto* const handle = reinterpret_cast<file_handle*>(memory);
  handle->handle_bytes = kHandleWords * sizeof(std::uint32_t);
  handle->handle_type = kHandleType;
  const std::uint32_t words[kHandleWords] = {static_cast<std::uint32_t>(node.value >> 32),
                                             static_cast<std::uint32_t>(node.value), 0};
  std::memcpy(memory + sizeof(file_handle), words, sizeof words);
  return ::open_by_handle_at(mount, handle, flags | O_CLOEXEC);
}

int open_piece(int directory, const char* path, int flags) {
  open_how how{};
  how.flags = static_cast<unsigned>(flags) | O_CLOEXEC | O_NOFOLLOW;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV;
  return static_cast<int>(::syscall(SYS_openat2, directory, *path != '\0' ? path : ".", &how, sizeof how));
}

// A path below the mount's root, of any length.
int open_path(int mount, const std::string& path, int flags) {
  int directory = mount;
  const char* rest = path.c_str();
  while (std::strlen(rest) > kMaxPath_bytes) {
    char piece[kMaxPath_bytes + 1];
    std::memcpy(piece, rest, kMaxPath_bytes);
    piece[kMaxPath_bytes] = '\0';
    char* const slash = std::strrchr(piece, '/');
    if (slash == nullptr) return -1;
    *slash = '\0';
    const int next = open_piece(directory, piece, O_PATH | O_DIRECTORY);
    if (directory != mount) ::close(directory);
    if (next < 0) return -1;
    directory = next;
    rest += slash - piece + 1;
  }
  const int opened = open_piece(directory, rest, flags);
  const int error = errno;
  if (directory != mount) ::close(directory);
  errno = error;
  return opened;
}

bool is_node(int file, NodeId node) {
  struct statx about {};
  return ::statx(file, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &about) == 0 && about.stx_ino == node.value;
}

// -1 with errno; ESTALE: the path leads to another node now or, of a handle, the kernel does not hold it.
int open_target(int mount, bool by_handle, NodeId node, const std::string& path, int flags) {
  if (by_handle) return open_handle(mount, node, flags);
  const int opened = open_path(mount, path, flags);
  if (opened < 0 || is_node(opened, node)) return opened;
  ::close(opened);
  errno = ESTALE;
  return -1;
}

// Two answers of different sizes: the kernel drops every page in between.
void ask_twice(int file) {
  struct statx about {};
  for (int i = 0; i < 2; ++i) ::statx(file, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_SIZE, &about);
}

[[noreturn]] void refuse(const std::string& what, int error) {
  throw session::Error(session::Errc::unavailable,
                       "the pages that programs have changed through mmap cannot be brought in, because " + what +
                           (error != 0 ? std::string(": ") + std::strerror(error) : std::string()) + "; try again");
}

Clock::time_point until(milliseconds patience) {
  return patience == HelperProcess::kForEver ? Clock::time_point::max() : Clock::now() + patience;
}

// Places where other mount namespaces show the device, entered through a process that lives in them.
std::vector<std::string> elsewhere(dev_t device, bool whole) {
  std::vector<std::string> found;
  std::set<std::string> seen;
  std::error_code failed;
  const auto space_of = [&failed](const std::filesystem::path& process) {
    return std::filesystem::read_symlink(process / "ns/mnt", failed).string();
  };
  seen.insert(space_of("/proc/self"));
  for (std::filesystem::directory_iterator at("/proc", failed), end; !failed && at != end; at.increment(failed)) {
    const std::string pid = at->path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    if (!seen.insert(space_of(at->path())).second) continue;
    for (const MountedPath& mounted : mounted_paths(at->path().string() + "/mountinfo")) {
      if (mounted.device == device && (!whole || mounted.root == "/"))
        found.push_back(at->path().string() + "/root" + mounted.path);
    }
    failed.clear();
  }
  return found;
}

}  // namespace

void Helpers::add(pid_t pid) {
  helpers_.lock()->push_back({pid, Clock::time_point::max()});
  ++count_;
}

void Helpers::remove(pid_t pid, bool has_finished) {
  auto helpers = helpers_.lock();
  const auto now = Clock::now();
  for (Helper& helper : *helpers)
    if (helper.pid == pid) helper.until = has_finished ? now : now + kRequestsLeft;
  count_ -= static_cast<int>(std::erase_if(*helpers, [now](const Helper& helper) { return helper.until <= now; }));
}

bool Helpers::has(pid_t pid) const noexcept {
  if (count_ == 0) return false;
  const auto helpers = helpers_.lock();
  return std::any_of(helpers->begin(), helpers->end(), [pid](const Helper& helper) { return helper.pid == pid; });
}

int WaitingRings::of_this_thread() { return ::sched_getcpu(); }

void WaitingRings::remove(int processor) { processors_.lock()->extract(processor); }

void WaitingRings::keep_off(pid_t pid) const noexcept {
  const auto processors = processors_.lock();
  cpu_set_t allowed;
  if (processors->empty() || ::sched_getaffinity(pid, sizeof allowed, &allowed) != 0) return;
  for (const int processor : *processors) CPU_CLR(static_cast<unsigned>(processor), &allowed);
  if (CPU_COUNT(&allowed) > 0) ::sched_setaffinity(pid, sizeof allowed, &allowed);
}

MountVisits::MountVisits(std::string mountpoint, dev_t device, PathsOf paths_of, Helpers& helpers,
                         const WaitingRings& rings)
    : mountpoint_(std::move(mountpoint)),
      device_(device),
      paths_of_(std::move(paths_of)),
      helpers_(helpers),
      rings_(rings) {}

MountVisits::Found MountVisits::send_helper(Purpose purpose, bool by_handle, const std::vector<std::string>& entrances,
                                            const std::vector<Target>& targets, milliseconds patience) {
  const auto visit_one = [&](int mount, const Target& target) {
    constexpr int kAccess[] = {O_RDONLY | O_NONBLOCK, O_PATH | O_DIRECTORY, O_WRONLY | O_NONBLOCK, O_PATH};
    const int opened =
        open_target(mount, by_handle, target.node, target.path, kAccess[static_cast<std::size_t>(purpose)]);
    if (opened < 0) return errno;
    switch (purpose) {
      case Purpose::flush: break;  // close(2) writes the dirty pages in large pieces and waits for them
      case Purpose::look_up: ::mkdirat(opened, target.name.c_str(), 0); break;  // looks the name up, and is refused
      case Purpose::drop_pages:
        ::fallocate(opened, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, off_t{1} << 62);  // answered, not done
        break;
      case Purpose::ask_twice: ask_twice(opened); break;
    }
    ::close(opened);
    return 0;
  };
  HelperProcess helper([&](const HelperProcess::Report& report) {
    const int mount = enter(entrances, device_);
    if (mount < 0) return;
    const char entered[] = {kEntered, 0}, refused[] = {kHandlesRefused, 0};
    report.add(entered, sizeof entered);
    std::size_t troubles = 0;
    for (std::uint32_t index = 0; index < targets.size() && troubles < kMaxTroubles; ++index) {
      const int error = visit_one(mount, targets[index]);
      if (by_handle && error == EPERM) return report.add(refused, sizeof refused);
      if (error == 0 || (by_handle && error == ESTALE)) continue;
      char message[1 + sizeof(Trouble)] = {kTrouble};
      const Trouble trouble{index, error};
      std::memcpy(message + 1, &trouble, sizeof trouble);
      report.add(message, sizeof message);
      ++troubles;
    }
  });
  const pid_t pid = helper.pid();
  helpers_.add(pid);
  rings_.keep_off(pid);
  const auto deadline = until(patience);
  const auto reports = helper.finish(patience);
  helpers_.remove(pid, reports.has_value());
  Found found;
  if (!reports && Clock::now() >= deadline) {
    found.late = true;
    return found;
  }
  if (!reports) refuse("the helper process that was to do it has died", 0);
  for (const std::string& message : *reports) {
    if (message.front() == kEntered) found.entered = true;
    if (message.front() == kHandlesRefused) found.handles_refused = true;
    if (message.front() != kTrouble || message.size() != 1 + sizeof(Trouble)) continue;
    Trouble trouble{};
    std::memcpy(&trouble, message.data() + 1, sizeof trouble);
    found.troubles.push_back(trouble);
  }
  return found;
}

// Where each is now; what has no name any more is left out.
std::vector<MountVisits::Target> MountVisits::with_paths(const std::vector<Target>& targets) const {
  std::vector<Target> result;
  for (const Target& target : targets) {
    const std::vector<std::string> paths = paths_of_(target.node);
    if (!paths.empty()) result.push_back({target.node, paths.front(), target.name});
  }
  return result;
}

MountVisits::Outcome MountVisits::visit(Purpose purpose, std::vector<Target> targets, milliseconds patience) {
  std::vector<std::string> entrances = {mountpoint_};
  bool is_elsewhere = false;
  for (int round = 0;;) {
    const bool by_handle = by_handle_;
    if (!by_handle) targets = with_paths(targets);
    if (targets.empty()) return {};
    const Found found = send_helper(purpose, by_handle, entrances, targets, patience);
    if (found.late) return {.entered = true, .late = true, .error = 0, .node = {}};
    if (!found.entered) {
      if (is_elsewhere) return {.entered = false, .late = false, .error = 0, .node = {}};
      is_elsewhere = true;
      entrances = elsewhere(device_, !by_handle);
    } else if (found.handles_refused) {
      if (!paths_of_) refuse("this process may not open files by handle", EPERM);
      by_handle_ = false;
    } else if (found.troubles.empty()) {
      return {};
    } else if (by_handle || ++round == kRounds) {
      const Trouble& first = found.troubles.front();
      return {.entered = true, .late = false, .error = first.error, .node = targets[first.index].node};
    } else {
      // They may have moved; those after the last that was reported may not have been tried.
      std::vector<Target> left;
      for (const Trouble& trouble : found.troubles) left.push_back(std::move(targets[trouble.index]));
      if (found.troubles.size() == kMaxTroubles)
        for (std::size_t at = found.troubles.back().index + 1; at < targets.size(); ++at)
          left.push_back(std::move(targets[at]));
      targets = std::move(left);
    }
  }
}

Flushed MountVisits::flush(const std::vector<NodeId>& files, milliseconds patience) {
  std::vector<Target> targets;
  targets.reserve(files.size());
  for (const NodeId file : files) targets.push_back({file, {}, {}});
  const Outcome outcome = visit(Purpose::flush, std::move(targets), patience);
  if (outcome.error != 0) refuse("a file of them cannot be opened", outcome.error);
  if (outcome.late) return Flushed::late;
  return outcome.entered ? Flushed::all : Flushed::unreachable;
}

bool MountVisits::look_up_again(const std::vector<NameInDirectory>& names) {
  std::vector<Target> targets;
  targets.reserve(names.size());
  for (const NameInDirectory& name : names) targets.push_back({name.directory, {}, name.name});
  return visit(Purpose::look_up, std::move(targets)).entered;
}

bool MountVisits::drop_pages(NodeId file, const std::function<void()>& before_asking) {
  const Outcome outcome = visit(Purpose::drop_pages, {{file, {}, {}}});
  // A program that runs cannot be opened for writing, and nothing where the mount is read-only: nobody appends there.
  if (outcome.error != ETXTBSY && outcome.error != EROFS) return outcome.entered;
  before_asking();
  return visit(Purpose::ask_twice, {{file, {}, {}}}).entered;
}

}  // namespace escrow::fuse
