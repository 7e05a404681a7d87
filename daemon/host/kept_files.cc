#include "daemon/host/kept_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <span>
#include <string_view>
#include <vector>

#include "daemon/process/file_descriptor.h"
#include "session/base/error.h"
#include "session/base/link_target.h"
#include "session/base/repo_path.h"
#include "session/trees/different_trees.h"
#include "storage/disk/byte_sources.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/sparse_writer.h"

namespace escrow::daemon {

namespace {

[[noreturn]] void fail() { throw storage::system_error(errno, "keep what is injected"); }

void write_kept(int to, std::string_view content) {
  while (!content.empty()) {
    const ssize_t count = ::write(to, content.data(), content.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail();
    content.remove_prefix(static_cast<std::size_t>(count));
  }
}

FileDescriptor make_file(int directory, const std::string& path) {
  FileDescriptor made(::openat(directory, path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!made) fail();
  return made;
}

std::string_view view_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Of a link: it is short.
std::string kept_content_of(const session::ByteSource& source) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(source.size()));
  bytes.resize(source.read(0, bytes));
  return std::string(view_of(bytes));
}

void copy_blob(const session::ByteSource& source, int to, const std::string& path, storage::CopyBudget& budget) {
  storage::SparseWriter writer(to, path, [&](std::uint64_t bytes) {
    budget.check_room(to, bytes, path);
    budget.count(bytes);
  });
  storage::for_each_piece(source, [&](std::span<const std::byte> bytes) {
    budget.check_going_on(path);
    writer.append(bytes);
  });
  writer.finish();
}

}  // namespace

KeptFiles::KeptFiles(int directory, const session::SessionOptions& options)
    : directory_(directory), options_(options) {
  own(".", 0777);
}

void KeptFiles::own(const std::string& path, unsigned mode) const {
  const bool is_owned = ::geteuid() != 0 || ::fchownat(directory_, path.c_str(), options_.uid, options_.gid,
                                                       AT_SYMLINK_NOFOLLOW) == 0;
  if (!is_owned || ::fchmodat(directory_, path.c_str(), mode & ~options_.umask, 0) != 0) fail();
}

void KeptFiles::make_directory(const std::string& path) const {
  if (::mkdirat(directory_, path.c_str(), 0700) == 0) return own(path, 0777);
  if (errno != EEXIST) fail();
}

void KeptFiles::put_files(const std::map<std::string, MountEntrySpec::File>& files) const {
  for (const auto& [path, file] : files) {
    for (std::size_t at = path.find('/'); at != std::string::npos; at = path.find('/', at + 1))
      make_directory(path.substr(0, at));
    write_kept(make_file(directory_, path).get(), file.content);
    own(path, file.is_executable ? 0777 : 0666);
  }
}

void KeptFiles::put_tree(const session::ObjectReader& objects, const session::TreeRoot& tree,
                         std::int64_t time_s, storage::CopyBudget& budget) const {
  if (!tree) return;
  session::require_listable(objects, session::WholeTrees::by_git, {std::nullopt, tree},
                            "cannot keep what is injected, which has too many files");
  put_entries(objects, *tree, "", time_s, budget);
}

void KeptFiles::put_entries(const session::ObjectReader& objects, const session::ObjectId& tree,
                            const std::string& at, std::int64_t time_s, storage::CopyBudget& budget) const {
  const timespec times[2] = {{time_s, 0}, {time_s, 0}};
  for (const session::TreeEntry& entry : objects.read_tree(tree)) {
    const std::string path = at + entry.name;
    budget.check_going_on(path);
    if (entry.name.empty() || entry.name == "." || entry.name == ".." || entry.name.find('/') != std::string::npos)
      throw session::Error(session::Errc::input_output, "a tree of the revision has a name that no file can have");
    if (entry.mode == session::GitMode::tree || entry.mode == session::GitMode::gitlink) {
      make_directory(path);
      if (entry.mode == session::GitMode::tree) put_entries(objects, entry.id, path + "/", time_s, budget);
    } else if (entry.mode == session::GitMode::symlink) {
      const std::string target = kept_content_of(*objects.open_blob(entry.id));
      if (!session::is_link_target(target))
        throw session::Error(session::Errc::input_output, "cannot keep what is injected: the symbolic link " +
                                                              session::quote_path(path) +
                                                              " has a target that no system call takes");
      if (::symlinkat(target.c_str(), directory_, path.c_str()) != 0) fail();
      if (::geteuid() == 0 &&
          ::fchownat(directory_, path.c_str(), options_.uid, options_.gid, AT_SYMLINK_NOFOLLOW) != 0)
        fail();
    } else {
      copy_blob(*objects.open_blob(entry.id), make_file(directory_, path).get(), path, budget);
      own(path, entry.mode == session::GitMode::executable ? 0777 : 0666);
    }
    if (::utimensat(directory_, path.c_str(), times, AT_SYMLINK_NOFOLLOW) != 0) fail();
  }
}

}  // namespace escrow::daemon
