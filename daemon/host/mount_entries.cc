#include "daemon/host/mount_entries.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>

#include "daemon/host/entry_rights.h"
#include "daemon/host/session_here.h"
#include "daemon/process/user_rights.h"
#include "session/base/error.h"
#include "session/decorators/single_file.h"
#include "storage/disk/durable_file.h"
#include "storage/host_files/host_directory.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;

namespace {

using Source = MountEntrySpec::Source;

constexpr char kNotedMounts[] = "/mounts";

bool is_at_or_below(const std::string& path, const std::string& directory) {
  if (!path.starts_with(directory)) return false;
  return path.size() == directory.size() || directory.ends_with('/') || path[directory.size()] == '/';
}

// A scratch directory of a session of an earlier version, whose table does not name it.
std::string unnamed_scratch(const session::Session& session, const session::RepoPath& at) {
  const std::string path = session.directory() + "/scratch." + std::to_string(std::hash<std::string>{}(at.text()));
  if (::mkdir(path.c_str(), 0700) == 0) {
    prepare_scratch(path, session.record().options);
  } else if (errno != EEXIST) {
    throw storage::system_error(errno, "create a scratch directory of the session");
  }
  return path;
}

std::shared_ptr<session::EntryFileSystem> own_files(const std::string& path) {
  return std::make_shared<storage::HostDirectory>(
      path, storage::HostDirectory::Options{.is_volatile = false, .durable = false}, "--mount");
}

// The copy that was kept with the session.
std::shared_ptr<session::EntryFileSystem> copied_files(const session::Session& session, const MountEntrySpec& spec) {
  std::shared_ptr<session::EntryFileSystem> files = own_files(session.directory() + "/" + spec.content);
  if (!spec.is_file) return files;
  return std::make_shared<session::SingleFile>(std::move(files), kInjectedFileName);
}

std::string name_of(const MountEntrySpec& spec) { return "--mount " + session::quote_path(spec.path.text()); }

std::string cannot_show(const MountEntrySpec& spec) {
  return "cannot show '" + session::quote_path(spec.directory) + "': ";
}

std::string descriptor_path(const FileDescriptor& descriptor) {
  return "/proc/self/fd/" + std::to_string(descriptor.get());
}

// O_PATH. With a user's rights, the path was allowed as it is written: a link on the way is one that somebody has put
// there since, and what the user may not read is not opened.
FileDescriptor open_as(const MountEntrySpec& spec, const std::optional<CommandSpec::Identity>& rights,
                       const std::string& what) {
  if (!rights) {
    FileDescriptor opened(::open(spec.directory.c_str(), O_PATH | O_CLOEXEC));
    if (!opened) refuse_entry(what, cannot_show(spec) + std::strerror(errno));
    return opened;
  }
  open_how how{};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  FileDescriptor opened(
      static_cast<int>(::syscall(SYS_openat2, AT_FDCWD, spec.directory.c_str(), &how, sizeof how)));
  if (!opened) refuse_entry(what, cannot_show(spec) + std::strerror(errno));
  const UserRights as_user(*rights);
  const FileDescriptor read(::open(descriptor_path(opened).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!read) refuse_entry(what, cannot_show(spec) + std::strerror(errno));
  return opened;
}

std::string path_of_source(const FileDescriptor& source) {
  std::array<char, PATH_MAX> path;
  const ssize_t size = ::readlink(("/proc/self/fd/" + std::to_string(source.get())).c_str(), path.data(), path.size());
  if (size < 0) throw storage::system_error(errno, "find the path of what is injected");
  return {path.data(), static_cast<std::size_t>(size)};
}

void refuse_repository(const MountEntrySpec& spec, const std::string& real, const std::string& git_directory,
                       const std::string& what) {
  if (!is_at_or_below(real, git_directory) && !is_at_or_below(git_directory, real)) return;
  refuse_entry(what, cannot_show(spec) + "the repository '" +
                         session::quote_path(git_directory) +
                         "' is there, and past its policies nobody is to reach it; choose a directory beside it");
}

// A host that waits for its own mount waits for ever, and so do two that wait for one another's.
void refuse_session_mount(const MountEntrySpec& spec, const std::string& path, const std::string& what) {
  const std::optional<SessionHere> mounted = session_at(path);
  if (!mounted) return;
  refuse_entry(what, cannot_show(spec) + "it is in the mount of session " + mounted->id +
                         ", and mounts that show one another would wait for each other; fork that session, or copy "
                         "what is needed");
}

}  // namespace

FileDescriptor open_source(const MountEntrySpec& spec, const std::optional<CommandSpec::Identity>& rights,
                           const std::string& git_directory) {
  const std::string what = name_of(spec);
  FileDescriptor source = open_as(spec, rights, what);
  struct stat about {};
  if (::fstat(source.get(), &about) != 0) throw storage::system_error(errno, "look at what is injected");
  if (!S_ISDIR(about.st_mode) && !S_ISREG(about.st_mode))
    refuse_entry(what, cannot_show(spec) + "it is neither a directory nor a file");
  refuse_repository(spec, path_of_source(source), git_directory, what);
  return source;
}

std::shared_ptr<session::EntryFileSystem> open_host_directory(const MountEntrySpec& spec,
                                                              const std::string& git_directory) {
  const std::optional<CommandSpec::Identity> rights = rights_of_text(spec.rights);
  const std::string what = name_of(spec);
  refuse_session_mount(spec, spec.directory, what);  // before it is touched
  const FileDescriptor opened = rights ? open_as(spec, rights, what) : FileDescriptor();
  const std::string path = rights ? descriptor_path(opened) : spec.directory;
  auto files = std::make_shared<storage::HostDirectory>(path, storage::HostDirectory::Options{}, what);
  refuse_session_mount(spec, files->host_path(), what);
  refuse_repository(spec, files->host_path(), git_directory, what);
  if (!rights) return files;
  return std::make_shared<EntryRights>(std::move(files), *rights);
}

void prepare_scratch(const std::string& path, const session::SessionOptions& options) {
  if (::geteuid() == 0 && ::lchown(path.c_str(), options.uid, options.gid) != 0)
    throw storage::system_error(errno, "give a scratch directory to the session's user");
  if (::chmod(path.c_str(), 0777 & ~options.umask) != 0)
    throw storage::system_error(errno, "set the mode of a scratch directory");
}

std::shared_ptr<session::EntryFileSystem> open_entry(const MountEntrySpec& spec, const session::Session& session,
                                                     const storage::Repository& repository,
                                                     storage::Caches::Place place,
                                                     const std::optional<std::string>& hand,
                                                     const session::EntryFileSystem* before) {
  std::shared_ptr<session::EntryFileSystem> files;
  switch (spec.source) {
    case Source::host_directory:
      files = open_host_directory(spec, repository.git_directory());
      break;
    case Source::scratch:
      files = own_files(spec.content.empty() ? unnamed_scratch(session, spec.path)
                                             : session.directory() + "/" + spec.content);
      break;
    case Source::snapshot:
    case Source::files:
    case Source::revision:
      files = copied_files(session, spec);
      break;
    case Source::cache: {
      const session::SessionOptions options = session.record().options;
      files = repository.caches().open(session.directory(), spec.cache,
                                       {options.uid, options.gid, static_cast<mode_t>(options.umask)}, place, hand);
      break;
    }
  }
  if (!spec.limits.any()) return files;
  if (const auto* const limited = dynamic_cast<const session::LimitedEntry*>(before))
    return std::make_shared<session::LimitedEntry>(std::move(files), *limited);
  return std::make_shared<session::LimitedEntry>(std::move(files), spec.limits, !spec.is_volatile());
}

void leave_other_caches(const session::Session& session, const KeptMounts& mounts,
                        const storage::Repository& repository) {
  std::vector<std::string> names;
  for (const MountEntrySpec& spec : mounts.entries)
    if (!spec.cache.empty()) names.push_back(spec.cache);
  repository.caches().leave_all_but(session.directory(), names);
}

std::vector<MountEntry> open_entries(const session::Session& session, const std::optional<GitTerms>& git,
                                     const storage::Repository& repository, storage::Caches::Place place,
                                     const std::optional<std::string>& hand) {
  remove_unnamed_copies(session.directory());
  std::vector<MountEntry> entries;
  const KeptMounts mounts = kept_mounts(session.directory());
  leave_other_caches(session, mounts, repository);
  for (const MountEntrySpec& spec : mounts.entries)
    entries.push_back({.spec = spec, .files = open_entry(spec, session, repository, place, hand)});
  if (git && git->objects.empty()) entries.push_back(objects_entry(repository));
  return entries;
}

MountEntry objects_entry(const storage::Repository& repository) {
  const std::string objects = objects_directory(repository);
  return {.spec = {.path = session::RepoPath::parse(kObjectsInMount, "--git"), .directory = objects},
          .files = std::make_shared<storage::HostDirectory>(objects, storage::HostDirectory::Options{}, "--git")};
}

std::vector<MountEntrySpec> with_objects(std::vector<MountEntrySpec> specs, const std::optional<GitTerms>& git,
                                         const storage::Repository& repository) {
  if (git && git->objects.empty()) specs.push_back(objects_entry(repository).spec);
  return specs;
}

std::vector<session::MountTable::Entry> table_of(const std::vector<MountEntry>& entries) {
  std::vector<session::MountTable::Entry> table;
  for (const MountEntry& entry : entries)
    table.push_back({entry.spec.path, entry.files, entry.spec.read_only, entry.spec.is_volatile()});
  return table;
}

std::unique_ptr<session::MountTable> make_mount_table(const std::vector<MountEntry>& entries,
                                                      session::FileSystem& repository, session::Session& session) {
  const session::SessionRecord record = session.record();
  return std::make_unique<session::MountTable>(
      repository, [&session](session::NodeId node) { return session.overlay().names(node); }, session.gate(),
      table_of(entries),
      session::MountTable::Owner{record.options.uid, record.options.gid, session::SystemClock().now()});
}

// Each value of each entry ends with NUL, which none of them has.
void note_mounts(const std::string& session_directory, const std::vector<api::MountEntryView>& mounts) {
  const std::string file = session_directory + kNotedMounts;
  if (mounts.empty()) {
    ::unlink(file.c_str());
    return;
  }
  std::string text;
  for (const api::MountEntryView& mount : mounts) {
    for (const std::string& value : {mount.path, mount.source, mount.mode, std::string(mount.hides ? "1" : ""),
                                     std::string(mount.outside_transaction ? "1" : "")})
      text += value + '\0';
  }
  storage::put_file(file, file + ".new", text, 0600);
}

std::vector<api::MountEntryView> noted_mounts(const std::string& session_directory) {
  const std::optional<std::string> text = storage::read_if_there(session_directory + kNotedMounts);
  std::vector<std::string> values;
  for (std::size_t at = 0; text && at < text->size();) {
    values.emplace_back(text->c_str() + at);
    at += values.back().size() + 1;
  }
  std::vector<api::MountEntryView> mounts;
  for (std::size_t at = 0; at + 5 <= values.size(); at += 5) {
    mounts.push_back({.path = values[at],
                      .source = values[at + 1],
                      .mode = values[at + 2],
                      .hides = !values[at + 3].empty(),
                      .outside_transaction = !values[at + 4].empty()});
  }
  return mounts;
}

std::vector<api::MountEntryView> views_of(const std::vector<MountEntrySpec>& specs, session::MountTable* table) {
  std::vector<api::MountEntryView> views;
  for (const MountEntrySpec& spec : specs) {
    if (spec.path.text() == kObjectsInMount) continue;
    views.push_back({.path = spec.path.text(),
                     .source = spec.source_text(),
                     .mode = spec.mode_text(),
                     .hides = table != nullptr && table->hides(spec.path),
                     .outside_transaction = spec.is_volatile() && !spec.read_only});
  }
  return views;
}

std::string outside_sentence(const std::vector<api::MountEntryView>& mounts) {
  std::string paths;
  for (const api::MountEntryView& mount : mounts)
    if (mount.outside_transaction) paths += (paths.empty() ? "" : ", ") + session::quote_path(mount.path);
  if (paths.empty()) return paths;
  return "outside of the session: what was written below " + paths +
         " is in the host's own directory and stays, whatever became of the session";
}

}  // namespace escrow::daemon
