#include "session/transaction/commit.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "session/base/error.h"
#include "session/base/still_wanted.h"
#include "session/transaction/commit_chain.h"
#include "session/transaction/commit_message.h"
#include "session/trees/tree_walk.h"
#include "session/trees/unfiltered_changes.h"

namespace escrow::session {
namespace {

// A history longer than this is not walked to the end; the reflog answers instead.
constexpr std::size_t kMaxWalkedCommits = 100'000;

// What takes long to bring to the disk is brought there before anybody waits for it.
constexpr std::uint64_t kMuch_bytes = std::uint64_t{4} << 20;

void tell(const Services& services, CommitStep step) {
  if (services.observer) services.observer->reached(step);
}

// One transaction of the catalog; `record` changes only when it succeeded.
void transition(const Services& services, SessionRecord& record, SessionRecord next, const std::string& who,
                const std::string& why) {
  next.changed = services.clock.now();
  if (is_final(next.state)) next.mountpoint.clear();
  services.catalog.transition(record.state, next, who, why);
  record = std::move(next);
}

Commit commit_of(const Services& services, Quarantine& quarantine, const SessionRecord& record, const TreeRoot& tree,
                 const std::optional<ObjectId>& parent, const ChangeCounts& counts) {
  Commit commit;
  commit.tree = tree ? *tree : quarantine.put_tree({});
  if (parent) commit.parents.push_back(*parent);
  commit.author = commit.committer = signature_of(record.options.audit, services.clock.now());
  commit.message = compose_commit_message(record, counts);
  return commit;
}

// One commit of `tree`, or `kept`, the last of which has that tree. Returns the last.
ObjectId put_commits(const Services& services, Quarantine& quarantine, const SessionRecord& record,
                     const TreeRoot& tree, const std::optional<ObjectId>& head, const TreeRoot& head_tree,
                     const std::vector<KeptCommit>& kept) {
  if (kept.empty())
    return quarantine.put_commit(commit_of(services, quarantine, record, tree, head, *record.counts));
  std::optional<ObjectId> parent = head;
  const TreeRoot* before = &head_tree;
  SessionRecord said = record;
  for (const KeptCommit& one : kept) {
    said.message = one.message;
    Commit commit = commit_of(services, quarantine, said, one.tree, parent,
                              count_changes(quarantine, *before, one.tree));
    if (one.author_time_s != 0)
      commit.author.time_s = std::clamp(one.author_time_s, std::min(record.created.seconds, commit.author.time_s),
                                        commit.author.time_s);
    parent = quarantine.put_commit(commit);
    before = &one.tree;
  }
  return *parent;
}

// A result keeps bytes that no commit may have, or they would be lost. Its reference is hidden from fetches.
void hide_unfiltered(const Services& services, const SessionRecord& record, const Quarantine& quarantine,
                     const SessionResult& result) {
  const std::string name = "refs/sessions/" + record.id.text();
  std::string what, hidden = "git fetch and clone are not shown " + name;
  try {
    const BranchRule rule = services.references.rule_of(record.options.branch);
    if (rule.stores_raw) return;
    what = named(unfiltered_changes(quarantine, result.base_tree, result.tree, rule.attributes_file));
    if (what.empty()) return;
  } catch (const Error& error) {
    what = std::string("any file, for all that can be told: ") + error.what();
  }
  try {
    services.references.hide_result(record.id);
  } catch (const Error& error) {
    hidden = "git fetch takes " + name + ", which could not be hidden: " + error.what();
  }
  services.log.write(LogLevel::warning,
                     "the result of session " + record.id.text() + " has bytes that git would convert at check-in as "
                     "they are, for example in clear text: " + what + "; " + hidden +
                     "; git push --mirror from this repository takes it along");
}

// refs/sessions/<id>: the session's own tree on its base, as it was before anyone merged anything. Returns what it
// changed.
ChangeCounts keep_result(const Services& services, const SessionRecord& record, Quarantine& quarantine,
                         const SessionResult& result) {
  const ChangeCounts counts = count_changes(quarantine, result.base_tree, result.tree);
  const ObjectId commit =
      quarantine.put_commit(commit_of(services, quarantine, record, result.tree, result.base, counts));
  hide_unfiltered(services, record, quarantine, result);
  const auto published = quarantine.publish(commit);
  services.references.keep_result(record.id, commit);
  return counts;
}

// What a session that waits, or is open, is not to say: nobody has decided about it.
void forget_review(SessionRecord& record) {
  record.swap_from.reset();
  record.swap_to.reset();
  record.reviewer.clear();
  record.review_comment.clear();
}

SessionRecord committed_record(const SessionRecord& record) {
  SessionRecord next = record;
  next.state = State::committed;
  if (next.reason == Reason::none) next.reason = Reason::success;
  next.commit = record.swap_to;
  next.last_error.clear();
  return next;
}

// For the time, what others are about to commit can be read in the quarantine.
class ReadThrough {
 public:
  ReadThrough(Quarantine& quarantine, std::vector<const Quarantine*> others) : quarantine_(quarantine) {
    quarantine_.read_through(std::move(others));
  }
  ~ReadThrough() { quarantine_.read_through({}); }
  ReadThrough(const ReadThrough&) = delete;
  ReadThrough& operator=(const ReadThrough&) = delete;

