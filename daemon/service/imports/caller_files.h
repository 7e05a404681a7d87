// What a caller of escrowd may read of this machine: the directories below the configuration's source_roots, as far as
// they could read them themselves.
//
// The service may read everything, its callers may not, so each file is opened with the rights of the caller: user,
// group and further groups of the process that connected, as the kernel has them, so that one that has given a group up
// cannot use it here, and one that was given one can. A token proves no process: its user has the groups of the user
// database. Root reads without capabilities, unless it has all that the service has (local_peer.h); the service's own
// user reads what the service reads.
// What lies below a root by a hard link, or by mistake, is no more theirs than before. The root itself is the
// administrator's word: whether the caller could have come that far by themselves is not asked. Not thread-safe: made
// and used by one thread, which goes on as itself but for the opening. Throws api::Problem{forbidden}, {invalid_value},
// {body_too_large}, and what directory_walk.h throws.
// Sources: unix(7), setfsuid(2), setfsgid(2), capset(2), credentials(7), openat2(2).
#pragma once

#include <cstdint>
#include <string>

#include "daemon/import/allowed_roots.h"
#include "daemon/import/directory_walk.h"
#include "daemon/process/command_spec.h"
#include "daemon/service/caller.h"
#include "session/interfaces/object_store.h"
#include "session/overlay/overlay.h"

namespace escrow::daemon {

// The user, group and further groups that a caller reads with.
CommandSpec::Identity identity_of(const Caller& caller);
// Whether these are this process's own rights, so that nothing has to be given up.
bool reads_as_we_do(const Caller& caller);

class CallerFiles {
 public:
  // Empty, or what keeps this process from reading as other users, and what to do: a sentence without its end.
  static std::string why_only_own();

  // `path` is a root or below one; `field` is the request's, for messages.
  CallerFiles(const AllowedRoots& roots, const Caller& caller, const std::string& path, const std::string& field);

  // The directory as a git tree, `skipped` (the repository itself) left out. At most `most_bytes` of contents, and 4
  // million entries. Once.
  session::BuiltTree read(session::Quarantine& quarantine, const std::string& skipped, std::uint64_t most_bytes,
                          ImportFilter filter);

 private:
  FileDescriptor open_as_caller(int directory, const std::string& name, int flags) const;

  const CommandSpec::Identity caller_;
  const bool is_as_we_are_;
  FileDescriptor directory_;
};

}  // namespace escrow::daemon
