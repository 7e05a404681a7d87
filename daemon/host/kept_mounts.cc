#include "daemon/host/kept_mounts.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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
#include "session/base/still_wanted.h"
#include "session/trees/tree_walk.h"
#include "storage/disk/copy_budget.h"
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
constexpr char kTableName[] = "/mount-table", kCopyPrefix[] = "injected.", kScratchPrefix[] = "scratch-";

// A signal that this process blocks, to end in order, waits until somebody reads it (signalfd(2)). SIGHUP is none: it
// asks escrowd for something else.
bool is_asked_to_end() {
  sigset_t waiting;
  if (::sigpending(&waiting) != 0) return false;
  constexpr std::array kEnding = {SIGINT, SIGTERM, SIGQUIT};
  return std::any_of(kEnding.begin(), kEnding.end(), [&](int number) { return ::sigismember(&waiting, number) == 1; });
}

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
    if (name.starts_with(kCopyPrefix) || name.starts_with(kScratchPrefix)) names.insert(name);
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
  const storage::CopyOptions options = copying_with(rights_of_text(spec.rights));
  storage::CopyBudget budget(options.most_bytes);
  kept.put_tree(repository.objects(), spec.prefix.is_root() ? root : session::tree_of(found),
                repository.objects().read_commit(*commit).committer.time_s, budget);
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
    if (!spec.rights.empty()) entry.text("rights", spec.rights);
    entries.push_back(std::move(entry));
  }
  return api::JsonObject().objects("entries", std::move(entries)).text();
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

void change_mounts(KeptMounts& mounts, const api::MountsRequest& request) {
  const auto remove = [&mounts](const session::RepoPath& path) {
    return std::erase_if(mounts.entries, [&](const MountEntrySpec& there) { return there.path == path; }) != 0;
  };
  if (request.verb == api::MountsVerb::remove) {
    const session::RepoPath path = session::RepoPath::parse(request.path, "the path of the entry");
    if (!remove(path))
      throw Error(Errc::not_found, "the mount table has no entry at '" + session::quote_path(path.text()) + "'");
    return;
  }
  MountEntrySpec spec = mount_entry_of_document(request.entry, "the entry");
  spec.rights = request.rights;
  if (remove(spec.path) && request.verb == api::MountsVerb::add) {
    throw Error(Errc::exists, "the mount table has an entry at '" + session::quote_path(spec.path.text()) +
                                  "' already; replace it, or remove it first");
  }
  mounts.entries.push_back(std::move(spec));
  check_mount_entries(mounts.entries, "the mount table");
}

namespace {

// `path`: an empty directory of the session's.
void fill(MountEntrySpec& spec, const std::string& path, const session::SessionOptions& options,
          storage::Repository& repository) {
  const FileDescriptor to = open_directory(path);
  const std::function<bool()> is_wanted = [] { return !is_asked_to_end(); };
  const session::WantedWhile wanted(is_wanted);
  if (spec.source == Source::files) {
    KeptFiles(to.get(), options).put_files(spec.files);
    spec.files.clear();
  } else if (spec.source == Source::revision) {
    copy_revision(spec, KeptFiles(to.get(), options), repository);
  } else {
    copy_source(spec, to.get(), rights_of_text(spec.rights), repository.git_directory());
  }
}

void remove_copies(const std::string& session_directory, const std::set<std::string>& names) {
  for (const std::string& name : names) remove_copy(session_directory, name);
}

}  // namespace

void remove_unnamed_copies(const std::string& session_directory) {
  std::set<std::string> unnamed = copies_in(session_directory);
  if (unnamed.empty()) return;
  const KeptMounts mounts = kept_mounts(session_directory);
  for (const MountEntrySpec& spec : mounts.entries) unnamed.erase(spec.content);
  remove_copies(session_directory, unnamed);
}

