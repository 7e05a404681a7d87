// The verbs of escrowd's API on sessions: who may, what happens, and what is answered. Thread-safe.
//
// Verbs that end, mount or unmount one session exclude one another: a second one is to come again later. A verb that
// comes again with the outcome the session already has is answered with that outcome; with another one it is refused as
// Problem{session_finished}. A session that the caller may not see does not exist for them. A request on a
// session goes to the process that hosts it, whoever started that one (SessionAccess).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "api/metrics.h"
#include "api/resources.h"
#include "daemon/host/repository_upkeep.h"
#include "daemon/host/session_request.h"
#include "daemon/import/import_filter.h"
#include "daemon/service/caller.h"
#include "daemon/service/service_repositories.h"
#include "daemon/import/allowed_roots.h"
#include "daemon/service/service_time.h"
#include "daemon/service/sessions/session_hosts.h"
#include "session/base/clock.h"
#include "session/base/synchronized.h"
#include "session/transaction/approval.h"
#include "session/transaction/session.h"
#include "storage/database/service_store.h"

namespace escrow::daemon {

class ServiceSessions {
 public:
  // All must outlive this.
  ServiceSessions(const LiveConfig& config, ServiceRepositories& repositories, SessionHosts& hosts,
                  storage::ServiceStore& store, api::Metrics& metrics, session::Clock& clock,
                  ServiceTime& time, const AllowedRoots& source_roots);

  struct OpenRequest {
    std::string repository;
    SessionRequest session;  // without an issuer: the caller
    std::string mountpoint;  // empty: not mounted
    std::string external_id, request_key;
    std::map<std::string, std::string> labels;
    std::uint64_t lease_ms = 0, timeout_ms = 0;  // 0: none
    std::string mount_options;                   // request_options.h
  };
  // A second opening with the same request key finds the session of the first.
  api::SessionResource open(const Caller& caller, OpenRequest opening);

  struct Filter {
    std::optional<session::State> state;
    std::optional<bool> has_ended;
    std::optional<std::string> repository, principal, external_id;
    std::map<std::string, std::string> labels;  // all of them
    std::string id_prefix;                      // then they come by id
    bool newest_first = false;
    std::string after;                          // a position that page() gave
    std::size_t limit = 100;
  };
  struct Page {
    std::vector<api::SessionResource> sessions;
    std::string next;  // empty: this is the last
  };
  // At most kMostLookedAt sessions are looked at: a page may have fewer than the limit, and another behind it.
  static constexpr std::size_t kMostLookedAt = 2000;
  Page list(const Caller& caller, const Filter& filter);
  api::SessionResource get(const Caller& caller, const std::string& id);
  // With what a commit would do and leave out, which builds the session's tree.
  api::SessionResource status(const Caller& caller, const std::string& id);

  struct AuditWanted {
    AuditFilter filter;
    std::string after;  // a position that a page gave
    std::size_t limit = 100;
  };
  struct AuditPage {
    std::vector<api::AuditResource> entries;
    std::string next;  // empty: this is the last
  };
  // What became of the sessions that the caller may see, oldest first.
  AuditPage audit(const Caller& caller, const std::string& repository, const AuditWanted& wanted);

  api::ChangesAnswer changes(const Caller& caller, const std::string& id);
  struct Diff {
    std::string text;
    std::uint64_t omitted = 0;  // files that a commit would leave out
  };
  // Of one file, or of all. At most 64 MiB; Error{result_too_large}.
  Diff diff(const Caller& caller, const std::string& id, const api::DiffRequest& request);

  // ---- Files, by paths from the repository's root (service_files.cc).
  enum class Side { base, session };
  using FilePart = api::FileAnswer;
  // At most `most_bytes` from `offset`. Of a session that awaits approval: its sealed result.
  FilePart read_file(const Caller& caller, const std::string& id, const std::string& path, Side side,
                     std::uint64_t offset, std::size_t most_bytes);
  // A directory's names in their order; an empty path is the session's root.
  api::ListingAnswer list_files(const Caller& caller, const std::string& id, const api::ListFilesRequest& request);
  struct Written {
    api::FileResource file;
    bool is_new = false;
  };
  // `content` is an open file. Refuses the same as the mount; a denial is Problem{forbidden} with the rule.
  Written write_file(const Caller& caller, const std::string& id, const std::string& path, int content,
                     std::optional<bool> executable);
  // Refuses what write_file() would refuse whatever the content is; `length` of it in bytes, if it is known.
  void check_write(const Caller& caller, const std::string& id, const std::string& path,
                   std::optional<std::uint64_t> length);
  api::FileResource remove_file(const Caller& caller, const std::string& id, const std::string& path);

