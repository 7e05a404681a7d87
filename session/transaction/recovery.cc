#include "session/transaction/recovery.h"

#include <algorithm>
#include <exception>

#include "session/base/error.h"
#include "session/base/still_wanted.h"
#include "session/trees/tree_walk.h"

namespace escrow::session {
namespace {

constexpr char kWho[] = "recovery";
constexpr char kNoDirectory[] = "its directory is missing";

// Who ran the session is dead, so nobody will continue it. One whose commit failed for a reason outside (a full disk)
// holds work that can still be committed by hand; it stays.
bool is_orphaned_run(const SessionRecord& record) {
  return record.state == State::open && record.options.ephemeral && record.last_error.empty();
}

// Nobody approved it in time.
bool is_overdue(const Services& services, const SessionRecord& record) {
  return record.state == State::awaiting_approval && record.expires && *record.expires <= services.clock.now();
}

bool needs_decision(const Services& services, const SessionRecord& record) {
  return record.state == State::committing || is_orphaned_run(record) || is_overdue(services, record);
}

// nullptr when somebody holds it, or when there is no such directory any more.
std::unique_ptr<SessionDirectory> take(const Services& services, const SessionId& id, bool& missing) {
  missing = false;
  try {
    return services.directories.try_open(id);
  } catch (const Error& error) {
    if (error.code() != Errc::no_session) throw;
    missing = true;
    return nullptr;
  }
}

void end_without_directory(const Services& services, SessionRecord& record, SessionRecord next,
                           const std::string& who) {
  next.mountpoint.clear();
  next.changed = services.clock.now();
  services.catalog.transition(record.state, next, who, kNoDirectory);
  record = std::move(next);
  services.references.unpin_base(record.id);
}

class Recovery {
 public:
  Recovery(const Services& services, const ResultOf& result_of) : services_(services), result_of_(result_of) {}

  std::vector<std::string> run() {
    const WantedAlways wanted;
    sweep_locks();
    for (const SessionId& id : list_aside())
      guarded(id, [&] { return bring_back(id), std::string(); });
    for (const SessionRecord& row : services_.catalog.unended()) {
      if (needs_decision(services_, row)) guarded(row.id, [&] { return decide(row.id); });
      guarded(row.id, [&] { return lost_its_pin(row) ? pin_again(row.id) : std::string(); });
    }
    for (const SessionId& id : services_.directories.list())
      guarded(id, [&] { return sweep(id); });
    return std::move(done_);
  }

 private:
  // One damaged session must not keep the others from being recovered.
  template <typename Work>
  void guarded(const SessionId& id, Work work) {
    try {
      if (std::string sentence = work(); !sentence.empty()) done_.push_back(std::move(sentence));
    } catch (const std::exception& failure) {
      std::string sentence = "session " + id.text() + " could not be recovered: " + failure.what();
      services_.log.write(LogLevel::error, sentence);
      done_.push_back(std::move(sentence));
    }
  }

  // Else nobody could move what a dead process was about to move: not before somebody of Escrow's does.
  void sweep_locks() {
    try {
      services_.references.sweep_locks();
    } catch (const std::exception& failure) {
      services_.log.write(LogLevel::warning, std::string("lock files of dead processes stay: ") + failure.what());
    }
  }

  std::string decide(const SessionId& id) {
    bool missing = false;
    const std::unique_ptr<SessionDirectory> held = take(services_, id, missing);
    if (!held && !missing) return "";
    // Under the lock: another process may have recovered it between the listing and now.
    std::optional<SessionRecord> record = services_.catalog.find(id);
    if (!record || !needs_decision(services_, *record)) return "";
    if (missing) return has_lost_directory(services_, id) ? without_directory(*record) : "";
    if (record->state == State::committing) return decide_commit(services_, *record, *held);
    Rollback rollback;
    rollback.who = kWho;
    if (record->state == State::awaiting_approval) {
      rollback.reason = Reason::expired;
      roll_back(services_, *record, *held, rollback);
      return "session " + id.text() + " was rolled back: nobody approved its result in time";
    }
    rollback.reason = Reason::host_lost;
    if (record->options.keep_on_failure) rollback.keep = result_of_(*record, *held);
    roll_back(services_, *record, *held, rollback);
    return "session " + id.text() + " was rolled back: the process that ran it died";
  }

  std::string without_directory(SessionRecord& record) {
    const std::string name = "session " + record.id.text();
    const bool landed = record.state == State::committing && record.swap_to && swap_landed(services_, record);
    if (landed) {
      services_.references.make_durable(record.options.branch);
      SessionRecord next = record;
      next.state = State::committed;
      next.commit = record.swap_to;
      end_without_directory(services_, record, std::move(next), kWho);
      return name + " was committed";
    }
    if (record.state == State::committing && record.result) {
      take_commit_back(services_, record, "its commit was interrupted and its directory is missing; try again", kWho);
      return name + " awaits approval again: its directory is missing, its result is not";
    }
    give_up_without_directory(services_, record, is_overdue(services_, record) ? Reason::expired : Reason::host_lost,
                              {}, kWho);
    return name + " was given up: its directory is missing";
  }

  bool lost_its_pin(const SessionRecord& row) const {
    return row.state == State::open && row.base && !services_.references.is_pinned(row.id, *row.base);
  }

  // The power failed right after it was opened: ReferenceStore::pin_fresh().
  std::string pin_again(const SessionId& id) {
    bool missing = false;
    const std::unique_ptr<SessionDirectory> held = take(services_, id, missing);
    if (!held) return "";
    const std::optional<SessionRecord> record = services_.catalog.find(id);
    if (!record || !lost_its_pin(*record)) return "";
    services_.references.pin_base(id, *record->base);
    return "pinned what session " + id.text() + " is based on again: its pin was missing";
  }

