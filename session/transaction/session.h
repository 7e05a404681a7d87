// One open session in the process that hosts it: its overlay, its state, and what can become of it.
//
// Thread-safe: verbs (commit, rollback, discard, update, changes) exclude one another; the file system is used
// concurrently. The session's directory lock is held for the object's life. Destroying a session leaves it open and
// detached, with everything staged in the journal. States and their transitions: INVARIANTS.md.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "session/decorators/write_gate.h"
#include "session/interfaces/change_times.h"
#include "session/interfaces/session_catalog.h"
#include "session/interfaces/session_directory.h"
#include "session/overlay/overlay.h"
#include "session/transaction/kept_commits.h"
#include "session/trees/reconcile.h"
#include "session/trees/tree_changes.h"

namespace escrow::session {

// The numbered steps of the durable order (design, section 5). An observer is told after each; crash tests stop there.
enum class CommitStep {
  sealed_tree_built = 1,   // the session's tree and every new object are in the quarantine
  objects_durable = 2,     // published and fsynced
  intent_recorded = 3,     // catalog row `committing` with {branch, H, C}
  branch_moved = 4,        // compare-and-swap from H to C
  outcome_recorded = 5,    // catalog row `committed`
  cleaned_up = 6,          // pins, quarantine and staging removed
  // Of a session that requires approval, instead of 3 to 5:
  result_referenced = 7,   // refs/sessions/<id> is the sealed result
  approval_awaited = 8,    // catalog row `awaiting_approval`
  // Of a fork, before 5 and 6, instead of 1 to 4:
  landing_begun = 9,       // what the parent was is sealed
  landing_applied = 10,    // the parent has the fork's changes, on disk
};

class CommitChains;
class ParentSessions;
class ReadRecorder;

class CommitObserver {
 public:
  virtual ~CommitObserver() = default;
  virtual void reached(CommitStep step) = 0;
};

// What the core works with; all outlive every session.
struct Services {
  const ObjectReader& objects;
  ReferenceStore& references;
  SessionCatalog& catalog;
  SessionDirectories& directories;
  Clock& clock;
  Log& log;
  CommitObserver* observer = nullptr;
  ChangeTimes* times = nullptr;    // null: all that a session is opened over has one time
  CommitChains* chains = nullptr;  // null: each commit of this process finds its own way to the branch
  ParentSessions* parents = nullptr;  // null: no fork can be committed
  // The objects, where the size and the bytes of a blob that is a pointer of Git LFS are those of the object that it
  // names; null: there are none.
  const ObjectReader* files = nullptr;
};

struct CommitRequest {
  std::string message;            // empty: a default that names the session and counts the changes
  std::optional<int> exit_code;   // of the command, for the audit record
  Reason reason = Reason::success;
  bool by_hand = false;           // a conflict leaves the session open instead of commit_failed
  std::string who;                // for the history
  bool include_ignored = false;   // as if the session had been opened so
  // Asked once nobody changes the session: commits made in it that are to stay commits of their own. None: one commit.
  std::function<CommitsInside()> inside{};
};

struct Committed {
  ObjectId commit;
  ChangeCounts counts;
  std::string squashed{};  // why commits that were to stay commits of their own are one; empty: they are not
};
struct NothingToCommit {};
// Of a session that requires approval: sealed, and nothing of it is in the branch. Of an approval: others moved the
// branch, and `result` is what would be committed on its new head.
struct AwaitingApproval {
  ObjectId result;
  ChangeCounts counts;
  std::optional<Timestamp> expires;
  std::string squashed{};
};
// Of a fork: its parent has what it changed. `counts` are against what it began as.
struct Landed {
  SessionId parent;
  ChangeCounts counts;
};
using CommitOutcome = std::variant<Committed, NothingToCommit, Conflicts, AwaitingApproval, Landed>;

// The way from a fork to whoever holds its parent.
class ParentSessions {
 public:
  virtual ~ParentSessions() = default;
  // Session::land(), there.
  virtual CommitOutcome land(const SessionId& parent, const SessionId& fork, const CommitRequest& request) = 0;
};

// What a commit would do now, or what was done since a savepoint.
struct Preview {
  std::optional<ObjectId> before;  // whole-repository trees: of the session's base, or of the savepoint ...
  std::optional<ObjectId> after;   // ... and of the session
  std::vector<PathChange> changes;
  std::vector<Omission> omitted;
  std::vector<Conflict> conflicts;  // with the branch's head as it is: a commit would be refused
};

struct UpdateOutcome {
  std::optional<ObjectId> base;     // the session's base now
  std::uint64_t merged = 0;         // paths taken from the head
  std::vector<Conflict> conflicts;  // with any, nothing has changed; a commit names them, too
};

struct Resolution {
  std::vector<std::string> settled;  // paths
  std::vector<Unresolved> left;      // what a commit still waits for
  std::uint64_t merged = 0;          // paths taken from the head, when this brought the session onto it
};

// Puts what belongs to a session with these options into its directory, before there is a session.
using PrepareFor = std::function<void(const std::string& directory, const SessionOptions& options)>;

class Session {
 public:
  // Use SessionManager. `held` is this session's directory, locked.
  Session(const Services& services, SessionRecord record, std::unique_ptr<SessionDirectory> held);
  ~Session();

