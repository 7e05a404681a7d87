#include "daemon/service/imports/caller_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <utility>
#include <vector>

#include "api/problem.h"
#include "daemon/host/session_run.h"
#include "daemon/import/directory_import.h"
#include "daemon/process/user_rights.h"
#include "session/base/error.h"

namespace escrow::daemon {

using api::Problem;
using api::ProblemCode;

namespace {

constexpr std::uint64_t kMaxEntries = 4'000'000;  // as of archives
constexpr const char* kOnlyOwn = "this service can read directories for its own user only, because it lacks the "
                                 "capabilities CAP_SETUID and CAP_SETGID; run it as root with both";

}  // namespace

CommandSpec::Identity identity_of(const Caller& caller) {
  if (caller.groups) return {.uid = caller.uid, .gid = caller.gid, .groups = *caller.groups};
  return daemon::identity_of(caller.uid, caller.gid)
      .value_or(CommandSpec::Identity{.uid = caller.uid, .gid = caller.gid, .groups = {}});
}

bool reads_as_we_do(const Caller& caller) {
  return caller.uid == ::geteuid() && (caller.uid != 0 || caller.has_our_rights);
}

namespace {

// Contents as far as they are not too many.
class BoundedImport final : public DirectoryVisitor {
 public:
  BoundedImport(session::Quarantine& quarantine, std::uint64_t most_bytes)
      : import_(quarantine), most_bytes_(most_bytes) {}

  void leaf(const std::string& path, session::GitMode mode, const session::ByteSource& content) override {
    count(content);
    import_.leaf(path, mode, content);
  }
  void lfs_file(const std::string& path, session::GitMode mode, const session::ByteSource& content) override {
    count(content);
    import_.lfs_file(path, mode, content);
  }
  void enter(const std::string& path) override { import_.enter(path); }
  void leave(const std::string& path) override { import_.leave(path); }
  session::TreeRoot tree() { return import_.tree(); }

 private:
  void count(const session::ByteSource& content) {
    if (content.size() > most_bytes_ - read_bytes_) {
      throw Problem(ProblemCode::body_too_large,
                    "the files of the directory are larger than " + std::to_string(most_bytes_) +
                        " bytes together (max_content_bytes); nothing was changed");
    }
    read_bytes_ += content.size();
  }

  DirectoryImport import_;
  const std::uint64_t most_bytes_;
  std::uint64_t read_bytes_ = 0;
};

}  // namespace

std::string CallerFiles::why_only_own() {
  try {
    const UserRights rights({.uid = kOverflowId, .gid = kOverflowId, .groups = {kOverflowId}});
    return {};
  } catch (const session::Error&) {
    return kOnlyOwn;
  }
}

CallerFiles::CallerFiles(const AllowedRoots& roots, const Caller& caller, const std::string& path,
                         const std::string& field)
    : caller_(identity_of(caller)),
      is_as_we_are_(reads_as_we_do(caller)),
      directory_(roots.open(path, field, [this](int directory, const std::string& name, int flags) {
        return open_as_caller(directory, name, flags);
      })) {}

FileDescriptor CallerFiles::open_as_caller(int directory, const std::string& name, int flags) const {
  if (is_as_we_are_) return open_beneath(directory, name, flags);
  FileDescriptor opened;
  int error = 0;
  try {
    const UserRights rights(caller_);
    opened = open_beneath(directory, name, flags);
    error = errno;
  } catch (const session::Error&) {
    throw Problem(ProblemCode::forbidden, std::string(kOnlyOwn) + "; or send an archive; nothing was changed");
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