KeptMounts keep_mounts(const std::string& session_directory, KeptMounts mounts, const session::SessionOptions& options,
                       storage::Repository& repository, const std::set<std::string>& in_use) {
  std::set<std::string> unnamed = copies_in(session_directory);
  for (const MountEntrySpec& spec : mounts.entries) unnamed.erase(spec.content);
  for (const std::string& name : in_use) unnamed.erase(name);
  std::uint64_t next = 0;
  const auto fresh_name = [&](const std::string& prefix) {
    while (std::filesystem::exists(session_directory + "/" + prefix + std::to_string(next))) ++next;
    return prefix + std::to_string(next);
  };
  bool has_new = false;
  std::set<std::string> made;
  try {
    for (MountEntrySpec& spec : mounts.entries) {
      if (spec.source == Source::host_directory) open_host_directory(spec, repository.git_directory());
      const bool is_scratch = spec.source == Source::scratch;
      if ((!spec.is_copy() && !is_scratch) || !spec.content.empty()) continue;
      spec.content = fresh_name(is_scratch ? kScratchPrefix : kCopyPrefix);
      const std::string path = session_directory + "/" + spec.content;
      if (::mkdir(path.c_str(), 0700) != 0) throw storage::system_error(errno, "keep an entry of the mount table");
      made.insert(spec.content);
      if (is_scratch) {
        prepare_scratch(path, options);
      } else {
        fill(spec, path, options, repository);
        has_new = true;
      }
    }
  } catch (...) {
    remove_copies(session_directory, made);
    throw;
  }
  // A run's session does not outlive its host, so neither has its table to.
  if (has_new && !options.ephemeral) storage::sync_file_system(session_directory);
  const std::string file = session_directory + kTableName;
  storage::put_file(file, file + ".new", text_of(mounts), 0600);
  if (!options.ephemeral) storage::sync_directory(session_directory);
  remove_copies(session_directory, unnamed);
  return mounts;
}

void inherit_mounts(const std::string& parent_directory, const std::string& fork_directory,
                    const session::SessionOptions& options, storage::Repository& repository) {
  if (const std::optional<GitTerms> git = noted_git_terms(parent_directory)) note_git_terms(fork_directory, *git);
  KeptMounts mounts = kept_mounts(parent_directory);
  if (mounts.entries.empty()) return;
  for (const MountEntrySpec& spec : mounts.entries) {
    if (spec.content.empty()) continue;
    const std::string path = fork_directory + "/" + spec.content;
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
      throw storage::system_error(errno, "keep what is injected");
    storage::copy_tree(open_directory(parent_directory + "/" + spec.content).get(), open_directory(path).get(),
                       copying_with(std::nullopt));
  }
  storage::sync_file_system(fork_directory);
  keep_mounts(fork_directory, std::move(mounts), options, repository);
}

std::function<void(const std::string& directory)> preparation_of(const SessionRequest& request,
                                                                 const std::optional<GitTerms>& git,
                                                                 const session::SessionOptions& options,
                                                                 storage::Repository& repository) {
  if (request.mounts.specs.empty() && !git) return {};
  return [&](const std::string& directory) {
    if (git) note_git_terms(directory, *git);
    if (request.mounts.specs.empty()) return;
    KeptMounts mounts{request.mounts.specs};
    for (MountEntrySpec& spec : mounts.entries) spec.rights = request.mount_rights;
    keep_mounts(directory, mounts, options, repository);
  };
}

KeptMounts kept_mounts(const std::string& session_directory) try {
  KeptMounts mounts;
  const std::optional<std::string> text = storage::read_if_there(session_directory + kTableName);
  if (!text) return mounts;
  api::RequestFields fields(*text, "the session's mount table");
  const std::string rights_of_all = fields.text("rights").value_or("");  // of a session of an earlier version
  for (const std::string& document : fields.documents("entries")) {
    api::RequestFields kept(document, "the session's mount table");
    const std::vector<std::string> entry = kept.documents("entry");
    if (entry.size() != 1) kept.refuse("entry", "is not one entry");
    MountEntrySpec spec = mount_entry_of_document(entry.front(), "the session's mount table");
    spec.content = kept.text("content").value_or("");
    spec.is_file = kept.flag("is_file").value_or(false);
    spec.rights = kept.text("rights").value_or(rights_of_all);
    mounts.entries.push_back(std::move(spec));
  }
  return mounts;
} catch (const api::Problem& problem) {
  throw Error(Errc::damaged_repository, problem.what());
}

}  // namespace escrow::daemon
