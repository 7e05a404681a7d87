// What escrowd itself keeps: the repositories it serves, what a session was asked for beyond its repository's catalog,
// and the answers to requests with an Idempotency-Key. <state>/escrowd.db: WAL, synchronous=FULL.
//
// Thread-safe (one connection behind a lock); one process at a time. What a method changed is on disk when it returns.
// Throws Error{no_space}, {damaged_repository}, {newer_state}.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "session/base/ids.h"
#include "session/base/synchronized.h"
#include "session/interfaces/object_store.h"
#include "storage/database/group_commit.h"

namespace escrow::storage {

class ServiceStore {
 public:
  // Creates the database when it is missing.
  explicit ServiceStore(const std::string& database_path);
  ~ServiceStore();

  struct Registration {
    std::string name, path;
  };
  std::vector<Registration> repositories() const;
  // Throws Error{exists} when the name stands for another path, or the path has another name. False: it was there.
  bool add_repository(const Registration& repository, const std::string& who);
  // Throws as add_repository() does for the first of them that contradicts what is known, and adds none.
  void check_repositories(const std::vector<Registration>& repositories) const;
  // What is known of its sessions stays.
  void remove_repository(const std::string& name);

  struct SessionFacts {
    session::SessionId id;
    std::string repository;
    std::string owner;        // the principal that opened it
    std::string external_id;  // unique for the owner; empty: none
    std::string request_key;  // of the request that opened it: "TARGET KEY"; unique for the owner; empty: none
    std::string message;      // of the commit, unless the request for it says otherwise
    std::string mountpoint;   // where it is to be mounted as long as it is open; empty: nowhere
    std::string hand{};       // for whom (daemon/host/hidden_git.h); empty: unknown
    std::map<std::string, std::string> labels;
    std::int64_t ended_s = 0;  // by when it had ended, in seconds since 1970; 0: not known
    bool is_settled = false;   // settle() was told of it
  };
  // How long it may stay open, and how it is mounted.
  struct Terms {
    std::uint64_t lease_ms = 0;      // a lease's length; 0: none
    std::int64_t lease_until_ms = 0;  // of the service's time; 0: none
    std::int64_t deadline_ms = 0;    // of the session; 0: none
    std::string mount_options;       // as `escrow mount -o` takes them
  };
  // Before the session is opened. Throws Error{exists} for an external id that the owner has used.
  void add_session(const SessionFacts& facts, const std::optional<Terms>& terms = std::nullopt);
  std::optional<SessionFacts> session(const session::SessionId& id) const;
  std::optional<SessionFacts> session_by_request(const std::string& owner, const std::string& request_key) const;
  // Those that are to be mounted.
  std::vector<SessionFacts> mounted() const;
  // Whoever opened them.
  std::vector<SessionFacts> sessions_by_external_id(const std::string& external_id) const;
  // At most `most` behind `after` (empty: from the beginning), by id: those of which nobody has noted yet that there is
  // such a session, or those of which somebody has.
  std::vector<SessionFacts> unsettled(const std::string& after, std::size_t most) const;
  std::vector<SessionFacts> settled(const std::string& after, std::size_t most) const;
  // There are these sessions, or they have been.
  void settle(const std::vector<session::SessionId>& ids);
  // By when they had ended.
  void note_ends(const std::vector<std::pair<session::SessionId, std::int64_t>>& ends_s);
  void set_mountpoint(const session::SessionId& id, const std::string& mountpoint, const std::string& hand);
  // Of sessions that are not to be mounted again.
  void clear_mountpoints(const std::vector<session::SessionId>& ids);
  void forget_session(const session::SessionId& id);
  // However many: in several transactions, with room for others in between.
  void forget_sessions(const std::vector<session::SessionId>& ids);

  Terms terms(const session::SessionId& id) const;
  // `lease_ms` from now on; 0: as long as before. False when there is no lease, or it has run out: that is for ever.
  bool renew_lease(const session::SessionId& id, std::uint64_t lease_ms, std::int64_t now_ms);
  // Every lease has at least its whole length from now on: while no service was running nobody could renew it.
  void renew_all_leases(std::int64_t now_ms);
  struct Overdue {
    session::SessionId id;
    bool is_lease;  // or it is the deadline
  };
  std::vector<Overdue> overdue(std::int64_t lease_now_ms, std::int64_t now_ms) const;
  // The session has ended.
  void end_terms(const session::SessionId& id);
  // How it is mounted from now on, whoever opened it.
  void set_mount_options(const session::SessionId& id, const std::string& options);

  // How far the service's time had come (daemon/service/service_time.h) that long after the start of which boot.
  struct TimeMark {
    std::string boot;
    std::int64_t since_boot_ms = 0, time_ms = 0;
  };
  std::optional<TimeMark> time_mark() const;
  void keep_time_mark(const TimeMark& mark);

  // From when on the next gc of a repository is counted, in the service's time: its last one, or, before the first, a
  // moment of its own. By name.
  struct GcMark {
    std::int64_t time_ms = 0;
    bool is_done = false;
  };
  std::map<std::string, GcMark> gc_marks() const;
  void keep_gc_mark(const std::string& repository, const GcMark& mark);

  // ---- Requests with a key.
  struct Request {
    std::string principal, route, key, body;
    const session::ByteSource* content = nullptr;  // instead of the body; null: none
  };
  struct Answer {
    unsigned status = 0;
    std::string content_type, body;
    std::vector<std::pair<std::string, std::string>> headers;
    // Or the same request may have another answer later.
    bool is_final() const { return status < 500 && status != 409 && status != 408 && status != 429; }
  };
  enum class Claim { granted, in_flight, other_body, answered };
  // granted: the caller now answers the request, and calls record() or release(); what a process did not come to record
  // (it was killed, the disk was full) is granted again, to the same body. `answer` is filled in for answered; one that
  // is not final is told once, and the next claim is granted.
  Claim claim(const Request& request, std::int64_t now_s, Answer& answer);
  void record(const Request& request, const Answer& answer);
  void release(const Request& request);
  // Forgets requests that are older than `before_s`, and which session their key has opened: the oldest first, at most
  // `most` of them, in one short transaction, because everybody else waits for it. True: there may be more of them.
  bool forget_requests(std::int64_t before_s, std::size_t most);

 private:
  // Of requests that this process answers at the moment: principal, route, key.
  using Claimed = std::set<std::array<std::string, 3>>;
  class Answering;
  struct Connection;
  mutable session::Synchronized<std::unique_ptr<Connection>> connection_;  // self-locking
  GroupCommit<Connection> writes_;                                         // self-locking
  session::Synchronized<Claimed> claimed_;                                 // self-locking
};

}  // namespace escrow::storage
