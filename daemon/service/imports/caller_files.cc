#include "daemon/service/imports/caller_files.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <utility>
#include <vector>

#include "api/problem.h"
#include "daemon/host/session_run.h"
#include "daemon/import/directory_import.h"

namespace escrow::daemon {

using api::Problem;
using api::ProblemCode;

namespace {

constexpr std::uint64_t kMaxEntries = 4'000'000;  // as of archives
constexpr const char* kOnlyOwn = "this service can read directories for its own user only, because it lacks the "
                                 "capabilities CAP_SETUID and CAP_SETGID; run it as root with both";

// This thread's rights on files are a user's, as long as this lives. The C library would change those of all threads.
class RightsOfUser {
 public:
  explicit RightsOfUser(const CommandSpec::Identity& user)
      : groups_(groups_of_process()), capabilities_(capabilities()), has_groups_(set_groups(user.groups)) {
    if (has_groups_ && set_ids(user.uid, user.gid) && set_capabilities(without_effect(capabilities_))) return;
    restore();
    throw Problem(ProblemCode::forbidden, std::string(kOnlyOwn) + "; or send an archive; nothing was changed");
  }
  ~RightsOfUser() { restore(); }
  RightsOfUser(const RightsOfUser&) = delete;
  RightsOfUser& operator=(const RightsOfUser&) = delete;

 private:
  static std::vector<gid_t> groups_of_process() {
    std::vector<gid_t> groups(static_cast<std::size_t>(::getgroups(0, nullptr)));
    groups.resize(static_cast<std::size_t>(::getgroups(static_cast<int>(groups.size()), groups.data())));
    return groups;
  }
  static bool set_groups(const std::vector<gid_t>& groups) {
    return ::syscall(SYS_setgroups, groups.size(), groups.data()) == 0;
  }
  // They say what was before, and not whether they could: asked once more, with what nobody can be, they say it.
  static bool set_ids(uid_t uid, gid_t gid) {
    ::setfsgid(gid);
    ::setfsuid(uid);
    return static_cast<gid_t>(::setfsgid(static_cast<gid_t>(-1))) == gid &&
           static_cast<uid_t>(::setfsuid(static_cast<uid_t>(-1))) == uid;
  }
  // Those of files setfsuid(2) takes from everybody but root.
  using Capabilities = std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3>;
  static Capabilities capabilities() {
    Capabilities found{};
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    ::syscall(SYS_capget, &header, found.data());
    return found;
  }
  static Capabilities without_effect(Capabilities given) {
    for (__user_cap_data_struct& word : given) word.effective = 0;
    return given;
  }
  static bool set_capabilities(const Capabilities& wanted) {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    return ::syscall(SYS_capset, &header, wanted.data()) == 0;
  }
  // Nothing may go on with rights that are not its own.
  void restore() const {
    const bool is_restored = set_capabilities(capabilities_) && set_ids(::geteuid(), ::getegid()) &&
                             (!has_groups_ || set_groups(groups_));
    if (!is_restored) std::abort();
  }

  const std::vector<gid_t> groups_;  // the process's own, as the next
  const Capabilities capabilities_;
  const bool has_groups_;            // of the user
};

CommandSpec::Identity identity_of(const Caller& caller) {
  if (caller.groups) return {.uid = caller.uid, .gid = caller.gid, .groups = *caller.groups};
  return daemon::identity_of(caller.uid, caller.gid)
      .value_or(CommandSpec::Identity{.uid = caller.uid, .gid = caller.gid, .groups = {}});
}

// Contents as far as they are not too many.
class BoundedImport final : public DirectoryVisitor {
 public:
  BoundedImport(session::Quarantine& quarantine, std::uint64_t most_bytes)
      : import_(quarantine), most_bytes_(most_bytes) {}

  void leaf(const std::string& path, session::GitMode mode, const session::ByteSource& content) override {
    if (content.size() > most_bytes_ - read_bytes_) {
      throw Problem(ProblemCode::body_too_large,
                    "the files of the directory are larger than " + std::to_string(most_bytes_) +
                        " bytes together (max_content_bytes); nothing was changed");
    }
    read_bytes_ += content.size();
    import_.leaf(path, mode, content);
  }
  void enter(const std::string& path) override { import_.enter(path); }
  void leave(const std::string& path) override { import_.leave(path); }
  session::TreeRoot tree() { return import_.tree(); }

 private:
  DirectoryImport import_;
  const std::uint64_t most_bytes_;
  std::uint64_t read_bytes_ = 0;
};

}  // namespace

std::string CallerFiles::why_only_own() {
  try {
    const RightsOfUser rights({.uid = kOverflowId, .gid = kOverflowId, .groups = {kOverflowId}});
    return {};
  } catch (const Problem&) {
    return kOnlyOwn;
  }
}

CallerFiles::CallerFiles(const AllowedRoots& roots, const Caller& caller, const std::string& path,
                         const std::string& field)
    : caller_(identity_of(caller)),
      is_as_we_are_(caller.uid == ::geteuid() && (caller.uid != 0 || caller.has_our_rights)),
      directory_(roots.open(path, field, [this](int directory, const std::string& name, int flags) {
        return open_as_caller(directory, name, flags);
      })) {}

FileDescriptor CallerFiles::open_as_caller(int directory, const std::string& name, int flags) const {
  if (is_as_we_are_) return open_beneath(directory, name, flags);
  FileDescriptor opened;
  int error = 0;
  {
    const RightsOfUser rights(caller_);
    opened = open_beneath(directory, name, flags);
    error = errno;
  }
  errno = error;
  return opened;
}

session::BuiltTree CallerFiles::read(session::Quarantine& quarantine, const std::string& skipped,
                                     std::uint64_t most_bytes, ImportFilter filter) {
  BoundedImport import(quarantine, most_bytes);
  const auto open = [this](int directory, const std::string& name, int flags) {
    return open_as_caller(directory, name, flags);
  };
  DirectoryWalk walk(import, skipped, {}, open,
                     {.entries = kMaxEntries, .omitted_bytes = OmittedNames::kAnswer_bytes, .path_bytes = PATH_MAX},
                     std::move(filter));
  session::BuiltTree built;
  built.omitted = walk.run(std::move(directory_)).omitted;
  built.tree = import.tree();
  return built;
}

}  // namespace escrow::daemon