  struct Mounting {
    std::string mountpoint;
    std::optional<std::string> mount_options;  // request_options.h; nullopt: as before
    std::vector<std::string> shown_git{};  // paths of others' .git (hidden_git.h)
  };
  api::SessionResource mount(const Caller& caller, const std::string& id, const Mounting& mounting);
  api::SessionResource unmount(const Caller& caller, const std::string& id);

  // Onto the branch's new head; with a conflict nothing changes (service_updates.cc).
  api::UpdateAnswer update(const Caller& caller, const std::string& id);
  // Back to what the base has: all of the paths, or none.
  api::DiscardAnswer discard(const Caller& caller, const std::string& id, const std::vector<std::string>& paths);
  // Paths that both the session and others changed: settled, or listed for whoever may see the session.
  api::ResolveAnswer resolve(const Caller& caller, const std::string& id, const api::ResolveRequest& request);
  // A new session of the caller's with the result of one of theirs that failed or waits; on the branch's new head, and
  // never with more than a session that they open anew may have.
  api::SessionResource resume(const Caller& caller, const std::string& id);
  // Made, gone back to, dropped or listed; lists are for whoever may see the session.
  api::SavepointsAnswer savepoint(const Caller& caller, const std::string& id, const api::SavepointRequest& request);
  // The same of its mount table, mounted or not.
  api::MountsAnswer mounts(const Caller& caller, const std::string& id, api::MountsRequest request);

  // Puts what is to be imported into the quarantine: of a directory of the machine not the repository, should it be
  // inside.
  using ReadTree = std::function<session::BuiltTree(
      session::Quarantine& quarantine, const std::string& repository_directory, ImportFilter filter)>;
  // One commit that makes the branch (or the opening's prefix of it) what is read (service_imports.cc). A branch that
  // does not exist is created. Throws Problem{conflict} with the paths and the session, whose result is kept. When
  // reading throws there is no session. With a request key that a committed import had: that one.
  api::SessionResource import(const Caller& caller, const OpenRequest& opening, const ReadTree& read);
  // Refuses what import() would refuse whatever there is to read.
  void check_import(const Caller& caller, const OpenRequest& opening);

  // A lease that has run out cannot be renewed. `lease_ms` 0: as long as before.
  api::SessionResource renew(const Caller& caller, const std::string& id, std::uint64_t lease_ms);
  // By the service itself: rolls a session back that is still open. False: not now, another request has it.
  bool expire(const session::SessionId& id, session::Reason reason);

  // How the work in a session ended: the exit-status rule decides.
  struct FinishRequest {
    session::Reason reason = session::Reason::success;
    std::optional<int> exit_code;  // as a shell has it: 128+n for signal n
    std::string message;           // of the commit; empty: that of the opening
    std::string image{};           // that the work ran in; empty: that of the opening
    bool only_if_seen = false;     // api::FinishRequest
  };
  api::SessionResource finish(const Caller& caller, const std::string& id, const FinishRequest& ending);
  // Throws Problem{conflict} with the paths; the session stays open.
  api::SessionResource commit(const Caller& caller, const std::string& id, const api::CommitRequest& wanted);
  api::SessionResource rollback(const Caller& caller, const std::string& id, bool keep_result);

  // By a reviewer, of a session that awaits approval; `approval.review.reviewer` is filled in. Throws
  // Problem{conflict}, and Problem{result_moved} with the id that the result has on the branch's new head; the session
  // goes on waiting.
  api::SessionResource approve(const Caller& caller, const std::string& id, session::Approval approval);
  api::SessionResource reject(const Caller& caller, const std::string& id, const std::string& comment);

  // What a service that was killed had noted of sessions that then were never opened. Before the first request. Looks
  // at those that are new since keep_house().
  void forget_unborn();
  // Every minute, and at the end: notes which new sessions there are and which have ended, and forgets some of those
  // whose records gc has forgotten. A missing record does not prove that: an older copy of the catalog may be in place.
  // So what has a directory stays, and the rest until its end is as long ago as gc keeps records.
  void keep_house();

  // Holds one of the sessions that the principal may have open, until there is a record that counts.
  class Place {
   public:
    Place() = default;
    Place(ServiceSessions& sessions, std::string principal) : sessions_(&sessions), principal_(std::move(principal)) {}
    Place(Place&& other) noexcept
        : sessions_(std::exchange(other.sessions_, nullptr)), principal_(std::move(other.principal_)) {}
    Place& operator=(Place&&) = delete;
    ~Place();

   private:
    ServiceSessions* sessions_ = nullptr;  // null: nobody counts
    std::string principal_;
  };
  // Throws Problem{quota_exceeded}.
  Place take_place(const Caller& caller);

  // Whether the caller may see the session and what is in it.
  bool may_see(const Caller& caller, const ServiceRepositories::Session& found) const;
  // That the caller may open it, and commit it where nobody reviews it. Throws Problem{forbidden}, {no_repository}.
  void check_grant(const Caller& caller, const OpenRequest& opening, bool commits) const;

