#include "session/transaction/session.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include "session/base/error.h"
#include "session/transaction/apply_changes.h"
#include "session/transaction/commit_message.h"
#include "session/transaction/discarding.h"
#include "session/transaction/session_impl.h"
#include "session/trees/tree_walk.h"

namespace escrow::session {
void require_open(const SessionRecord& record, const char* verb) {
  if (record.state != State::open)
    throw Error(Errc::wrong_state, std::string("cannot ") + verb + " session " + record.id.text() + ": it is " +
                                       name_of(record.state) + ", and only an open session can change");
}

CommitOutcome Session::Impl::commit(const CommitRequest& request, const std::optional<TreeRoot>& given) {
  check_commit_message(request.message);
  const auto busy = lock_verb();
  settle();
  return with_record("commit", [&](SessionRecord& row) -> CommitOutcome {
    require_no_forks(row, "commit");
    if (row.parent) {
      if (given) throw Error(Errc::not_supported, "what is imported goes to a branch, not into a fork");
      const auto check = [&] {
        require_cut(row);
        require_whole("commit", row);
      };
      return commit_fork(services, overlay, hosted, row, request, check, [&] { return result(row); });
    }
    if (!given && !row.unresolved.empty()) {
      if (request.by_hand) return conflicts_of(row.unresolved);
      refuse_unresolved(row);
    }
    SessionResult what;
    try {
      if (given) {
        what = {row.base, tree_of_commit(held->quarantine(), row.base), without_empty(held->quarantine(), *given)};
      } else {
        require_cut(row);
        require_whole("commit", row);
        row.options.include_ignored = row.options.include_ignored || request.include_ignored;
        what = result(row);
      }
      if (what.reads) row.reads = services.catalog.keep_reads(row.id, what.reads->encoded());
      // A rule that came while the session was open counts too.
      const BranchRule rule = services.references.rule_of(row.options.branch);
      if (request.inside) what.kept = take_over(request.inside(), row, rule.ignore, held->quarantine());
      strengthen(row.options, rule);
    } catch (const std::exception& failure) {
      take_commit_back(services, row, failure.what(), request.who);
      throw;
    }
    if (!request.message.empty()) row.message = request.message;
    row.exit_code = request.exit_code;
    row.reason = request.reason;
    if (row.options.require_approval) return seal_result(services, row, hosted, what, request.who);
    return commit_result(services, row, hosted, what, request.by_hand ? CommitFor::by_hand : CommitFor::run,
                         request.who);
  });
}

void Session::Impl::conclude() {
  SessionRecord copy = copy_of_record();
  if (copy.state == State::committing) {
    conclude_commit(services, copy, hosted, "host");
    *record.lock() = copy;
  }
}

void Session::Impl::settle() {
  conclude();
  const SessionRecord row = copy_of_record();
  const bool has_ended = row.state == State::open && has_ended_forks(services, overlay);
  if (row.state != State::open || (!row.updating_to && !has_ended)) return;
  const WriteGate::Pause pause(gate);
  if (has_ended) settle_forks(services, overlay, [this](auto more) { add_stale(std::move(more)); });
  if (row.updating_to) finish_update();
}

// What programs find there afterwards is the base's, in files that look like the session's own.
void Session::Impl::apply(const std::vector<PathChange>& changes) {
  if (recorder) {
    std::vector<std::string> paths;
    for (const PathChange& change : changes) paths.push_back(change.path);
    recorder->taken_in(paths);
  }
  apply_changes(overlay, changes, [this](std::vector<Overlay::Stale> more) { add_stale(std::move(more)); });
}

std::vector<std::string> Session::Impl::paths_of(const std::vector<Overlay::Stale>& changed) {
  std::vector<std::string> paths;
  for (const Overlay::Stale& one : changed)
    for (const std::string& above : overlay.names(one.directory).paths) paths.push_back(join_path(above, one.name));
  return paths;
}

void Session::Impl::add_stale(std::vector<Overlay::Stale> more) {
  auto all = stale.lock();
  all->insert(all->end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

// One transaction of the catalog; the record follows it.
void Session::Impl::note(SessionRecord next, const std::string& who, const std::string& why) {
  next.changed = services.clock.now();
  services.catalog.transition(next.state, next, who, why);
  *record.lock() = std::move(next);
}

// Both are trees of the whole repository.
std::vector<PathChange> Session::Impl::changes_to(const TreeRoot& now, const TreeRoot& wanted) {
  const RepoPath prefix = copy_of_record().options.prefix;
  return tree_changes(held->quarantine(), tree_of(entry_at(held->quarantine(), now, prefix)),
                      tree_of(entry_at(held->quarantine(), wanted, prefix)));
}

void Session::Impl::take_in(const std::vector<PathChange>& changes) {
  apply(changes);
  // On the new base, a path that was taken in and then lost would look like a change of the session's.
  overlay.flush(true);
}

// Between its two rows the overlay shows some of what others changed and not the rest. On the old base a commit would
// bring the one back should others take it back, on the new base the other: so it is not used before it is finished.
UpdateOutcome Session::Impl::update(const ObjectId& head, bool keeps_conflicts) {
  try {
    return update_within_bounds(head, keeps_conflicts);
  } catch (const Error& error) {
    if (error.code() != Errc::result_too_large) throw;
    const SessionRecord row = copy_of_record();
    throw Error(error.code(), "cannot update session " + row.id.text() + " to commit " + head.hex() + " of branch '" +
                                  row.options.branch + "': " + error.what() +
                                  "; go on with the session as it is, or open a new one");
  }
}

UpdateOutcome Session::Impl::update_within_bounds(const ObjectId& head, bool keeps_conflicts) {
  SessionRecord row = copy_of_record();
  const SessionResult now = result(row);
  Quarantine& quarantine = held->quarantine();
  const TreeRoot head_tree = tree_of_commit(quarantine, head);
  MergeKeepingOurs merged = merge_keeping_ours(quarantine, now.base_tree, now.tree, head_tree);
  // On the new head the session would have read what never was there.
  if (now.reads && keeps_conflicts) refuse_changed_reads(quarantine, row, now, head_tree);
  if (now.reads && !keeps_conflicts)
    add_conflicts(merged.conflicts,
                  changed_reads(quarantine, *now.reads, row.options.prefix, now.base_tree, head_tree));
  if (!merged.conflicts.empty() && !keeps_conflicts) return {row.base, 0, std::move(merged.conflicts)};
  const RepoPath& prefix = row.options.prefix;
  const auto wanted = entry_at(quarantine, merged.tree, prefix);
  if (leaf_of(wanted) || !are_below(prefix, merged.conflicts))
    throw Error(Errc::not_a_directory, "cannot update session " + row.id.text() + ": others made a file of " +
                                           quote_path(prefix.text()) + ", the root of its mount");
  const std::vector<PathChange> changes = changes_to(now.tree, merged.tree);
  // What the overlay is about to refer to must outlive every gc.
  services.references.pin_base(row.id, head);
  row.updating_to = head;
  row.updating_keeps = keeps_conflicts;
  note(row, "update", "taking in " + head.hex());
  take_in(changes);
  end_update(true, versions_of(quarantine, merged.conflicts, now, head_tree));
  return {head, changes.size(), {}};
}

// What was taken in already is the head's, and so no change of the session's: taking it in again changes nothing. Where
// the session has changed meanwhile what is yet to be taken in, all of it is taken back, or it is unresolved.
void Session::Impl::finish_update() {
  const SessionRecord row = copy_of_record();
  Quarantine& quarantine = held->quarantine();
  // Between two bases there is no telling what is tracked.
  const SessionResult now = result(row, {.ignore = {.is_on = false}});
  const TreeRoot head_tree = tree_of_commit(quarantine, row.updating_to);
  const MergeKeepingOurs merged = merge_keeping_ours(quarantine, now.base_tree, now.tree, head_tree);
  const bool fits = row.updating_keeps || merged.conflicts.empty();
  take_in(changes_to(
      now.tree, fits ? merged.tree : merge_keeping_ours(quarantine, head_tree, now.tree, now.base_tree).tree));
  end_update(fits, versions_of(quarantine, merged.conflicts, now, head_tree));
}

void Session::Impl::end_update(bool is_on_new_head, const std::vector<Unresolved>& conflicts) {
  SessionRecord row = copy_of_record();
  const ObjectId head = *row.updating_to;
  if (is_on_new_head) row.base = head;
  if (is_on_new_head) add_unresolved(row.unresolved, conflicts);
  row.updating_to.reset();
  row.updating_keeps = false;
  note(row, "update", is_on_new_head ? "onto the new head" : "taken back: the session changed what was to be taken in");
  if (is_on_new_head) services.references.unpin_older(row.id, head);
}

Disputes Session::Impl::disputes(const SessionRecord& row, const std::optional<ObjectId>& head) {
  Disputes found{row.unresolved, {}};
  if (!head || head == row.base || row.parent) return found;
  const SessionResult now = result(row);
  const TreeRoot head_tree = tree_of_commit(held->quarantine(), head);
  const auto merged = merge_keeping_ours(held->quarantine(), now.base_tree, now.tree, head_tree);
  found.met_now = versions_of(held->quarantine(), merged.conflicts, now, head_tree);
  return found;
}

// `now`: what the session holds.
std::optional<Conflicts> Session::Impl::conflicts_met(const SessionRecord& row, const SessionResult& now) {
  if (!row.unresolved.empty()) return conflicts_of(row.unresolved);
  const std::optional<ObjectId> head = services.references.head(row.options.branch);
  if (!head || head == row.base || row.parent) return std::nullopt;
  Quarantine& quarantine = held->quarantine();
  auto merged = merge_onto(tree_of_commit(quarantine, head), now, row.options.branch, services, quarantine);
  auto* const conflicts = std::get_if<Conflicts>(&merged);
  return conflicts != nullptr ? std::optional<Conflicts>(std::move(*conflicts)) : std::nullopt;
}

Session::Session(const Services& services, SessionRecord record, std::unique_ptr<SessionDirectory> held)
    : impl_(std::make_unique<Impl>(services, std::move(record), std::move(held))) {}

Session::~Session() = default;

const SessionId& Session::id() const { return impl_->id; }
SessionRecord Session::record() const { return impl_->copy_of_record(); }
FileSystem& Session::file_system() { return impl_->gate; }
WriteGate& Session::gate() { return impl_->gate; }
ReadRecorder* Session::read_recorder() { return impl_->recorder.get(); }
Overlay& Session::overlay() { return impl_->overlay; }
Quarantine& Session::quarantine() { return impl_->held->quarantine(); }
std::string Session::directory() const { return impl_->held->path(); }
std::vector<Omission> Session::omitted() const { return *impl_->omitted.lock(); }

std::optional<ObjectId> Session::head() const { return impl_->services.references.head(record().options.branch); }

void Session::set_mountpoint(const std::string& mountpoint) {
  const auto busy = impl_->lock_verb();
  SessionRecord next = record();
  if (is_final(next.state) || next.result || next.mountpoint == mountpoint) return;
  next.mountpoint = mountpoint;
  next.changed = impl_->services.clock.now();
  impl_->services.catalog.note(next, "host", mountpoint.empty() ? "unmounted" : "mounted");
  *impl_->record.lock() = next;
}

void Session::note(const std::string& who, const std::string& what) {
  const auto busy = impl_->lock_verb();
  if (record().state == State::open) impl_->note(record(), who, what);
}

void Session::identify(const Container& container) {
  const auto busy = impl_->lock_verb();
  SessionRecord next = record();
  note_container(next.options.audit, container);
  if (next.state != State::open) return;
  impl_->note(next, "host", "its container is known");
}

CommitOutcome Session::commit(const CommitRequest& request) { return impl_->commit(request, std::nullopt); }

CommitOutcome Session::commit_tree(const std::optional<ObjectId>& tree, const CommitRequest& request) {
  return impl_->commit(request, std::optional<TreeRoot>(tree));
}

void Session::rollback(Reason reason, std::optional<int> exit_code, const std::string& who, bool keep_result) {
  const auto busy = impl_->lock_verb();
  // What is thrown away need not be finished first.
  keep_result ? impl_->settle() : impl_->conclude();
  impl_->with_record("roll back", [&](SessionRecord& row) {
    if (reason == Reason::requested) impl_->require_no_forks(row, "roll back");
    Rollback how;
    how.reason = reason;
    how.exit_code = exit_code;
    how.who = who;
    if (keep_result) how.keep = impl_->result_to_keep(row);
    roll_back(impl_->services, row, impl_->hosted, how);
  });
}

Preview Session::preview() {
  const auto busy = impl_->lock_verb();
  impl_->settle();
  const SessionRecord row = record();
  require_open(row, "look into");
  const SessionResult now = impl_->result(row);
  std::optional<Conflicts> met = impl_->conflicts_met(row, now);
  return {now.base_tree, now.tree, tree_changes(quarantine(), now.base_tree, now.tree), omitted(),
          met ? std::move(met->paths) : std::vector<Conflict>{}};
}

std::optional<Conflicts> Session::foreseen_conflicts() {
  const auto busy = impl_->lock_verb();
  const SessionRecord row = record();
  require_open(row, "commit");
  if (!row.unresolved.empty()) return conflicts_of(row.unresolved);
  const std::optional<ObjectId> head = impl_->services.references.head(row.options.branch);
  if (!head || head == row.base || row.parent) return std::nullopt;
  return impl_->conflicts_met(row, impl_->result(row));
}

std::vector<Overlay::Stale> Session::take_stale() { return std::exchange(*impl_->stale.lock(), {}); }

void Session::settle() {
  const auto busy = impl_->lock_verb();
  impl_->settle();
}

void Session::discard(const std::vector<RepoPath>& paths) {
  const auto busy = impl_->lock_verb();
  impl_->settle();
  const SessionRecord row = record();
  require_open(row, "discard changes of");
  if (row.parent)
    throw Error(Errc::not_supported, "cannot discard changes of session " + row.id.text() +
                                         ": it is a fork; restore one of its savepoints, or roll it back");
  const WriteGate::Pause pause(impl_->gate);
  const std::vector<PathChange> back = changes_back(impl_->overlay, impl_->services.objects, row, paths);
  impl_->apply(back);
  // Who was told that it is discarded does not find it in a commit, whatever dies meanwhile.
  impl_->overlay.flush(true);
  if (SessionRecord next = row; take_settled(next.unresolved, paths))
    impl_->note(next, "discard", "what was unresolved is the branch's");
}

std::vector<Unresolved> Session::unresolved() {
  const auto busy = impl_->lock_verb();
  impl_->settle();
  const SessionRecord row = record();
  require_open(row, "look into");
  return impl_->disputes(row, head()).all();
}

Resolution Session::resolve(const std::vector<RepoPath>& paths, Settle how, const std::string& who) {
  const auto busy = impl_->lock_verb();
  impl_->settle();
  require_open(record(), "resolve paths of");
  const WriteGate::Pause pause(impl_->gate);
  impl_->require_whole("resolve paths of", record());
  const std::optional<ObjectId> head = this->head();
  const Disputes all = impl_->disputes(record(), head);
  const std::vector<Unresolved> chosen = all.chosen(paths, impl_->id);
  Resolution done;
  // From here on the session is on the head that it met: what conflicts stays as the session has it.
  if (all.has_met_now(chosen)) done.merged = impl_->update(*head, true).merged;
  SessionRecord row = record();
  if (how == Settle::theirs) {
    const TreeRoot base = tree_of_commit(quarantine(), row.base);
    impl_->apply(changes_to(quarantine(), base, chosen, row.options.prefix));
    // Who was told that it is the branch's commits no other, whatever dies meanwhile.
    impl_->overlay.flush(true);
  }
  std::vector<RepoPath> settled;
  for (const Unresolved& one : chosen) {
    done.settled.push_back(one.path);
    settled.push_back(RepoPath::parse(one.path, "path"));
  }
  take_settled(row.unresolved, settled);
  impl_->note(row, who, std::string("settled as ") + name_of(how));
  done.left = row.unresolved;
  return done;
}

UpdateOutcome Session::update() {
  const auto busy = impl_->lock_verb();
  impl_->settle();
  const SessionRecord row = record();
  require_open(row, "update");
  if (row.parent)
    throw Error(Errc::not_supported, "cannot update session " + row.id.text() + ": it is a fork of session " +
                                         row.parent->text() + ", not of the branch's head");
  const std::optional<ObjectId> head = impl_->services.references.head(row.options.branch);
  if (head == row.base) return {row.base, 0, {}};
  if (!head)
    throw Error(Errc::no_branch, "cannot update session " + row.id.text() + ": branch '" + row.options.branch +
                                     "' was deleted; create it again first");
  const WriteGate::Pause pause(impl_->gate);
  // It may look like one that the session never touched, and others' content take the place of what is missing.
  impl_->require_whole("update", row);
  return impl_->update(*head, false);
}

}  // namespace escrow::session