 private:
  Quarantine& quarantine_;
};

// Whether there is something to commit, and nothing against it.
bool is_commit(const std::variant<TreeRoot, Conflicts>& merged, const TreeRoot& head_tree) {
  const TreeRoot* tree = std::get_if<TreeRoot>(&merged);
  return tree != nullptr && *tree != head_tree;
}

class Committer {
 public:
  Committer(const Services& services, SessionRecord& record, SessionDirectory& directory, const SessionResult& result,
            CommitFor whom, const std::string& who)
      : services_(services), record_(record), directory_(directory), quarantine_(directory.quarantine()),
        result_(result), whom_(whom), who_(who) {}

  CommitOutcome run(CommitOutcome (Committer::*work)()) {
    try {
      return (this->*work)();
    } catch (const Error& failure) {
      if (std::optional<CommitOutcome> outcome = undo_or_conclude(failure.what())) return *std::move(outcome);
      if (!may_have_landed_ || record_.state != State::committing) throw;
      throw Error(failure.code(), std::string(failure.what()) + "; branch '" + record_.options.branch +
                                      "' may have moved to " + record_.swap_to->hex() + " all the same: session " +
                                      record_.id.text() + " is committing, and the next command finds out");
    } catch (const std::exception& failure) {
      if (std::optional<CommitOutcome> outcome = undo_or_conclude(failure.what())) return *std::move(outcome);
      throw;
    }
  }

  CommitOutcome commit() {
    const std::string& branch = record_.options.branch;
    if (result_.tree == result_.base_tree) return nothing_to_commit();
    refuse_unfiltered(result_.base_tree, result_.tree);
    CommitChains own;
    CommitChains& chains = services_.chains != nullptr ? *services_.chains : own;
    bool alone = whom_ == CommitFor::reviewer;
    if (quarantine_.held_bytes() > kMuch_bytes) publish_ahead();
    const auto take = [&] { return services_.references.take_turn(branch); };
    for (int attempt = 0; attempt < kMaxSwapAttempts; ++attempt) {
      std::unique_ptr<CommitChains::Link> link = chains.join(branch, alone, take);
      const ReadThrough reading(quarantine_, link->unlanded());
      const std::optional<ObjectId> before = link->before();
      const std::optional<ObjectId> head = before ? before : services_.references.head(branch);
      if (!head && result_.base)
        throw Error(Errc::no_branch, "cannot commit to branch '" + branch +
                                         "': it was deleted since the session began; create it again, at " +
                                         result_.base->hex() + " for example, and commit again");
      const TreeRoot head_tree = tree_of_commit(quarantine_, head);
      auto merged = merge_onto(head_tree, result_, branch, services_, quarantine_);
      if (before && !is_commit(merged, head_tree)) {
        alone = true;  // what is not yet in the branch may never be: no reason to refuse anything, or to be done
        continue;
      }
      if (auto* conflicts = std::get_if<Conflicts>(&merged)) return conflict(std::move(*conflicts));
      const TreeRoot tree = std::get<TreeRoot>(merged);
      if (tree == head_tree) return nothing_to_commit();
      if (whom_ == CommitFor::reviewer && head != result_.base) {
        refuse_unfiltered(head_tree, tree);
        return show_again(tree, head, head_tree);
      }
      record_.counts = count_changes(quarantine_, head_tree, tree);
      const KeptCommits kept = kept_on(head_tree, tree, result_.kept, branch, services_, quarantine_);
      squashed_ = kept.why_not;
      refuse_unfiltered_on(head_tree, tree, kept.commits, head == result_.base);
      const ObjectId made = put_commits(services_, quarantine_, record_, tree, head, head_tree, kept.commits);
      link->made(made, quarantine_, "escrow: session " + record_.id.text());
      if (!swap(*link, head, made)) continue;
      link.reset();  // from here on nobody reads the quarantine, which goes
      return landed();
    }
    throw Error(Errc::branch_moved, "cannot commit to branch '" + branch + "': others moved it " +
                                        std::to_string(kMaxSwapAttempts) + " times meanwhile; commit again");
  }

