// What a session is made of: internal to session.cc and session_layers.cc.
//
// Thread-safety: members say what guards them; a verb holds lock_verb() for its whole length. Throws what the parts
// throw.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "session/base/error.h"
#include "session/base/synchronized.h"
#include "session/decorators/read_recorder.h"
#include "session/transaction/commit.h"
#include "session/transaction/disputes.h"
#include "session/transaction/forks.h"
#include "session/transaction/hosted_directory.h"
#include "session/transaction/savepoint_rules.h"
#include "session/transaction/session.h"
#include "session/transaction/session_tree.h"
#include "session/trees/tree_walk.h"

namespace escrow::session {

// Throws Error{wrong_state} that names the verb.
void require_open(const SessionRecord& record, const char* verb);

struct Session::Impl {
  // Held for the whole of a verb, so that verbs exclude one another; guards nothing else.
  struct Verb {};

  Impl(const Services& all, SessionRecord row, std::unique_ptr<SessionDirectory> directory)
      : services(all),
        id(row.id),
        held(std::move(directory)),
        overlay(overlay_options(services, row), services.objects, held->staging(),
                held->journal(), services.clock, services.log),
        gate(overlay, row.options.read_only ? WriteGate::Position::sealed : WriteGate::Position::open),
        hosted(*held, overlay),
        recorder(row.options.isolation == Isolation::serializable
                     ? std::make_unique<ReadRecorder>(overlay, held->reads(), services.log)
                     : nullptr),
        record(std::move(row)),
        storing([this] { store_settled(); }) {}
  ~Impl() {
    overlay.stop_settling();
    storing.join();
    try {
      if (record.lock()->state == State::open) {
        gate.count_late_pages_as_lost();
        if (recorder) recorder->close();
      }
    } catch (const std::exception& failure) {
      services.log.write(LogLevel::error, std::string("closing a session: ") + failure.what());
    }
  }

  // Verbs come before the storing of contents, which takes their turn for one content at a time.
  Synchronized<Verb>::Write lock_verb() {
    verbs_waiting += 1;
    auto busy = verb.lock();
    verbs_waiting -= 1;
    return busy;
  }

  void store_settled() noexcept {
    while (overlay.wait_for_settled()) {
      if (verbs_waiting > 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      const auto busy = verb.lock();
      if (record.lock()->state != State::open) return;
      try {
        overlay.store_settled(held->quarantine());
      } catch (const std::exception& failure) {
        // The commit tries again, and says so when it fails.
        services.log.write(LogLevel::warning, std::string("storing a file ahead of the commit: ") + failure.what());
      }
    }
  }

  SessionRecord copy_of_record() { return *record.lock(); }

  // Runs `work` on a copy of the record, which becomes the record whatever happens, as the catalog has it.
  template <typename Work>
  auto with_record(const char* what, Work work) {
    SessionRecord copy = copy_of_record();
    require_open(copy, what);
    struct StoreBack {
      Impl& impl;
      SessionRecord& copy;
      ~StoreBack() {
        if (copy.state == State::open) copy.reason = Reason::none;
        *impl.record.lock() = copy;
      }
    } store_back{*this, copy};
    return work(copy);
  }

  SessionResult result(const SessionRecord& of) { return result(of, services.references.rule_of(of.options.branch)); }
  SessionResult result(const SessionRecord& of, const BranchRule& rule) { return result(overlay, of, rule); }
  SessionResult result(Overlay& shown, const SessionRecord& of, const BranchRule& rule) {
    std::vector<Omission> left_out;
    SessionResult now = of.parent ? whole_result(shown, of, held->quarantine(), left_out)
                                  : session_result(shown, of, rule, held->quarantine(), left_out);
    if (of.parent) now.base_tree = start(of);
    if (recorder) now.reads = std::make_shared<const ReadSet>(recorder->now());
    *omitted.lock() = std::move(left_out);
    return now;
  }

  // Of a fork.
  TreeRoot start(const SessionRecord& of) {
    auto known = started_as.lock();
    if (!*known) *known = start_of_fork(overlay, of, held->quarantine());
    return **known;
  }

  // A rollback is not held up by rules that cannot be read.
  SessionResult result_to_keep(const SessionRecord& of) {
    try {
      return result(of);
    } catch (const Error& error) {
      if (error.code() != Errc::bad_request) throw;
      return result(of, {.ignore = {.is_on = false}});
    }
  }

  // The gate holds calls back; a process that writes a staging file itself it cannot.
  void require_cut(const SessionRecord& row) {
    if (const auto path = overlay.still_written())
      throw Error(Errc::busy, "cannot commit session " + row.id.text() + ": a process has " + quote_path(*path) +
                                  " open for writing or mapped, and with --io passthrough only that process can let "
                                  "go of it; close it, then commit again");
  }

  // What a program stored, and was not told that it is lost, must not be missing in a commit without a word.
  void require_whole(const char* what, const SessionRecord& row) {
    const std::vector<std::string> paths = overlay.incomplete_files();
    if (!paths.empty()) refuse_lost(row, what, paths);
  }

  // Verbs call one of them first, under their lock: what an earlier verb has left undecided, or half done.
  void conclude();
  void settle();
  CommitOutcome commit(const CommitRequest& request, const std::optional<TreeRoot>& given);
  void require_no_forks(const SessionRecord& row, const char* what) {
    const std::vector<SessionId> forks = living_forks(services, overlay);
    if (!forks.empty()) refuse_with_forks(row, what, forks);
  }
  void note(SessionRecord next, const std::string& who, const std::string& why);
  UpdateOutcome update(const ObjectId& head, bool keeps_conflicts);
  UpdateOutcome update_within_bounds(const ObjectId& head, bool keeps_conflicts);
  void finish_update();
  void end_update(bool is_on_new_head, const std::vector<Unresolved>& conflicts);
  std::optional<Conflicts> conflicts_met(const SessionRecord& row, const SessionResult& now);
  Disputes disputes(const SessionRecord& row, const std::optional<ObjectId>& head);
  std::vector<PathChange> changes_to(const TreeRoot& now, const TreeRoot& wanted);
  void take_in(const std::vector<PathChange>& changes);
  void apply(const std::vector<PathChange>& changes);
  std::vector<std::string> paths_of(const std::vector<Overlay::Stale>& changed);
  void add_stale(std::vector<Overlay::Stale> more);
  void require_same_base(const std::string& savepoint, const SessionRecord& row);
  void seal_as(const std::string& savepoint, const SessionRecord& row, const IsCut& is_cut);

  const Services services;                         // constant; self-locking
  const SessionId id;                              // constant
  const std::unique_ptr<SessionDirectory> held;    // constant; used by verbs and the overlay
  Overlay overlay;                                 // self-locking
  WriteGate gate;                                  // self-locking
  HostedDirectory hosted;                          // used by verbs
  const std::unique_ptr<ReadRecorder> recorder;    // self-locking; null: what is read does not matter
  Synchronized<Verb> verb;
  Synchronized<SessionRecord> record;
  Synchronized<std::vector<Omission>> omitted;
  Synchronized<std::vector<Overlay::Stale>> stale;
  Synchronized<std::optional<TreeRoot>> started_as;  // of a fork, once it was asked for; held while it is built
  std::atomic<int> verbs_waiting = 0;
  std::thread storing;                             // started last
};

}  // namespace escrow::session
