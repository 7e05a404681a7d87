// The entries of a session's mount table beside the repository, from the table that is kept with the session
// (kept_mounts.h) to what SessionStack shows. Functions; throw Error{bad_request} that names the entry.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/mount_view.h"
#include "daemon/host/kept_mounts.h"
#include "daemon/host/session_git.h"
#include "daemon/process/file_descriptor.h"
#include "session/decorators/mount_table.h"
#include "session/transaction/session.h"
#include "storage/caches/caches.h"

namespace escrow::daemon {

// In the directory of a copy that is one file.
inline constexpr char kInjectedFileName[] = "file";

// An entry whose source is open.
struct MountEntry {
  MountEntrySpec spec;
  std::shared_ptr<session::EntryFileSystem> files{};
};
// A directory that holds the repository, or lies in it, is refused, and so is what `rights` may not read. O_PATH.
FileDescriptor open_source(const MountEntrySpec& spec, const std::optional<CommandSpec::Identity>& rights,
                           const std::string& git_directory);
std::shared_ptr<session::EntryFileSystem> open_host_directory(const MountEntrySpec& spec,
                                                              const std::string& git_directory);
// Gives an empty directory to the session's user.
void prepare_scratch(const std::string& path, const session::SessionOptions& options);
// Opens what an entry of the session's kept table shows. Caches are opened for the session, which is mounted at
// `place`, and for `hand`: see Caches::open(). `before`: what the entry shows now, with which it
// shares its limits; null: nothing.
std::shared_ptr<session::EntryFileSystem> open_entry(const MountEntrySpec& spec, const session::Session& session,
                                                     const storage::Repository& repository,
                                                     storage::Caches::Place place,
                                                     const std::optional<std::string>& hand,
                                                     const session::EntryFileSystem* before = nullptr);
// Caches that the session had and that are not in this table are free for sessions at other places.
void leave_other_caches(const session::Session& session, const KeptMounts& mounts,
                        const storage::Repository& repository);
// All that a session has that is about to be mounted; copies that none of it names go. With `git`, the objects of its
// repository where their users see them in no other way.
std::vector<MountEntry> open_entries(const session::Session& session, const std::optional<GitTerms>& git,
                                     const storage::Repository& repository, storage::Caches::Place place,
                                     const std::optional<std::string>& hand);

// The objects of a repository, read-only, for the .git of a session whose users see this machine's files in no other
// way (session_git.h); lists of mounts do not name it.
MountEntry objects_entry(const storage::Repository& repository);
// The table of a session with these terms: where that is so, it has that entry, too.
std::vector<MountEntrySpec> with_objects(std::vector<MountEntrySpec> specs, const std::optional<GitTerms>& git,
                                         const storage::Repository& repository);

std::vector<session::MountTable::Entry> table_of(const std::vector<MountEntry>& entries);
// The table of these entries, over the session's files and `repository`, which is what guards them. Both must outlive
// it.
std::unique_ptr<session::MountTable> make_mount_table(const std::vector<MountEntry>& entries,
                                                      session::FileSystem& repository, session::Session& session);

// What a session that is mounted shows, for other processes: a file in its directory. Throw Error{input_output}.
void note_mounts(const std::string& session_directory, const std::vector<api::MountEntryView>& mounts);
std::vector<api::MountEntryView> noted_mounts(const std::string& session_directory);

// `table`: null where the session is not mounted.
std::vector<api::MountEntryView> views_of(const std::vector<MountEntrySpec>& specs, session::MountTable* table);
// One sentence on what a run wrote for good, whatever became of its session; empty: nothing.
std::string outside_sentence(const std::vector<api::MountEntryView>& mounts);

}  // namespace escrow::daemon