  const SessionId& id() const;
  SessionRecord record() const;
  // What a mount shows: the overlay behind the write gate.
  FileSystem& file_system();
  WriteGate& gate();
  // What a serializable session's programs read is to be noted there (ReadSetFileSystem); null: of no other.
  ReadRecorder* read_recorder();
  Overlay& overlay();
  std::string directory() const;
  // The session's own objects: for the diff of a preview, and for a tree made elsewhere (import).
  Quarantine& quarantine();

  // Records in the history that `who` did `what`; nothing else changes. Nothing happens when the session has ended.
  void note(const std::string& who, const std::string& what);
  // Adds to the audit record what was not known when the session was opened. Nothing happens when the session has
  // ended.
  void identify(const Container& container);
  // Records where the session is mounted ("" for nowhere). Nothing happens when the session has ended.
  void set_mountpoint(const std::string& mountpoint);

  // Throws Error{wrong_state} unless the session is open. On Conflicts with by_hand the session stays open; without,
  // it is commit_failed and its result is kept under refs/sessions/<id>. Any other failure leaves it open with
  // last_error set, and throws: also with files that lack what programs stored in them (Overlay::incomplete_files()).
  // With unresolved paths nothing happens: by hand they are the Conflicts, without Error{wrong_state} names them.
  // The gate must be sealed or paused, or the file system unused, so that the result is one cut.
  // A session that requires approval, by its options or by now by a rule of its branch, is sealed instead.
  CommitOutcome commit(const CommitRequest& request);
  // The same for a whole-repository tree made elsewhere (import), instead of the overlay's.
  CommitOutcome commit_tree(const std::optional<ObjectId>& tree, const CommitRequest& request);

  // What a commit of the session, as it is now, would meet; nullopt: nothing. For who would seal it in vain.
  std::optional<Conflicts> foreseen_conflicts();

  // With `keep_result` what was staged stays fetchable as refs/sessions/<id>; else nothing of it remains.
  void rollback(Reason reason, std::optional<int> exit_code, const std::string& who, bool keep_result);

  Preview preview();
  // What was left out of the last commit, rollback or preview.
  std::vector<Omission> omitted() const;
  // Takes paths (with all below) back to the session's base, which settles those that are unresolved. Throws
  // Error{not_found} naming a path that neither the base nor the session has, before anything was changed.
  void discard(const std::vector<RepoPath>& paths);
  // Takes in what others committed since the base, and makes the head the base; with a conflict it changes nothing. One
  // that is cut short is finished by the next verb, or when the session is attached again, before anything else.
  UpdateOutcome update();
  // The paths that a commit would refuse now: unresolved since the session was resumed or came onto a new head, and
  // those that conflict with the head as it is. Sorted.
  std::vector<Unresolved> unresolved();
  // Settles those of them that are, or are below, one of `paths`. Where one conflicts with a head that the session is
  // not on yet, it is brought onto it first, as by update(), and every path that conflicts stays as the session has it,
  // unresolved. Afterwards the base of each settled path is the head's version, so that a commit takes the session's.
  // Throws Error{not_found} naming a path with nothing to settle, before anything was changed. Durable on return.
  Resolution resolve(const std::vector<RepoPath>& paths, Settle how, const std::string& who);
  // Savepoints (savepoint_rules.h): the session as it was, to look at and to go back to. They end with the session.
  // Those of forks are not among them.
  // Oldest first.
  std::vector<Savepoint> savepoints();
  // Writers wait a moment; nothing is copied. On disk on return, with all that programs had synced before. A name is
  // 1 to 64 letters, digits, '.', '_' and '-', begins with none of the last three. Throws Error{exists}, Error{busy}
  // naming a file that the kernel reads or writes by itself, Error{bad_request} for a name, Error{wrong_state} for one
  // too many. `is_cut` is called once what comes later is not in it any more: writers need not wait for the disk.
  using IsCut = std::function<void()>;
  void create_savepoint(const std::string& name, const IsCut& is_cut = {});
  // What has changed since. Throws Error{not_found}; Error{wrong_state} when the session's base is another one by now.
  Preview preview_since(const std::string& savepoint);
  // Makes the session what it was, after sealing what it is as another savepoint. No savepoint holds the session's
  // caches: what it changed of them is dropped. Throws as the two before; the caches may have been dropped then.
  struct Restored {
    std::string undo;                 // the savepoint of what it was
    std::vector<std::string> caches;  // those that begin anew
  };
  Restored restore_savepoint(const std::string& name);
  // Gives back what only it had.
  void drop_savepoint(const std::string& name);
  // Forks (forks.h). Seals what this is now for `fork`, whose creator has made its directory and waits; then fills it.
  // Writers wait until `is_cut` is called, and no longer. Throws as create_savepoint().
  void fork_into(const SessionId& fork, const std::function<void()>& is_cut);
  // Takes in what `fork` has changed, and records that it is committed; its holder waits, and lends its directory. On
  // Conflicts nothing has changed.
  CommitOutcome land(const SessionId& fork, const CommitRequest& request);
  // Those that keep this from being committed, or rolled back by hand.
  std::vector<SessionId> forks();
  // What verbs have changed below the kernel since this was asked for, also those that threw: its caches are stale.
  std::vector<Overlay::Stale> take_stale();
  // Decides a commit that failed undecided (commit.h), if there is one, and finishes an update that was cut short.
  // Every verb does so first.
  void settle();
  // The branch's head now.
  std::optional<ObjectId> head() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace escrow::session
