#include "storage/repository/collect_garbage.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <optional>
#include <sstream>
#include <string_view>
#include <thread>

#include "session/base/error.h"
#include "storage/disk/file_lookup.h"
#include "storage/objects/pack_writer.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::Error;

// A directory of objects on their way that is older than this was left by a push that died.
constexpr std::time_t kAbandoned_s = 24 * 3600;

// A pack without an index, or a lock file, that is older than this was left by one who was killed; git itself, where it
// packs everything, waits for nobody.
constexpr std::time_t kUnfinished_s = 10;
constexpr std::string_view kNoSuchPack = "could not find pack";
constexpr std::chrono::milliseconds kPauses[] = {std::chrono::milliseconds(100), std::chrono::seconds(3),
                                                 std::chrono::seconds(4), std::chrono::seconds(5)};

// What git says in English of a machine that has too little, and not of a repository.
constexpr const char* kOfTheMachine[] = {
    "Too many open files", "annot allocate memory", "ut of memory",          "Resource temporarily unavailable",
    "Input/output error",  "Read-only file system", kNoSuchPack.data(),
};

class Collection {
 public:
  Collection(const std::string& git_directory, const GitProgram& git, std::time_t now,
             const std::optional<GcHolder>& oldest)
      : git_directory_(git_directory), objects_(git_directory + "/objects"), git_(git), now_(now), oldest_(oldest) {}

  GcReport run() {
    check_roots();
    remove_temporary_files();
    GcReport report;
    const std::string expiry = expiry_argument(report.held_back);
    const bool had_pack_index = is_there(objects_ + "/pack/multi-pack-index");
    const bool had_its_bitmap = has_in_pack_directory("multi-pack-index-", ".bitmap");
    const bool had_bitmap = has_in_pack_directory("pack-", ".bitmap");
    count(report.objects_before, report.packs_before, report.bytes_before);
    repack(expiry, had_bitmap);
    if (expiry != kNever) run_git({"prune", "--expire=" + expiry});
    // Beside a pack that somebody keeps git writes no bitmap of one pack.
    const bool lost_bitmap = had_bitmap && !has_in_pack_directory("pack-", ".bitmap");
    if ((had_pack_index || lost_bitmap) && has_in_pack_directory("pack-", ".idx")) {
      std::vector<std::string> write = {"multi-pack-index", "write", "--no-progress"};
      if (had_its_bitmap || lost_bitmap) write.push_back("--bitmap");
      derive(write, "/pack/multi-pack-index.lock");
    }
    if (ask({"config", "--type=bool", "--default", "true", "--get", "gc.writeCommitGraph"}) == "true")
      derive({"commit-graph", "write", "--reachable", "--no-progress"}, "/info/commit-graph.lock");
    count(report.objects_after, report.packs_after, report.bytes_after);
    return report;
  }

 private:
  static constexpr char kNever[] = "never";

  // git takes a directory of references or reflogs that it cannot open for an empty one (refs/files-backend.c).
  void check_roots() const {
    for (const char* roots : {"/refs", "/logs"})
      for_each_below(git_directory_ + roots, [](const auto&, const auto&) {});
  }

  // What is as old as this is dropped, in seconds since 1970; "now" means now, and not what comes while git is at it.
  // `held_back` becomes the oldest session where it is what decides.
  std::string expiry_argument(std::optional<GcHolder>& held_back) const {
    const GitOutput output =
        git_({"config", "--type=expiry-date", "--default", "2.weeks.ago", "--get", "gc.pruneExpire"});
    check_installed(output);
    std::uint64_t expiry = 0;
    if (std::from_chars(output.out.data(), output.out.data() + output.out.size(), expiry).ec != std::errc())
      throw Error(Errc::unsupported_repository, "the time gc.pruneExpire cannot be read: " + complaint(output) +
                                         "; set it to one that git reads, 2.weeks.ago for example");
    if (expiry == 0) return kNever;
    std::time_t latest = static_cast<std::time_t>(std::min(expiry, static_cast<std::uint64_t>(now_)));
    if (const std::optional<std::time_t> push = oldest_push(std::time(nullptr))) latest = std::min(latest, *push - 1);
    if (oldest_ && oldest_->since_s - 1 < latest) {
      latest = oldest_->since_s - 1;
      held_back = oldest_;
    }
    return std::to_string(std::max<std::time_t>(latest, 1));
  }

