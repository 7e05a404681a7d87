#include "daemon/host/kept_mounts.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <functional>
#include <set>
#include <utility>

#include "api/json_document.h"
#include "api/problem.h"
#include "api/request_fields.h"
#include "daemon/host/kept_files.h"
#include "daemon/host/mount_entries.h"
#include "daemon/process/user_rights.h"
#include "session/base/error.h"
#include "session/trees/tree_walk.h"
#include "storage/disk/copy_tree.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/remove_tree.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;
using Source = MountEntrySpec::Source;

namespace {

// Of what somebody else than this process's user has copied to its disk, uncounted by any limit.
constexpr std::uint64_t kMostCopied_bytes = std::uint64_t{4} << 30;
constexpr char kTableName[] = "/mount-table", kCopyPrefix[] = "injected.";

// What is opened of the source is opened with the rights; what is made is made with this process's own.
storage::CopyOptions copying_with(const std::optional<CommandSpec::Identity>& rights) {
  if (!rights) return {};
  const auto access = [&rights](const std::function<void()>& open) {
    int error = 0;
    {
      const UserRights as_user(*rights);
      open();
      error = errno;
    }
    errno = error;
  };
  return {.access = access, .most_bytes = kMostCopied_bytes};
}

std::set<std::string> copies_in(const std::string& session_directory) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(session_directory)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kCopyPrefix)) names.insert(name);
  }
  return names;
}

void remove_copy(const std::string& session_directory, const std::string& name) {
  const std::string path = session_directory + "/" + name;
  storage::remove_inside(path, {});
  ::rmdir(path.c_str());
}

FileDescriptor open_directory(const std::string& path) {
  FileDescriptor opened(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened) throw storage::system_error(errno, "open what is injected");
  return opened;
}

void copy_revision(MountEntrySpec& spec, const KeptFiles& kept, storage::Repository& repository) {
  const std::string what = "--mount " + session::quote_path(spec.path.text());
  std::optional<session::ObjectId> commit = session::ObjectId::from_hex(spec.revision);
  if (commit && !repository.objects().contains(*commit)) commit.reset();
  if (!commit) commit = repository.references().head(spec.revision);
  if (!commit)
    throw Error(Errc::no_branch, what + ": the repository has neither a branch '" + spec.revision +
                                     "' nor a commit with this id");
  const session::TreeRoot root = session::tree_of_commit(repository.objects(), commit);
  const std::optional<session::TreeEntry> found = session::entry_at(repository.objects(), root, spec.prefix);
  if (!spec.prefix.is_root() && !found)
    throw Error(Errc::bad_request, what + ": '" + session::quote_path(spec.prefix.text()) + "' is not in " +
                                       spec.revision);
  if (!spec.prefix.is_root() && found->mode != session::GitMode::tree)
    throw Error(Errc::bad_request, what + ": '" + session::quote_path(spec.prefix.text()) + "' is no directory in " +
                                       spec.revision);
  // Which commit it was is kept, so that whoever looks is told what is shown.
  spec.revision = commit->hex();
  kept.put_tree(repository.objects(), spec.prefix.is_root() ? root : session::tree_of(found),
                repository.objects().read_commit(*commit).committer.time_s);
}

void copy_source(MountEntrySpec& spec, int to, const std::optional<CommandSpec::Identity>& rights,
                 const std::string& git_directory) {
  const FileDescriptor source = open_source(spec, rights, git_directory);
  struct stat about {};
  if (::fstat(source.get(), &about) != 0) throw storage::system_error(errno, "copy what is injected");
  spec.is_file = !S_ISDIR(about.st_mode);
  if (spec.is_file) return storage::copy_file(source.get(), to, kInjectedFileName, true, copying_with(rights));
  storage::copy_tree(source.get(), to, copying_with(rights));
}

std::string text_of(const KeptMounts& mounts) {
  std::vector<api::JsonObject> entries;
  for (const MountEntrySpec& spec : mounts.entries) {
    api::JsonObject entry;
    entry.documents("entry", {document_of(spec)}).flag("is_file", spec.is_file);
    if (!spec.content.empty()) entry.text("content", spec.content);
    entries.push_back(std::move(entry));
  }
  api::JsonObject table;
  if (mounts.rights) table.text("rights", text_of_rights(*mounts.rights));
  return table.objects("entries", std::move(entries)).text();
}

template <typename Number>
void take_number(std::string_view& text, Number& into) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into);
  if (error != std::errc()) throw Error(Errc::bad_request, "these are no rights of a mount table");
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (!text.empty()) text.remove_prefix(1);
}

}  // namespace

