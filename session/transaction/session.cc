#include "session/transaction/session.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <iterator>
#include <map>
#include <thread>
#include <utility>

#include "session/base/error.h"
#include "session/transaction/apply_changes.h"
#include "session/transaction/commit.h"
#include "session/transaction/commit_message.h"
#include "session/transaction/disputes.h"
#include "session/transaction/savepoint_rules.h"
#include "session/transaction/session_tree.h"
#include "session/trees/tree_walk.h"

namespace escrow::session {
namespace {

// The session's directory, which the overlay stops writing to before it is removed.
class HostedDirectory final : public SessionDirectory {
 public:
  HostedDirectory(SessionDirectory& inner, Overlay& overlay) : inner_(inner), overlay_(overlay) {}
  StagingArea& staging() override { return inner_.staging(); }
  SessionJournal& journal() override { return inner_.journal(); }
  Quarantine& quarantine() override { return inner_.quarantine(); }
  std::string path() const override { return inner_.path(); }
  bool drop_staged() override {
    overlay_.abandon();
    return inner_.drop_staged();
  }
  void publish_caches() override { inner_.publish_caches(); }
  void remove() override {
    overlay_.abandon();
    inner_.remove();
  }

 private:
  SessionDirectory& inner_;
  Overlay& overlay_;
};

constexpr std::size_t kNamedFiles = 5;

void require_open(const SessionRecord& record, const char* verb) {
  if (record.state != State::open)
    throw Error(Errc::wrong_state, std::string("cannot ") + verb + " session " + record.id.text() + ": it is " +
                                       name_of(record.state) + ", and only an open session can change");
}

// A file whose content is lost is one.
bool is_in(FileSystem& files, const std::string& path) {
  try {
    return node_at(files, path).has_value();
  } catch (const Error& error) {
    if (error.code() != Errc::input_output) throw;
    return true;
  }
}

}  // namespace

struct Session::Impl {
  // Held for the whole of a verb, so that verbs exclude one another; guards nothing else.
  struct Verb {};

