// Savepoints and forks of a session: what is sealed of it, and what comes of that.
#include "session/transaction/session_impl.h"

namespace escrow::session {

// Over another base, what others changed would look like changes of the session's.
void Session::Impl::require_same_base(const std::string& savepoint, const SessionRecord& row) {
  refuse_own_savepoint(savepoint);
  for (const Savepoint& one : overlay.savepoints())
    if (one.name == savepoint && one.context != savepoint_context(row))
      throw Error(Errc::wrong_state, "cannot go back to savepoint '" + savepoint + "' of session " + row.id.text() +
                                         ": the session has come onto another head, or its conflicts were settled, "
                                         "since; drop the savepoint, or open another session");
}

void Session::Impl::seal_as(const std::string& savepoint, const SessionRecord& row, const IsCut& is_cut) {
  if (!gate.holds_calls_back()) overlay.flush(true);  // so that writers wait for little; who holds them did
  std::optional<WriteGate::Pause> pause(std::in_place, gate);
  overlay.create_savepoint(savepoint, savepoint_context(row));
  pause.reset();
  if (is_cut) is_cut();
  overlay.flush(true);
}

std::vector<Savepoint> Session::savepoints() {
  std::vector<Savepoint> all = impl_->overlay.savepoints();
  std::erase_if(all, [](const Savepoint& one) { return is_own_savepoint(one.name); });
  return all;
}

void Session::fork_into(const SessionId& fork, const std::function<void()>& is_cut) {
  const auto busy = impl_->lock_verb();
  impl_->settle();
  const SessionRecord row = record();
  require_open(row, "fork");
  impl_->overlay.flush(true);  // so that writers wait for what came since only
  {
    const WriteGate::Pause pause(impl_->gate);
    seal_for_fork(impl_->services, impl_->overlay, row, fork);
  }
  is_cut();
  fill_fork(impl_->services, impl_->overlay, *impl_->held, row, fork);
}

CommitOutcome Session::land(const SessionId& fork, const CommitRequest& request) {
  const auto busy = impl_->lock_verb();
  impl_->settle();
  const SessionRecord row = record();
  require_open(row, "commit a fork into");
  const WriteGate::Pause pause(impl_->gate);
  impl_->require_whole("commit a fork into", row);
  return land_fork(impl_->services, impl_->overlay, *impl_->held, row, fork, request, *impl_->omitted.lock(),
                   [this](auto more) { impl_->add_stale(std::move(more)); });
}

std::vector<SessionId> Session::forks() { return living_forks(impl_->services, impl_->overlay); }

void Session::create_savepoint(const std::string& name, const IsCut& is_cut) {
  check_savepoint_name(name);
  const auto busy = impl_->lock_verb();
  impl_->settle();
  const SessionRecord row = record();
  require_open(row, "make a savepoint of");
  impl_->seal_as(name, row, is_cut);
}

Preview Session::preview_since(const std::string& savepoint) {
  const auto busy = impl_->lock_verb();
  impl_->settle();
  const SessionRecord row = record();
  require_open(row, "look into");
  const std::unique_ptr<Overlay> then = impl_->overlay.at_savepoint(savepoint);
  impl_->require_same_base(savepoint, row);
  const BranchRule rule = impl_->services.references.rule_of(row.options.branch);
  const SessionResult before = impl_->result(*then, row, rule), now = impl_->result(row, rule);
  return {before.tree, now.tree, tree_changes(quarantine(), before.tree, now.tree), omitted()};
}

Session::Restored Session::restore_savepoint(const std::string& name) {
  const auto busy = impl_->lock_verb();
  impl_->settle();
  const SessionRecord row = record();
  require_open(row, "restore a savepoint of");
  impl_->overlay.at_savepoint(name);  // or there is none
  impl_->require_same_base(name, row);
  const WriteGate::Pause pause(impl_->gate);
  const std::string undo = name_before_restore(impl_->overlay.savepoints());
  impl_->seal_as(undo, row, {});
  // Not behind the restore: after a kill in between, the commit would publish what the restore has not covered.
  std::vector<std::string> caches = impl_->hosted.drop_caches();
  if (impl_->recorder) impl_->recorder->begin_taking_in();
  std::vector<Overlay::Stale> stale = impl_->overlay.restore_savepoint(name);
  if (impl_->recorder) impl_->recorder->end_taking_in(impl_->paths_of(stale));
  impl_->add_stale(std::move(stale));
  return {.undo = undo, .caches = std::move(caches)};
}

void Session::drop_savepoint(const std::string& name) {
  const auto busy = impl_->lock_verb();
  impl_->settle();
  require_open(record(), "drop a savepoint of");
  refuse_own_savepoint(name);
  const WriteGate::Pause pause(impl_->gate);
  impl_->overlay.drop_savepoint(name);
}

}  // namespace escrow::session