  CommitOutcome seal() {
    if (result_.tree == result_.base_tree) return nothing_to_commit();
    refuse_unfiltered(result_.base_tree, result_.tree);
    SessionRecord next = record_;
    next.counts = count_changes(quarantine_, result_.base_tree, result_.tree);
    const ObjectId made =
        quarantine_.put_commit(commit_of(services_, quarantine_, record_, result_.tree, result_.base, *next.counts));
    tell(services_, CommitStep::sealed_tree_built);
    const auto published = quarantine_.publish(made);
    tell(services_, CommitStep::objects_durable);
    services_.references.keep_result(record_.id, made);
    tell(services_, CommitStep::result_referenced);
    next.state = State::awaiting_approval;
    next.reason = Reason::none;
    next.result = made;
    if (const std::int64_t seconds = record_.options.approval_expires_s; seconds > 0) {
      next.expires = services_.clock.now();
      next.expires->seconds += seconds;
    }
    next.mountpoint.clear();
    next.last_error.clear();
    transition(services_, record_, std::move(next), who_, "sealed as " + made.hex());
    tell(services_, CommitStep::approval_awaited);
    drop_staged();
    tell(services_, CommitStep::cleaned_up);
    const bool was_to_be_kept = !result_.kept.commits.empty() || !result_.kept.why_not.empty();
    return AwaitingApproval{made, *record_.counts, record_.expires,
                            was_to_be_kept ? "what awaits approval is one commit" : ""};
  }

  CommitOutcome conflict(Conflicts conflicts) {
    SessionRecord next = record_;
    next.swap_from.reset();
    next.swap_to.reset();
    next.counts = before_.counts;
    if (whom_ != CommitFor::run) {
      const bool waits = whom_ == CommitFor::reviewer;
      if (waits) forget_review(next);
      next.message = waits ? before_.message : next.message;
      next.state = waits ? State::awaiting_approval : State::open;
      next.reason = Reason::none;
      if (!waits) next.exit_code.reset();
      transition(services_, record_, std::move(next), who_,
                 std::string(kMetConflicts) + (waits ? ": the session goes on waiting" : ": the session stays open"));
      return conflicts;
    }
    next.counts = keep_result(services_, record_, quarantine_, result_);
    next.state = State::commit_failed;
    next.reason = Reason::conflict;
    for (const Conflict& one : conflicts.paths) next.conflicts.push_back(one.path);
    transition(services_, record_, std::move(next), who_, std::string(kMetConflicts));
    tell(services_, CommitStep::outcome_recorded);
    clean_up_or_log(services_, record_, directory_);
    return conflicts;
  }

 private:
  // Before anything of it is in the repository.
  void refuse_unfiltered(const TreeRoot& before, const TreeRoot& after) const {
    const BranchRule rule = services_.references.rule_of(record_.options.branch);
    if (rule.stores_raw) return;
    const std::vector<UnfilteredChange> found = unfiltered_changes(quarantine_, before, after, rule.attributes_file);
    if (found.empty()) return;
    throw Error(Errc::wrong_state,
                "cannot commit session " + record_.id.text() + ": git attributes ask for a conversion at check-in "
                "that Escrow does not make, and the bytes would be committed as they are, for example in clear text: " +
                    named(found) + "; `escrow discard` gives changes up, a session with --exclude leaves such paths "
                "out, and `git config escrow.filters raw` commits them as they are");
  }

  // On a head that is not the session's base attributes may be others; commits of git inside may have had other files.
  void refuse_unfiltered_on(const TreeRoot& head_tree, const TreeRoot& tree, const std::vector<KeptCommit>& kept,
                            bool is_on_base) const {
    const TreeRoot* before = &head_tree;
    for (const KeptCommit& one : kept) {
      refuse_unfiltered(*before, one.tree);
      before = &one.tree;
    }
    if (kept.empty() && !is_on_base) refuse_unfiltered(head_tree, tree);
  }

