// The mount table of a session, kept in the session's directory, so that whoever mounts the session again finds it: the
// entries, and a copy of what is injected, as it was when its entry was added.
//
// keep_mounts() makes the copies, syncs them, and then replaces the table's file whole: at any kill the session has
// either table, with everything that it names. Copies that no table names are removed by the next call. For the one
// process that holds the session's lock. Throws Error{bad_request} for a source that cannot be shown, and what
// copy_tree.h throws.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api/protocol.h"
#include "daemon/host/mount_entry_spec.h"
#include "daemon/host/session_git.h"
#include "daemon/host/session_request.h"
#include "daemon/process/command_spec.h"
#include "session/interfaces/session_record.h"
#include "storage/repository/repository.h"

namespace escrow::daemon {

struct KeptMounts {
  std::vector<MountEntrySpec> entries;
};

// "UID:GID:GROUP,GROUP", and back; empty: nullopt.
std::string text_of_rights(const CommandSpec::Identity& rights);
std::optional<CommandSpec::Identity> rights_of_text(const std::string& text);

// An entry at the path of one that is there takes its place. Throws Error{bad_request} as check_mount_entries().
void add_mounts(KeptMounts& mounts, const std::vector<MountEntrySpec>& more);
// The same for what a request asks for. Throws Error{exists}, Error{not_found}, too.
void change_mounts(KeptMounts& mounts, const api::MountsRequest& request);

// Makes `mounts` the whole table, and returns it with the names of its copies. Entries that have a copy already keep
// it. `options` of the session: who owns files that were sent, or come from a revision. Copies that are `in_use` stay.
KeptMounts keep_mounts(const std::string& session_directory, KeptMounts mounts, const session::SessionOptions& options,
                       storage::Repository& repository, const std::set<std::string>& in_use = {});
// Of a session that is mounted nowhere: what is left of entries that it had.
void remove_unnamed_copies(const std::string& session_directory);
// No file: no entries.
KeptMounts kept_mounts(const std::string& session_directory);

// A fork has the table of the session that it is a fork of, with copies of what is injected there, and its .git terms.
void inherit_mounts(const std::string& parent_directory, const std::string& fork_directory,
                    const session::SessionOptions& options, storage::Repository& repository);

// For SessionManager::open(): keeps the request's mount table, and whether it has a .git, with the session; empty where
// it has neither. The references must outlive it.
std::function<void(const std::string& directory)> preparation_of(const SessionRequest& request,
                                                                 const std::optional<GitTerms>& git,
                                                                 const session::SessionOptions& options,
                                                                 storage::Repository& repository);

}  // namespace escrow::daemon