  // What a session of the caller's is opened with, with who that is. Throws Problem for what they have no grant to.
  SessionRequest granted(const Caller& caller, const OpenRequest& opening) const;
  // Host directories lie below source_roots, and hold with the rights of the caller from here on (mount_rights).
  void check_mounts(const Caller& caller, const std::string& repository, SessionRequest& request) const;
  // Throws Error{exists} when the repository's catalog is one that does not know the session.
  bool failed_to_open(const storage::ServiceStore::SessionFacts& facts) const;
  // For somebody who asked for another outcome than the session has; of one that is being committed, busy.
  [[noreturn]] static void refuse_finished(const session::SessionRecord& record, const std::string& verb);

  // What was counted, and the sessions in each state over all repositories.
  api::HttpResponse metrics();

 private:
  using Found = ServiceRepositories::Session;
  // One verb at a time on a session; the second is refused as Problem{busy} rather than keep a thread waiting. What is
  // over has its answer, also while what it leaves behind is still being taken away.
  class SessionTryLock {
   public:
    SessionTryLock(ServiceSessions& sessions, const session::SessionId& id);
    SessionTryLock(ServiceSessions& sessions, const Found& found);
    ~SessionTryLock();
    SessionTryLock(const SessionTryLock&) = delete;
    SessionTryLock& operator=(const SessionTryLock&) = delete;

   private:
    ServiceSessions& sessions_;
    const session::SessionId id_;
    const bool is_taken_;
  };

  Found see(const Caller& caller, const std::string& id);
  Found may_review(const Caller& caller, const std::string& id);
  Found may_end(const Caller& caller, const std::string& id);
  [[noreturn]] static void refuse_busy(const session::SessionId& id);
  session::SessionRecord record_of(const Found& found);
  // With the session's turn. A commit that nobody carries on, because a service was killed, is concluded first, as
  // recovery does it within a minute.
  session::SessionRecord concluded(const Found& found);
  // As long as one of ours has the session and it is in this state, at most 10 s.
  void wait_for_host(const Found& found, session::State state);
  // Without it: Problem{busy} while another request commits the session.
  session::SessionRecord settled(const Found& found);
  api::SessionResource resource(const Found& found, std::string warning = {});
  bool may(const Caller& caller, GrantedVerb verb, const Found& found) const;
  void check_commit(const Caller& caller, const Found& found) const;
  bool is_wanted(const Filter& filter, const session::SessionRecord& record) const;
  std::vector<Found> with_external_id(const Caller& caller, const Filter& filter);
  struct Trace {
    std::optional<session::SessionRecord> record;
    bool has_directory = false;   // without a record: it is in another catalog
    std::int64_t kept_for_s = 0;  // how long gc keeps its record once it has ended
  };
  // That its repository has of a session; nullopt: it cannot be read at the moment.
  std::optional<Trace> trace_of(const storage::ServiceStore::SessionFacts& facts);
  void forget_records_that_are_gone();
  api::SessionResource open_new(const Caller& caller, const ServiceRepositories::Entry& repository,
                                const OpenRequest& opening);
  api::SessionResource commit_now(const Found& found, const Caller& caller, const api::CommitRequest& wanted);
  void end(const Found& found, const Caller& caller, const FinishRequest& ending, std::string& warning);
  // In the session's history: who changes it does that first.
  void remark(const Found& found, const Caller& caller, const std::string& what);
  session::RepoPath inside(const Found& found, const std::string& path) const;
  FilePart read_committed(const Found& found, const session::RepoPath& path, Side side, std::uint64_t offset,
                          std::size_t most_bytes);
  api::ListingAnswer list_committed(const Found& found, const api::ListFilesRequest& request);
  // As its host has them, or of a detached session.
  template <typename Ask>
  auto ask_for_file(const Found& found, const Caller& caller, Ask ask);
  api::FileAnswer change_file(const Found& found, const Caller& caller, const api::Request& change);

  const LiveConfig& config_;  // constant references; self-locking, as what follows
  ServiceRepositories& repositories_;
  SessionHosts& hosts_;
  storage::ServiceStore& store_;
  api::Metrics& metrics_;
  session::Clock& clock_;
  ServiceTime& time_;
  const AllowedRoots& source_roots_;
  session::Synchronized<std::set<session::SessionId>> busy_;
  session::Synchronized<std::map<std::string, std::uint64_t>> opening_;  // of principals that have a quota, right now
  session::Synchronized<std::set<std::string>> writers_;  // session and principal, once it is in the history
  session::Synchronized<std::string> swept_;              // the last of the settled sessions that keep_house() saw
};

}  // namespace escrow::daemon