  std::vector<SessionId> list_aside() {
    try {
      return services_.directories.list_aside();
    } catch (const std::exception& failure) {
      services_.log.write(LogLevel::warning, std::string("sessions that were set aside stay there: ") + failure.what());
      return {};
    }
  }

  // The catalog that knows it is back.
  void bring_back(const SessionId& id) {
    const std::optional<SessionRecord> record = services_.catalog.find(id);
    if (!record || is_final(record->state)) return;
    services_.directories.bring_back(id);
    services_.log.write(LogLevel::warning, "session " + id.text() + " is back: the catalog knows it again");
  }

  void set_aside(const SessionId& id, SessionDirectory& held) {
    services_.log.write(LogLevel::warning, "session " + id.text() + " is not in the catalog: what it staged was set " +
                                               "aside in " + held.set_aside() +
                                               ", and comes back with the catalog that knows it");
  }

  // Directories of sessions that ended, or that were never recorded because their opening was cut short. A row that is
  // missing is no proof of either: the catalog may be a new one, or an older copy.
  std::string sweep(const SessionId& id) {
    const auto is_in_use = [](const SessionRecord& record) {
      return !is_final(record.state) && record.state != State::awaiting_approval;
    };
    const std::optional<SessionRecord> before = services_.catalog.find(id);
    if (before && is_in_use(*before)) return "";
    bool missing = false;
    const std::unique_ptr<SessionDirectory> held = take(services_, id, missing);
    if (!held) return "";
    const std::optional<SessionRecord> record = services_.catalog.find(id);
    if (record && is_in_use(*record)) return "";
    if (record && record->state == State::awaiting_approval)
      return held->drop_staged() ? "removed what session " + id.text() + " had staged: its result is sealed" : "";
    if (!record && (held->has_work() || services_.references.result(id))) {
      set_aside(id, *held);
      return "";
    }
    if (record) publish_caches(services_, *record, *held);
    clean_up(services_, id, *held, record && keeps_result(*record));
    return "removed what session " + id.text() + (record ? " left behind" : " left behind before it was opened");
  }

  const Services& services_;
  const ResultOf& result_of_;
  std::vector<std::string> done_;
};

}  // namespace

std::vector<std::string> recover_sessions(const Services& services, const ResultOf& result_of) {
  return Recovery(services, result_of).run();
}

bool has_lost_directory(const Services& services, const SessionId& id) {
  const std::vector<SessionId> aside = services.directories.list_aside();
  return std::find(aside.begin(), aside.end(), id) == aside.end() && !services.directories.exists(id);
}

void give_up_without_directory(const Services& services, SessionRecord& record, Reason reason,
                               std::optional<int> exit_code, const std::string& who) {
  if (record.result) services.references.drop_result(record.id);
  SessionRecord next = record;
  next.state = State::rolled_back;
  next.reason = reason;
  next.exit_code = exit_code;
  next.last_error = kNoDirectory;
  end_without_directory(services, record, std::move(next), who);
}

std::string decide_commit(const Services& services, SessionRecord& record, SessionDirectory& directory) {
  const std::string name = "session " + record.id.text();
  if (!record.swap_to || swap_landed(services, record)) {
    if (!record.swap_to) {
      take_commit_back(services, record, "its commit was interrupted; try again", kWho);
      return name + " is " + name_of(record.state) + " again: its commit was interrupted";
    }
    // Who moved it may have died before that was on disk.
    services.references.make_durable(record.options.branch);
    record_committed(services, record, directory, kWho, "found in the branch");
    return name + " was committed: its commit is in the branch";
  }
  // The objects were durable before the row said committing, and their packs are kept from every gc until a reference
  // holds them. Only somebody's rm takes them: then what is staged can be committed again.
  Quarantine& quarantine = directory.quarantine();
  if (!quarantine.contains(*record.swap_to)) {
    take_commit_back(services, record, "its commit was interrupted and its objects are gone; try again", kWho);
    return name + " is " + name_of(record.state) + " again: the objects of its interrupted commit are gone";
  }
  const std::string& branch = record.options.branch;
  const bool unmoved = services.references.head(branch) == record.swap_from;
  if (unmoved) {
    const auto published = quarantine.publish(*record.swap_to);
    if (services.references.compare_and_swap(branch, record.swap_from, *record.swap_to,
                                             "escrow: session " + record.id.text())) {
      record_committed(services, record, directory, kWho, "swap retried");
      return name + " was committed: the interrupted move of the branch was done";
    }
  }
  // What was approved is what would have been committed then; what a person committed, nobody else commits anew.
  if (!record.options.ephemeral || record.result) {
    take_commit_back(services, record, "its commit was interrupted and others moved the branch; try again", kWho);
    return name + " is " + name_of(record.state) + " again: others moved the branch while its commit was interrupted";
  }
  // Its parent was to be committed just before it, and may be gone with the session that it was of.
  if (record.swap_from && !quarantine.contains(*record.swap_from)) {
    take_commit_back(services, record, "its commit was interrupted; try again", kWho);
    return name + " is " + name_of(record.state) + " again: the commit that its own was made on is gone";
  }
  // What the interrupted commit did to its parent is what the run did; do it to the new head.
  const SessionResult result{.base = record.swap_from,
                             .base_tree = tree_of_commit(quarantine, record.swap_from),
                             .tree = tree_of_commit(quarantine, record.swap_to),
                             .reads = kept_reads(services, record),
                             .prefix = record.options.prefix};
  const CommitOutcome outcome = commit_result(services, record, directory, result, CommitFor::run, kWho);
  if (std::holds_alternative<Conflicts>(outcome)) return name + " failed to commit: it conflicts with the branch";
  return name + " was committed on top of what others committed";
}

}  // namespace escrow::session