  // The objects of the commit as it would be now. Whatever it will be made on, most of them are what is published then;
  // they stay protected as long as the session has its directory.
  void publish_ahead() {
    const std::optional<ObjectId> head = services_.references.head(record_.options.branch);
    const TreeRoot head_tree = tree_of_commit(quarantine_, head);
    const auto merged = merge_onto(head_tree, result_, record_.options.branch, services_, quarantine_);
    if (!is_commit(merged, head_tree)) return;
    refuse_unfiltered_on(head_tree, std::get<TreeRoot>(merged), {}, head == result_.base);
    const auto published = quarantine_.publish(quarantine_.put_commit(
        commit_of(services_, quarantine_, record_, std::get<TreeRoot>(merged), head, ChangeCounts{})));
  }

  // Steps 5 and 6. The branch has moved, for good: nothing that fails from here on makes that a failure.
  CommitOutcome landed() {
    const Committed outcome{*record_.swap_to, record_.counts.value_or(ChangeCounts{}), squashed_};
    for (const bool is_last : {false, true}) {
      try {
        record_committed(services_, record_, directory_, who_, "committed");
        return outcome;
      } catch (const std::exception& failure) {
        // A full disk: nothing that was staged is needed any more.
        if (!is_last) drop_staged();
        if (is_last) leave_to_recovery(failure.what());
      }
    }
    return outcome;
  }

  // The row says `committing`, the session is over for this process: whoever holds its directory next records it.
  void leave_to_recovery(const std::string& why) {
    services_.log.write(LogLevel::warning, "session " + record_.id.text() + " was committed as " +
                                               record_.swap_to->hex() + ", but that could not be recorded (the next "
                                               "command does it): " + why);
    record_ = committed_record(record_);
  }

  // Others moved the branch since the reviewer looked: what would be committed now has to be looked at first.
  CommitOutcome show_again(const TreeRoot& tree, const std::optional<ObjectId>& head, const TreeRoot& head_tree) {
    SessionRecord next = record_;
    forget_review(next);
    next.message = before_.message;
    next.counts = count_changes(quarantine_, head_tree, tree);
    const ObjectId made = quarantine_.put_commit(commit_of(services_, quarantine_, next, tree, head, *next.counts));
    const auto published = quarantine_.publish(made);
    services_.references.keep_result(record_.id, made);
    next.state = State::awaiting_approval;
    next.reason = Reason::none;
    next.result = made;
    next.last_error.clear();
    transition(services_, record_, std::move(next), who_, "others moved the branch: the result is now " + made.hex());
    return AwaitingApproval{made, *record_.counts, record_.expires};
  }

  // Of a session that is sealed, or whose commit is in the branch.
  void drop_staged() {
    try {
      directory_.drop_staged();
    } catch (const std::exception& failure) {
      services_.log.write(LogLevel::warning, "session " + record_.id.text() +
                                                 " needs nothing any more of what it had staged, but that could not be "
                                                 "removed (the next command tries again): " + failure.what());
    }
  }

  // Steps 1 to 4; false when another commit was there first.
  bool swap(CommitChains::Link& link, const std::optional<ObjectId>& head, const ObjectId& commit) {
    tell(services_, CommitStep::sealed_tree_built);
    const auto published = quarantine_.publish(commit);
    quarantine_.read_through({});
    if (!link.published()) return false;
    tell(services_, CommitStep::objects_durable);
    SessionRecord intent = record_;
    intent.state = State::committing;
    intent.swap_from = head;
    intent.swap_to = commit;
    intent.last_error.clear();
    transition(services_, record_, std::move(intent), who_, "committing");
    tell(services_, CommitStep::intent_recorded);
    may_have_landed_ = true;
    const bool has_moved = link.land([&](const std::vector<ReferenceStore::Move>& moves) {
      return services_.references.move_through(record_.options.branch, head, moves);
    });
    if (!has_moved) {
      may_have_landed_ = false;
      return false;
    }
    tell(services_, CommitStep::branch_moved);
    return true;
  }

  CommitOutcome nothing_to_commit() {
    SessionRecord next = record_;
    next.state = State::committed;
    next.reason = Reason::no_changes;
    next.counts = ChangeCounts{};
    next.commit.reset();
    next.swap_from.reset();
    next.swap_to.reset();
    next.last_error.clear();
    transition(services_, record_, std::move(next), who_, "nothing to commit");
    tell(services_, CommitStep::outcome_recorded);
    clean_up_or_log(services_, record_, directory_);
    return NothingToCommit{};
  }

