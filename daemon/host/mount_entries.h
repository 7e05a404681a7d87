// The entries of a session's mount table beside the repository, from `--mount` to what SessionStack shows.
//
// The notation is docker's: path=P,source=host:DIR,mode=read-write, with the aliases that docker has. Functions; throw
// Error{bad_request} that begins with `what`, the option.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/mount_view.h"
#include "daemon/host/session_git.h"
#include "daemon/process/file_descriptor.h"
#include "session/decorators/mount_table.h"
#include "session/transaction/session.h"
#include "storage/caches/caches.h"

namespace escrow::daemon {

struct MountEntrySpec {
  // snapshot: a copy of a host directory or file, made when the session is mounted, of the session's own.
  // cache: what the last session that was committed left of it (storage/caches).
  enum class Source { host_directory, scratch, snapshot, cache };
  session::RepoPath path;  // below the mount's root
  Source source = Source::host_directory;
  std::string directory;  // absolute; of a host directory and a snapshot, of which it can be a file
  std::string cache;      // its name
  bool read_only = true;

  bool is_volatile() const { return source == Source::host_directory; }
};

MountEntrySpec parse_mount_entry(std::string_view text, std::string_view what);
// A table as the command line gives it.
struct MountEntryTexts {
  std::vector<std::string> mounts;      // --mount
  std::vector<std::string> injections;  // --inject: "PATH=DIR|FILE[,mode=overlay]"
  std::vector<std::string> caches;      // --cache: "PATH[=NAME]"
  bool empty() const { return mounts.empty() && injections.empty() && caches.empty(); }
};
// None in or at another, and no cache twice.
std::vector<MountEntrySpec> parse_mount_entries(const MountEntryTexts& texts);

// An entry whose source is open; scratch directories and copies come to be with their session.
struct MountEntry {
  MountEntrySpec spec;
  std::shared_ptr<session::EntryFileSystem> files{};  // of a host directory
  std::shared_ptr<const FileDescriptor> source{};     // of a snapshot
};
// Before the session is opened. A directory that holds the repository, or lies in it, is refused.
std::vector<MountEntry> open_mount_entries(const std::vector<MountEntrySpec>& specs, const std::string& git_directory);

// The objects of a repository, a directory, read-only, for the .git of a session (session_git.h); lists of mounts do not name it.
MountEntry objects_entry(const std::string& objects);
// What that adds to the mount table of a session with these terms.
std::vector<MountEntrySpec> specs_of_git(const std::optional<GitTerms>& git, const std::string& git_directory);

// The table of these entries, over the session's files and `repository`, which is what guards them; null without any.
// Makes the scratch directories and the copies, and opens the caches. All must outlive it.
std::unique_ptr<session::MountTable> make_mount_table(const std::vector<MountEntry>& entries,
                                                      session::FileSystem& repository, session::Session& session,
                                                      const storage::Caches& caches);

// What a session that is mounted shows, for other processes: a file in its directory. Throw Error{input_output}.
void note_mounts(const std::string& session_directory, const std::vector<api::MountEntryView>& mounts);
std::vector<api::MountEntryView> noted_mounts(const std::string& session_directory);

std::vector<api::MountEntryView> views_of(const std::vector<MountEntry>& entries, session::MountTable* table);
// One sentence on what a run wrote for good, whatever became of its session; empty: nothing.
std::string outside_sentence(const std::vector<api::MountEntryView>& mounts);

}  // namespace escrow::daemon