  // When the oldest push that is under way began: git-receive-pack(1), "quarantine environment".
  std::optional<std::time_t> oldest_push(std::time_t now) const {
    std::optional<std::time_t> oldest;
    for (const std::string& name : names_in(objects_)) {
      if (!name.starts_with("tmp_objdir-") && !name.starts_with("incoming-")) continue;
      struct statx status {};
      const std::string path = objects_ + "/" + name;
      if (::statx(AT_FDCWD, path.c_str(), 0, STATX_BASIC_STATS | STATX_BTIME, &status) != 0) continue;
      std::time_t began = std::min<std::time_t>(status.stx_mtime.tv_sec, status.stx_ctime.tv_sec);
      if ((status.stx_mask & STATX_BTIME) != 0) began = std::min<std::time_t>(began, status.stx_btime.tv_sec);
      if (now - std::max<std::time_t>(status.stx_mtime.tv_sec, status.stx_ctime.tv_sec) > kAbandoned_s) continue;
      oldest = std::min(oldest.value_or(began), began);
    }
    return oldest;
  }

  bool has_in_pack_directory(std::string_view prefix, std::string_view suffix) const {
    const std::vector<std::string> names = names_in(objects_ + "/pack");
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return name.starts_with(prefix) && name.ends_with(suffix);
    });
  }

  // Deltas are kept as they are, and none are searched for, which is what takes git long: `git gc` does.
  void repack(const std::string& expiry, bool with_bitmap) const {
    std::vector<std::string> arguments = {"repack", "-d", "-l", "-n", "-q", "--window=0", "--no-pack-kept-objects"};
    if (with_bitmap) arguments.push_back("-b");  // else as the configuration says
    if (version_at_least(2, 37)) {
      arguments.insert(arguments.end(), {"--cruft", "--cruft-expiration=" + expiry});
    } else {
      arguments.push_back("-A");
      if (expiry != kNever) arguments.push_back("--unpack-unreachable=" + expiry);
    }
    for (const std::chrono::milliseconds pause : kPauses) {
      const GitOutput output = git_(arguments);
      // Somebody was killed while he put a pack here, or removed one; or it was folded meanwhile.
      if (output.err.find(kNoSuchPack) == std::string::npos) return check(arguments.front(), output);
      std::this_thread::sleep_for(pause);
      remove_unfinished_packs();
    }
    run_git(arguments);
  }

  // Writes a file that can be made anew at any time, under git's lock. The lock of a git that was killed stays; one
  // that has not changed for long is taken for such: should its git live after all, it fails, and nothing is lost.
  void derive(const std::vector<std::string>& arguments, const char* lock) const {
    for (const std::chrono::milliseconds pause : kPauses) {
      const GitOutput output = git_(arguments);
      if (output.err.find("File exists") == std::string::npos) return check(arguments.front(), output);
      std::this_thread::sleep_for(pause);  // of all of them longer than kUnfinished_s
      const std::string path = objects_ + lock;
      const std::optional<struct stat> status = status_of(path);
      if (status && std::time(nullptr) - status->st_mtime > kUnfinished_s) ::unlink(path.c_str());
    }
    run_git(arguments);
  }

  // That git left which was killed, or had no room; git removes some of them, and those later.
  void remove_temporary_files() const {
    for (const std::string& name : names_in(objects_ + "/pack")) {
      const std::string path = objects_ + "/pack/" + name;
      if (!name.starts_with("tmp_") && !name.starts_with(".tmp-")) continue;
      const std::optional<struct stat> status = status_of(path);
      if (status && std::time(nullptr) - status->st_mtime > kAbandoned_s) ::unlink(path.c_str());
    }
  }

  void remove_unfinished_packs() const {
    constexpr std::string_view kPack = ".pack";
    for (const std::string& name : names_in(objects_ + "/pack")) {
      if (is_of_dead_repack(name)) ::unlink((objects_ + "/pack/" + name).c_str());
      if (!name.starts_with("pack-") || !name.ends_with(kPack)) continue;
      const std::string stem = objects_ + "/pack/" + name.substr(0, name.size() - kPack.size());
      const std::optional<struct stat> status = status_of(stem + std::string(kPack));
      if (!status || std::time(nullptr) - status->st_ctime <= kUnfinished_s) continue;
      if (!is_there(stem + ".idx") && !is_there(stem + ".keep")) remove_pack(stem);
    }
  }

  // ".tmp-4711-pack-...": of git repack with that process id. Another one that works there fails, and loses nothing.
  static bool is_of_dead_repack(const std::string& name) {
    constexpr std::string_view kPrefix = ".tmp-";
    pid_t pid = 0;
    if (!name.starts_with(kPrefix)) return false;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), pid);
    return pid > 0 && ::kill(pid, 0) != 0 && errno == ESRCH;
  }

  bool version_at_least(int major, int minor) const {
    const std::string said = ask({"version"});  // "git version 2.39.5"
    int found_major = 0, found_minor = 0;
    char dot = 0;
    std::istringstream in(said.substr(std::min(said.find_first_of("0123456789"), said.size())));
    in >> found_major >> dot >> found_minor;
    return found_major > major || (found_major == major && found_minor >= minor);
  }

  // git-count-objects(1).
  void count(std::uint64_t& objects, std::uint64_t& packs, std::uint64_t& bytes) const {
    std::istringstream lines(ask({"count-objects", "-v"}));
    std::string key;
    for (std::uint64_t value = 0; lines >> key >> value;) {
      if (key == "count:" || key == "in-pack:") objects += value;
      if (key == "packs:") packs = value;
      if (key == "size:" || key == "size-pack:") bytes += value * 1024;
    }
  }

  std::string ask(const std::vector<std::string>& arguments) const {
    std::string said = run_git(arguments).out;
    while (said.ends_with('\n')) said.pop_back();
    return said;
  }

  GitOutput run_git(const std::vector<std::string>& arguments) const {
    GitOutput output = git_(arguments);
    check(arguments.front(), output);
    return output;
  }

  static void check(const std::string& command, const GitOutput& output) {
    if (output.status == 0) return;
    check_installed(output);
    const std::string what = "git " + command + " failed: " + complaint(output);
    const auto is_said = [&](const char* words) { return output.err.find(words) != std::string::npos; };
    const bool is_quota = is_said("Disk quota exceeded");
    if (is_quota || is_said("No space left on device") || is_said("Out of diskspace")) {
      throw Error(is_quota ? Errc::quota_exceeded : Errc::no_space,
                  what + "; nothing was lost; free some space and try again");
    }
    const bool is_the_machines = std::any_of(std::begin(kOfTheMachine), std::end(kOfTheMachine), is_said);
    if (output.status > 128 || is_the_machines)
      throw Error(Errc::unavailable, what + "; nothing was lost, try again");
    throw Error(Errc::damaged_repository, what + "; nothing that is needed was removed; run escrow verify");
  }

  static void check_installed(const GitOutput& output) {
    if (output.status == 127)
      throw Error(Errc::unavailable, "cannot clean up: the program git is not installed; install it and try again");
  }

  // What it said last of all, in one line; or how it ended.
  static std::string complaint(const GitOutput& output) {
    std::istringstream lines(output.err);
    std::string fatal, last;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("fatal: ") || line.starts_with("error: ")) fatal = fatal.empty() ? line.substr(7) : fatal;
      if (!line.empty()) last = line;
    }
    if (!fatal.empty()) return fatal;
    return last.empty() ? "it ended with status " + std::to_string(output.status) : last;
  }

  const std::string git_directory_, objects_;
  const GitProgram& git_;
  const std::time_t now_;
  const std::optional<GcHolder>& oldest_;
};

}  // namespace

GcReport collect_objects(const std::string& git_directory, const GitProgram& git, std::time_t now,
                         const std::optional<GcHolder>& oldest) {
  return Collection(git_directory, git, now, oldest).run();
}

}  // namespace escrow::storage
