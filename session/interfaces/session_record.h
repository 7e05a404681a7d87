// What Escrow knows of a session: plain values, kept in the repository's catalog and shown to people.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "session/base/branch_rule.h"
#include "session/base/change_counts.h"
#include "session/base/clock.h"
#include "session/base/ids.h"
#include "session/base/repo_path.h"
#include "session/base/unresolved.h"

namespace escrow::session {

// The state machine of INVARIANTS.md. committed, commit_failed and rolled_back are final.
enum class State { open, awaiting_approval, committing, committed, commit_failed, rolled_back };

// Derived, never stored: `mounted` while a host process holds the session's lock, `lost` when the catalog names a
// mountpoint but nobody holds the lock.
enum class Attachment { none, mounted, lost };

// Why a session is in its state. `none` while it is open or waits.
enum class Reason {
  none,
  success,       // exit status 0, or a commit by hand
  no_changes,    // committed without a commit
  conflict,
  exit_status,   // non-zero
  signal,        // the command died of one
  cancelled,     // SIGINT or SIGTERM to the run, or a request
  timed_out,
  oom,           // the kernel killed in it: the memory it may use was used up
  not_started,   // the command could not be run
  requested,     // rollback by hand
  host_lost,     // the host process of a run died; recovery rolled back
  rejected,      // by a reviewer
  expired,       // nobody approved it in time
  lease_expired,  // who had opened it did not renew its lease
};

// What others may have committed meanwhile for a session to be committed.
enum class Isolation {
  snapshot,      // anything, but to the paths that it changed
  serializable,  // nothing that it read, listed or found absent, either
};

const char* name_of(Isolation isolation);
std::optional<Isolation> isolation_from_name(std::string_view name);

const char* name_of(State state);
const char* name_of(Attachment attachment);
const char* name_of(Reason reason);
bool is_final(State state);
std::optional<State> state_from_name(std::string_view name);
std::optional<Reason> reason_from_name(std::string_view name);

// Who and why (T11). Values hold no control characters: check_audit_value() refuses them.
struct Audit {
  std::string committer;   // "user:alice", "agent:x" or "role:y"
  std::string issuer;
  std::string source;      // "sandbox", "manual" or "import"; set by Escrow
  std::string image;
  std::string trigger;
  std::string trigger_id;
  // Author and committer of the commit, as git has them; both empty: the principal in `committer`.
  std::string author_name{}, author_email{};
};

// The container in which a session's work ran. Escrow learns it when the work ends. An empty member leaves that field
// of the audit record as it was when the session was opened.
struct Container {
  std::string image, trigger_id;
};
// Throws Error{bad_request} as check_audit_value() does.
void note_container(Audit& audit, const Container& container);

// Throws Error{bad_request} naming `what` when `value` has a control character or a newline or is over 1,024 bytes.
void check_audit_value(std::string_view value, std::string_view what);
// Throws Error{bad_request} unless `principal` is "user:NAME", "agent:NAME" or "role:NAME".
void check_principal(std::string_view principal, std::string_view what);

// Of what a session stages; 0: no limit. A call that would go beyond fails with EDQUOT.
struct SessionLimits {
  std::uint64_t staged_bytes = 0;
  std::uint64_t files = 0;  // of any kind, directories too, that the session has made and not removed
};

// What a session was opened with; never changes.
struct SessionOptions {
  std::string branch;
  RepoPath prefix;
  Audit audit;
  std::uint32_t uid = 0;         // owner of what the repository holds
  std::uint32_t gid = 0;
  std::uint32_t umask = 022;     // applied to the modes the repository's entries show
  bool read_only = false;        // every mutating call fails with EROFS
  bool ephemeral = false;        // belongs to a run: when its host dies, recovery rolls it back
  bool keep_on_failure = false;  // a failed run keeps its result under refs/sessions/<id>
  std::vector<std::string> excludes;  // gitignore-style patterns of --exclude
  bool include_ignored = false;  // what git would not add is committed, too
  std::vector<std::string> policies;  // JSON documents, as given; each can only narrow what the others allow
  bool contained_symlinks = false;    // a link that leads out of the mount cannot be read
  bool shows_lfs_pointers = false;    // instead of the objects of Git LFS that they name
  // Success leads to awaiting_approval, not to a commit. A rule of the branch can turn it on, nothing off.
  bool require_approval = false;
  std::int64_t approval_expires_s = 0;  // after this time unapproved it is rolled back; 0: never
  SessionLimits limits;
  Isolation isolation = Isolation::snapshot;
  std::vector<std::string> command;   // of a run, with its arguments; for the audit record
};

// Makes the options at least as strict as the rule: of two expiries the shorter one.
void strengthen(SessionOptions& options, const BranchRule& rule);

struct SessionRecord {
  SessionId id;
  SessionOptions options{};
  State state = State::open;
  Reason reason = Reason::none;
  std::optional<ObjectId> base{};         // nullopt: the branch did not exist
  std::optional<ObjectId> updating_to{};  // of an update under way: the base to be; the overlay is between the two
  bool updating_keeps = false;            // it leaves paths that conflict as they are, unresolved
  std::optional<ObjectId> commit{};       // the branch's new head, once committed with changes
  std::optional<ObjectId> swap_from{};    // while committing: the head the commit was made on
  std::optional<ObjectId> swap_to{};      // while committing: the commit that is to become the head
  std::optional<int> exit_code{};
  std::string message{};                  // the commit message asked for, empty: the default
  std::string mountpoint{};               // empty: not mounted
  std::string last_error{};               // of the last commit that failed for another reason than a conflict
  std::vector<std::string> conflicts{};   // paths, of commit_failed
  std::vector<Unresolved> unresolved{};   // paths that keep an open session from being committed
  std::optional<SessionId> resumes{};     // the session whose result this one was opened with
  std::optional<SessionId> parent{};      // of a fork: the session that it began as, and is committed into
  // Of the newest change in what it was opened over (change_times.h): an update leaves it. nullopt: opened without an
  // index, or by an older Escrow.
  std::optional<Timestamp> base_time{};
  // The sealed result that awaits, or awaited, approval: a commit whose parent is the base, or a later head that it was
  // reconciled with. Only sessions that were sealed have one.
  std::optional<ObjectId> result{};
  std::optional<Timestamp> expires{};     // when a result that nobody approved is rolled back
  std::string reviewer{};                 // who approved or rejected
  std::string review_comment{};
  std::string reads{};                    // serializable: "sha256:..." of what was read, once a commit was tried
  std::optional<ChangeCounts> counts{};   // of the commit or the sealed result; nullopt: it never was counted
  Timestamp created{};
  Timestamp changed{};                    // of the last transition
};

}  // namespace escrow::session