  // Nothing: it failed, and what the row says is all that is known. The catalog may be what failed (a full disk): then
  // the row stays as it is, and conclude_commit() decides.
  std::optional<CommitOutcome> undo_or_conclude(const std::string& why) noexcept {
    try {
      if (is_final(record_.state) || (whom_ != CommitFor::reviewer && record_.result)) return std::nullopt;
      if (may_have_landed_ && swap_landed(services_, record_)) {
        services_.references.make_durable(record_.options.branch);
        return landed();
      }
      may_have_landed_ = false;
      record_.message = whom_ == CommitFor::reviewer ? before_.message : record_.message;
      take_commit_back(services_, record_, why, who_);
    } catch (const std::exception& second) {
      services_.log.write(LogLevel::error, "session " + record_.id.text() +
                                               ": what became of its commit could not be found out or recorded: " +
                                               second.what());
    }
    return std::nullopt;
  }

  const Services& services_;
  SessionRecord& record_;
  SessionDirectory& directory_;
  Quarantine& quarantine_;
  const SessionResult& result_;
  const CommitFor whom_;
  const std::string& who_;
  const SessionRecord before_ = *services_.catalog.find(record_.id);
  std::string squashed_;          // Committed::squashed
  bool may_have_landed_ = false;  // a compare-and-swap was tried and did not say that it lost
};

}  // namespace

CommitOutcome commit_result(const Services& services, SessionRecord& record, SessionDirectory& directory,
                            const SessionResult& result, CommitFor whom, const std::string& who) {
  return Committer(services, record, directory, result, whom, who).run(&Committer::commit);
}

CommitOutcome end_in_conflict(const Services& services, SessionRecord& record, SessionDirectory& directory,
                              const SessionResult& result, Conflicts conflicts, CommitFor whom,
                              const std::string& who) {
  return Committer(services, record, directory, result, whom, who).conflict(std::move(conflicts));
}

void clean_up_or_log(const Services& services, const SessionRecord& record, SessionDirectory& directory) {
  publish_caches(services, record, directory);
  try {
    clean_up(services, record.id, directory, keeps_result(record));
  } catch (const std::exception& failure) {
    services.log.write(LogLevel::warning, "session " + record.id.text() +
                                              " has ended, but what it left could not be removed (the next command "
                                              "tries again): " + failure.what());
  }
  tell(services, CommitStep::cleaned_up);
}

CommitOutcome seal_result(const Services& services, SessionRecord& record, SessionDirectory& directory,
                          const SessionResult& result, const std::string& who) {
  return Committer(services, record, directory, result, CommitFor::by_hand, who).run(&Committer::seal);
}

namespace {

std::variant<TreeRoot, Conflicts> merged_by_rule(const TreeRoot& head_tree, const SessionResult& result,
                                                 const std::string& branch, const Services& services,
                                                 Quarantine& quarantine) {
  auto merged = reconcile(quarantine, result.base_tree, result.tree, head_tree);
  if (std::holds_alternative<Conflicts>(merged) && services.references.rule_of(branch).merges_text)
    merged = reconcile(quarantine, result.base_tree, result.tree, head_tree, MergeFiles::by_line);
  if (!result.reads) return merged;
  Conflicts all;
  if (auto* const conflicts = std::get_if<Conflicts>(&merged)) all = std::move(*conflicts);
  add_conflicts(all.paths, changed_reads(quarantine, *result.reads, result.prefix, result.base_tree, head_tree));
  if (all.paths.empty()) return merged;
  return all;
}

}  // namespace

std::variant<TreeRoot, Conflicts> merge_onto(const TreeRoot& head_tree, const SessionResult& result,
                                             const std::string& branch, const Services& services,
                                             Quarantine& quarantine) {
  try {
    return merged_by_rule(head_tree, result, branch, services, quarantine);
  } catch (const Error& error) {
    if (error.code() != Errc::result_too_large) throw;
    throw Error(error.code(), "cannot merge the session with branch '" + branch + "': " + error.what() +
                                  "; open a new session, and copy to it what is still needed");
  }
}

std::shared_ptr<const ReadSet> kept_reads(const Services& services, const SessionRecord& record) {
  if (record.options.isolation == Isolation::snapshot) return nullptr;
  const std::optional<std::string> kept = services.catalog.reads(record.id);
  std::optional<ReadSet> reads = kept ? ReadSet::decoded(*kept) : std::nullopt;
  if (reads) return std::make_shared<const ReadSet>(*std::move(reads));
  ReadSet everything;
  everything.take_all_below(ReadSet::kRoot);
  return std::make_shared<const ReadSet>(std::move(everything));
}

SessionResult sealed_result(const ObjectReader& objects, const SessionRecord& record) {
  const Commit sealed = objects.read_commit(*record.result);
  SessionResult result;
  if (!sealed.parents.empty()) result.base = sealed.parents.front();
  result.base_tree = tree_of_commit(objects, result.base);
  result.tree = without_empty(objects, sealed.tree);
  return result;
}

bool swap_landed(const Services& services, const SessionRecord& record) {
  const std::string& branch = record.options.branch;
  const std::optional<ObjectId> head = services.references.head(branch);
  std::vector<ObjectId> front;
  if (head) front.push_back(*head);
  std::set<ObjectId> seen;
  while (!front.empty() && seen.size() < kMaxWalkedCommits) {
    const ObjectId commit = front.back();
    front.pop_back();
    if (commit == record.swap_to) return true;
    // What a shallow clone lacks ends the walk as the history does.
    if (commit == record.swap_from || !seen.insert(commit).second || !services.objects.contains(commit)) continue;
    for (const ObjectId& parent : services.objects.read_commit(commit).parents) front.push_back(parent);
  }
  return services.references.reflog_has(branch, *record.swap_to);
}

void conclude_commit(const Services& services, SessionRecord& record, SessionDirectory& directory,
                     const std::string& who) {
  if (record.swap_to && swap_landed(services, record)) {
    services.references.make_durable(record.options.branch);
    record_committed(services, record, directory, who, "found in the branch");
  } else {
    take_commit_back(services, record, "its commit failed, and the branch was not moved; commit again", who);
  }
}

void record_committed(const Services& services, SessionRecord& record, SessionDirectory& directory,
                      const std::string& who, const std::string& why) {
  transition(services, record, committed_record(record), who, why);
  tell(services, CommitStep::outcome_recorded);
  clean_up_or_log(services, record, directory);
}

void roll_back(const Services& services, SessionRecord& record, SessionDirectory& directory,
               const Rollback& rollback) {
  SessionRecord next = record;
  if (rollback.keep) {
    next.counts = keep_result(services, record, directory.quarantine(), *rollback.keep);
  } else if (!record.result && services.references.result(record.id)) {
    services.references.drop_result(record.id);  // of a roll-back, or a seal, that did not get further
  }
  next.state = State::rolled_back;
  next.reason = rollback.reason;
  if (!record.result) next.exit_code = rollback.exit_code;
  next.swap_from.reset();
  next.swap_to.reset();
  next.last_error.clear();  // it may name files
  transition(services, record, std::move(next), rollback.who, name_of(rollback.reason));
  clean_up_or_log(services, record, directory);
}

void take_commit_back(const Services& services, SessionRecord& record, const std::string& last_error,
                      const std::string& who) {
  SessionRecord next = record;
  next.state = record.result ? State::awaiting_approval : State::open;
  next.reason = Reason::none;
  if (!record.result) {
    next.exit_code.reset();
    next.counts.reset();
  }
  forget_review(next);
  next.last_error = last_error;
  transition(services, record, std::move(next), who,
             record.result ? "the commit failed: the session goes on waiting"
                           : "the commit failed: the session stays open");
}

bool keeps_result(const SessionRecord& record) {
  return record.state == State::commit_failed || (record.state == State::rolled_back && !record.result);
}

void publish_caches(const Services& services, const SessionRecord& record, SessionDirectory& directory) {
  if (record.state != State::committed || record.parent) return;
  const WantedAlways wanted;
  try {
    directory.publish_caches();
  } catch (const std::exception& failure) {
    services.log.write(LogLevel::warning, "session " + record.id.text() + ": " + failure.what());
  }
}

void clean_up(const Services& services, const SessionId& id, SessionDirectory& directory, bool keep_result) {
  services.references.unpin_base(id);
  if (!keep_result && services.references.result(id)) services.references.drop_result(id);
  directory.quarantine().discard();  // also what it published in vain
  directory.remove();
}

}  // namespace escrow::session