std::string text_of_rights(const CommandSpec::Identity& rights) {
  std::string text = std::to_string(rights.uid) + ":" + std::to_string(rights.gid) + ":";
  for (std::size_t at = 0; at < rights.groups.size(); ++at)
    text += (at == 0 ? "" : ",") + std::to_string(rights.groups[at]);
  return text;
}

std::optional<CommandSpec::Identity> rights_of_text(const std::string& text) {
  if (text.empty()) return std::nullopt;
  CommandSpec::Identity rights;
  std::string_view left = text;
  take_number(left, rights.uid);
  take_number(left, rights.gid);
  while (!left.empty()) take_number(left, rights.groups.emplace_back());
  return rights;
}

void add_mounts(KeptMounts& mounts, const std::vector<MountEntrySpec>& more) {
  for (const MountEntrySpec& spec : more) {
    std::erase_if(mounts.entries, [&](const MountEntrySpec& there) { return there.path == spec.path; });
    mounts.entries.push_back(spec);
  }
  check_mount_entries(mounts.entries, "the mount table");
}

void keep_mounts(const std::string& session_directory, KeptMounts mounts, const session::SessionOptions& options,
                 storage::Repository& repository) {
  std::set<std::string> unnamed = copies_in(session_directory);
  for (const MountEntrySpec& spec : mounts.entries) unnamed.erase(spec.content);
  std::uint64_t next = 0;
  const auto fresh_name = [&] {
    while (std::filesystem::exists(session_directory + "/" + kCopyPrefix + std::to_string(next))) ++next;
    return kCopyPrefix + std::to_string(next);
  };
  bool has_new = false;
  for (MountEntrySpec& spec : mounts.entries) {
    if (spec.source == Source::host_directory) open_host_directory(spec, mounts.rights, repository.git_directory());
    if (!spec.is_copy() || !spec.content.empty()) continue;
    spec.content = fresh_name();
    const std::string path = session_directory + "/" + spec.content;
    if (::mkdir(path.c_str(), 0700) != 0) throw storage::system_error(errno, "keep what is injected");
    const FileDescriptor to = open_directory(path);
    if (spec.source == Source::files) {
      KeptFiles(to.get(), options).put_files(spec.files);
      spec.files.clear();
    } else if (spec.source == Source::revision) {
      copy_revision(spec, KeptFiles(to.get(), options), repository);
    } else {
      copy_source(spec, to.get(), mounts.rights, repository.git_directory());
    }
    has_new = true;
  }
  // A run's session does not outlive its host, so neither has its table to.
  if (has_new && !options.ephemeral) storage::sync_file_system(session_directory);
  const std::string file = session_directory + kTableName;
  storage::put_file(file, file + ".new", text_of(mounts), 0600);
  if (!options.ephemeral) storage::sync_directory(session_directory);
  for (const std::string& name : unnamed) remove_copy(session_directory, name);
}

std::function<void(const std::string& directory)> preparation_of(const SessionRequest& request,
                                                                 const std::optional<GitTerms>& git,
                                                                 const session::SessionOptions& options,
                                                                 storage::Repository& repository) {
  if (request.mounts.specs.empty() && !git) return {};
  return [&](const std::string& directory) {
    if (git) note_git_terms(directory, *git);
    if (request.mounts.specs.empty()) return;
    keep_mounts(directory, {request.mounts.specs, rights_of_text(request.mount_rights)}, options, repository);
  };
}

KeptMounts kept_mounts(const std::string& session_directory) try {
  KeptMounts mounts;
  const std::optional<std::string> text = storage::read_if_there(session_directory + kTableName);
  if (!text) return mounts;
  api::RequestFields fields(*text, "the session's mount table");
  mounts.rights = rights_of_text(fields.text("rights").value_or(""));
  for (const std::string& document : fields.documents("entries")) {
    api::RequestFields kept(document, "the session's mount table");
    const std::vector<std::string> entry = kept.documents("entry");
    if (entry.size() != 1) kept.refuse("entry", "is not one entry");
    MountEntrySpec spec = mount_entry_of_document(entry.front(), "the session's mount table");
    spec.content = kept.text("content").value_or("");
    spec.is_file = kept.flag("is_file").value_or(false);
    mounts.entries.push_back(std::move(spec));
  }
  return mounts;
} catch (const api::Problem& problem) {
  throw Error(Errc::damaged_repository, problem.what());
}

}  // namespace escrow::daemon