  Impl(const Services& all, SessionRecord row, std::unique_ptr<SessionDirectory> directory)
      : services(all),
        id(row.id),
        held(std::move(directory)),
        overlay(overlay_options(services.objects, services.times, row), services.objects, held->staging(),
                held->journal(), services.clock, services.log),
        gate(overlay, row.options.read_only ? WriteGate::Position::sealed : WriteGate::Position::open),
        hosted(*held, overlay),
        record(std::move(row)),
        storing([this] { store_settled(); }) {}
  ~Impl() {
    overlay.stop_settling();
    storing.join();
    try {
      if (record.lock()->state == State::open) gate.count_late_pages_as_lost();
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

  SessionResult result(const SessionRecord& of) {
    return result(of, services.references.rule_of(of.options.branch).ignore);
  }
  SessionResult result(const SessionRecord& of, const IgnoreRule& ignore) { return result(overlay, of, ignore); }
  SessionResult result(Overlay& shown, const SessionRecord& of, const IgnoreRule& ignore) {
    std::vector<Omission> left_out;
    SessionResult now = session_result(shown, of, ignore, held->quarantine(), left_out);
    *omitted.lock() = std::move(left_out);
    return now;
  }

  // A rollback is not held up by rules that cannot be read.
  SessionResult result_to_keep(const SessionRecord& of) {
    try {
      return result(of);
    } catch (const Error& error) {
      if (error.code() != Errc::bad_request) throw;
      return result(of, {.is_on = false});
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
    if (paths.empty()) return;
    std::string named;
    for (std::size_t at = 0; at < std::min(paths.size(), kNamedFiles); ++at)
      named += (at == 0 ? "" : ", ") + quote_path(paths[at]);
    if (paths.size() > kNamedFiles) named += " and " + std::to_string(paths.size() - kNamedFiles) + " more";
    throw Error(Errc::data_lost,
                std::string("cannot ") + what + " session " + row.id.text() +
                    ": what programs stored in " + named +
                    " could not be written back when it was to be (the disk was full, or a limit was reached) and is "
                    "lost; write the file again, remove or discard it, then " + what + " again");
  }

  // Verbs call one of them first, under their lock: what an earlier verb has left undecided, or half done.
  void conclude();
  void settle();
  CommitOutcome commit(const CommitRequest& request, const std::optional<TreeRoot>& given);
  void note(SessionRecord next, const std::string& who, const std::string& why);
  UpdateOutcome update(const ObjectId& head, bool keeps_conflicts);
  void finish_update();
  void end_update(bool is_on_new_head, const std::vector<Unresolved>& conflicts);
  Disputes disputes(const SessionRecord& row, const std::optional<ObjectId>& head);
  std::uint64_t take_in(const TreeRoot& now, const TreeRoot& wanted);
  void apply(const std::vector<PathChange>& changes);
  void add_stale(std::vector<Overlay::Stale> more);
  void require_same_base(const std::string& savepoint, const SessionRecord& row);
  void seal_as(const std::string& savepoint, const SessionRecord& row);

  const Services services;                         // constant; self-locking
  const SessionId id;                              // constant
  const std::unique_ptr<SessionDirectory> held;    // constant; used by verbs and the overlay
  Overlay overlay;                                 // self-locking
  WriteGate gate;                                  // self-locking
  HostedDirectory hosted;                          // used by verbs
  Synchronized<Verb> verb;
  Synchronized<SessionRecord> record;
  Synchronized<std::vector<Omission>> omitted;
  Synchronized<std::vector<Overlay::Stale>> stale;
  std::atomic<int> verbs_waiting = 0;
  std::thread storing;                             // started last
};

CommitOutcome Session::Impl::commit(const CommitRequest& request, const std::optional<TreeRoot>& given) {
  check_commit_message(request.message);
  const auto busy = lock_verb();
  settle();
  return with_record("commit", [&](SessionRecord& row) -> CommitOutcome {
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
      // A rule that came while the session was open counts too.
      strengthen(row.options, services.references.rule_of(row.options.branch));
    } catch (const std::exception& failure) {
      take_commit_back(services, row, failure.what(), request.who);
      throw;
    }
    if (!request.message.empty()) row.message = request.message;
    row.exit_code = request.exit_code;
    row.reason = request.reason;
    if (row.options.require_approval) return seal_result(services, row, hosted, what, request.who);
    const CommitFor whom = request.by_hand ? CommitFor::by_hand : CommitFor::run;
    return commit_result(services, row, hosted, what, whom, request.who);
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
  if (row.state != State::open || !row.updating_to) return;
  const WriteGate::Pause pause(gate);
  finish_update();
}

void Session::Impl::apply(const std::vector<PathChange>& changes) {
  apply_changes(overlay, changes, [this](std::vector<Overlay::Stale> more) { add_stale(std::move(more)); });
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

// Both are trees of the whole repository. How many paths that was.
std::uint64_t Session::Impl::take_in(const TreeRoot& now, const TreeRoot& wanted) {
  const RepoPath prefix = copy_of_record().options.prefix;
  const std::vector<PathChange> changes =
      tree_changes(held->quarantine(), tree_of(entry_at(held->quarantine(), now, prefix)),
                   tree_of(entry_at(held->quarantine(), wanted, prefix)));
  apply(changes);
  // On the new base, a path that was taken in and then lost would look like a change of the session's.
  overlay.flush(true);
  return changes.size();
}

// Between its two rows the overlay shows some of what others changed and not the rest. On the old base a commit would
// bring the one back should others take it back, on the new base the other: so it is not used before it is finished.
UpdateOutcome Session::Impl::update(const ObjectId& head, bool keeps_conflicts) {
  SessionRecord row = copy_of_record();
  const SessionResult now = result(row);
  Quarantine& quarantine = held->quarantine();
  const TreeRoot head_tree = tree_of_commit(quarantine, head);
  MergeKeepingOurs merged = merge_keeping_ours(quarantine, now.base_tree, now.tree, head_tree);
  if (!merged.conflicts.empty() && !keeps_conflicts) return {row.base, 0, std::move(merged.conflicts)};
  const RepoPath& prefix = row.options.prefix;
  const auto wanted = entry_at(quarantine, merged.tree, prefix);
  if (leaf_of(wanted) || !are_below(prefix, merged.conflicts))
    throw Error(Errc::not_a_directory, "cannot update session " + row.id.text() + ": others made a file of " +
                                           quote_path(prefix.text()) + ", the root of its mount");
  // What the overlay is about to refer to must outlive every gc.
  services.references.pin_base(row.id, head);
  row.updating_to = head;
  row.updating_keeps = keeps_conflicts;
  note(row, "update", "taking in " + head.hex());
  const std::uint64_t count = take_in(now.tree, merged.tree);
  end_update(true, versions_of(quarantine, merged.conflicts, now, head_tree));
  return {head, count, {}};
}

// What was taken in already is the head's, and so no change of the session's: taking it in again changes nothing. Where
// the session has changed meanwhile what is yet to be taken in, all of it is taken back, or it is unresolved.
void Session::Impl::finish_update() {
  const SessionRecord row = copy_of_record();
  Quarantine& quarantine = held->quarantine();
  // Between two bases there is no telling what is tracked.
  const SessionResult now = result(row, {.is_on = false});
  const TreeRoot head_tree = tree_of_commit(quarantine, row.updating_to);
  const MergeKeepingOurs merged = merge_keeping_ours(quarantine, now.base_tree, now.tree, head_tree);
  const bool fits = row.updating_keeps || merged.conflicts.empty();
  take_in(now.tree, fits ? merged.tree : merge_keeping_ours(quarantine, head_tree, now.tree, now.base_tree).tree);
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
  if (!head || head == row.base) return found;
  const SessionResult now = result(row);
  const TreeRoot head_tree = tree_of_commit(held->quarantine(), head);
  const auto merged = merge_keeping_ours(held->quarantine(), now.base_tree, now.tree, head_tree);
  found.met_now = versions_of(held->quarantine(), merged.conflicts, now, head_tree);
  return found;
}

Session::Session(const Services& services, SessionRecord record, std::unique_ptr<SessionDirectory> held)
    : impl_(std::make_unique<Impl>(services, std::move(record), std::move(held))) {}

Session::~Session() = default;

const SessionId& Session::id() const { return impl_->id; }
SessionRecord Session::record() const { return impl_->copy_of_record(); }
FileSystem& Session::file_system() { return impl_->gate; }
WriteGate& Session::gate() { return impl_->gate; }
Overlay& Session::overlay() { return impl_->overlay; }
Quarantine& Session::quarantine() { return impl_->held->quarantine(); }
std::string Session::directory() const { return impl_->held->path(); }
std::vector<Omission> Session::omitted() const { return *impl_->omitted.lock(); }

std::optional<ObjectId> Session::head() const {
  return impl_->services.references.head(record().options.branch);
}

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

void Session::identify(const std::string& image, const std::string& trigger_id) {
  check_audit_value(image, "the image");
  check_audit_value(trigger_id, "the trigger's id");
  const auto busy = impl_->lock_verb();
  SessionRecord next = record();
  if (next.state != State::open) return;
  next.options.audit.image = image;
  next.options.audit.trigger_id = trigger_id;
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
  return {now.base_tree, now.tree, tree_changes(quarantine(), now.base_tree, now.tree), omitted()};
}

std::optional<Conflicts> Session::foreseen_conflicts() {
  const auto busy = impl_->lock_verb();
  const SessionRecord row = record();
  require_open(row, "commit");
  if (!row.unresolved.empty()) return conflicts_of(row.unresolved);
  const std::optional<ObjectId> head = impl_->services.references.head(row.options.branch);
  if (!head || head == row.base) return std::nullopt;
  const SessionResult now = impl_->result(row);
  const TreeRoot head_tree = tree_of_commit(quarantine(), head);
  auto merged = merge_onto(head_tree, now, row.options.branch, impl_->services, quarantine());
  auto* const conflicts = std::get_if<Conflicts>(&merged);
  return conflicts != nullptr ? std::optional<Conflicts>(std::move(*conflicts)) : std::nullopt;
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
  const RepoPath& prefix = row.options.prefix;
  const ObjectReader& objects = impl_->services.objects;
  const TreeRoot base = tree_of_commit(objects, row.base);
  const WriteGate::Pause pause(impl_->gate);

  std::vector<PathChange> back;
  for (const RepoPath& path : paths) {
    if (!prefix.contains(path))
      throw Error(Errc::not_found, "cannot discard " + quote_path(path.text()) + ": the session works below " +
                                       quote_path(prefix.text()) + " only; give a path as escrow diff shows it");
    std::string below = path.text().substr(prefix.text().size());
    if (below.starts_with('/')) below.erase(0, 1);
    const std::optional<TreeEntry> entry = entry_at(objects, base, path);
    if (!below.empty()) {
      if (!entry && !is_in(impl_->overlay, below))
        throw Error(Errc::not_found, "cannot discard " + quote_path(path.text()) +
                                         ": neither the session nor its base has it; see escrow diff");
      back.push_back({below, Did::modified, std::nullopt, entry});
      continue;
    }
    std::map<std::string, std::optional<TreeEntry>> all;
    for (const std::string& name : names_in(impl_->overlay, kRootNode)) all[name];
    for (TreeEntry& one : read_tree_or_empty(objects, tree_of(entry))) all[one.name] = one;
    for (const auto& [name, was] : all) back.push_back({name, Did::modified, std::nullopt, was});
  }
  impl_->apply(back);
  // Who was told that it is discarded does not find it in a commit, whatever dies meanwhile.
  impl_->overlay.flush(true);
  SessionRecord next = row;
  if (take_settled(next.unresolved, paths)) impl_->note(next, "discard", "what was unresolved is the branch's");
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

// Over another base, what others changed would look like changes of the session's.
void Session::Impl::require_same_base(const std::string& savepoint, const SessionRecord& row) {
  for (const Savepoint& one : overlay.savepoints())
    if (one.name == savepoint && one.context != savepoint_context(row))
      throw Error(Errc::wrong_state, "cannot go back to savepoint '" + savepoint + "' of session " + row.id.text() +
                                         ": the session has come onto another head, or its conflicts were settled, "
                                         "since; drop the savepoint, or open another session");
}

void Session::Impl::seal_as(const std::string& savepoint, const SessionRecord& row) {
  overlay.flush(true);  // so that writers wait for what came since only
  const WriteGate::Pause pause(gate);
  overlay.create_savepoint(savepoint, savepoint_context(row));
}

std::vector<Savepoint> Session::savepoints() { return impl_->overlay.savepoints(); }

void Session::create_savepoint(const std::string& name) {
  check_savepoint_name(name);
  const auto busy = impl_->lock_verb();
  impl_->settle();
  const SessionRecord row = record();
  require_open(row, "make a savepoint of");
  impl_->seal_as(name, row);
}

Preview Session::preview_since(const std::string& savepoint) {
  const auto busy = impl_->lock_verb();
  impl_->settle();
  const SessionRecord row = record();
  require_open(row, "look into");
  const std::unique_ptr<Overlay> then = impl_->overlay.at_savepoint(savepoint);
  impl_->require_same_base(savepoint, row);
  const IgnoreRule ignore = impl_->services.references.rule_of(row.options.branch).ignore;
  const SessionResult before = impl_->result(*then, row, ignore), now = impl_->result(row, ignore);
  return {before.tree, now.tree, tree_changes(quarantine(), before.tree, now.tree), omitted()};
}

std::string Session::restore_savepoint(const std::string& name) {
  const auto busy = impl_->lock_verb();
  impl_->settle();
  const SessionRecord row = record();
  require_open(row, "restore a savepoint of");
  impl_->overlay.at_savepoint(name);  // or there is none
  impl_->require_same_base(name, row);
  const WriteGate::Pause pause(impl_->gate);
  const std::string undo = name_before_restore(impl_->overlay.savepoints());
  impl_->seal_as(undo, row);
  impl_->add_stale(impl_->overlay.restore_savepoint(name));
  return undo;
}

void Session::drop_savepoint(const std::string& name) {
  const auto busy = impl_->lock_verb();
  impl_->settle();
  require_open(record(), "drop a savepoint of");
  const WriteGate::Pause pause(impl_->gate);
  impl_->overlay.drop_savepoint(name);
}

UpdateOutcome Session::update() {
  const auto busy = impl_->lock_verb();
  impl_->settle();
  const SessionRecord row = record();
  require_open(row, "update");
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
