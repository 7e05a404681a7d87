#include "session/transaction/resume.h"

#include <utility>

#include "session/base/error.h"
#include "session/overlay/overlay.h"
#include "session/transaction/apply_changes.h"
#include "session/transaction/commit.h"
#include "session/transaction/disputes.h"
#include "session/transaction/opening.h"
#include "session/transaction/session_tree.h"

namespace escrow::session {
namespace {

ObjectId result_to_resume(const Services& services, const SessionRecord& record) {
  const std::string name = "session " + record.id.text();
  const auto refuse = [&](const std::string& why) {
    return Error(Errc::wrong_state, "cannot resume " + name + ": " + why);
  };
  if (record.parent) throw refuse("it was a fork of session " + record.parent->text() + "; fork that again");
  const std::optional<ObjectId> result = services.references.result(record.id);
  switch (record.state) {
    case State::open:
    case State::committing:
      throw refuse(std::string("it is ") + name_of(record.state) + " and can go on itself: mount it, or see `escrow "
                   "status " + record.id.text() + "`");
    case State::committed:
      throw refuse("it was committed" + (record.commit ? " as " + record.commit->hex() : std::string()));
    case State::awaiting_approval:
    case State::commit_failed:
    case State::rolled_back:
      break;
  }
  if (!result)
    throw refuse(std::string("it is ") + name_of(record.state) + ", and nothing of it was kept; a run that fails keeps "
                 "its result with --keep-on-failure, and `escrow rollback` with --keep-result");
  return *result;
}

// What `options` of the older one hold for the new one, which is a person's.
SessionOptions options_to_resume(const SessionRecord& older, const std::string& who) {
  SessionOptions options = older.options;
  options.audit.committer = options.audit.issuer = who;
  options.audit.source = "manual";
  options.read_only = options.ephemeral = options.keep_on_failure = false;
  options.command.clear();
  // What the older one had read is not what the new one begins with: a person answers for that.
  options.isolation = Isolation::snapshot;
  return options;
}

}  // namespace

std::unique_ptr<Session> resume_session(const Services& services, const SessionId& older, const std::string& who,
                                        const ResumeTerms& terms) {
  const std::optional<SessionRecord> before = services.catalog.find(older);
  if (!before) throw Error(Errc::no_session, "there is no session " + older.text());
  const ObjectId kept = result_to_resume(services, *before);
  check_principal(who, "the committer");

  SessionRecord record{terms.id};
  record.options = options_to_resume(*before, who);
  if (terms.adapt) terms.adapt(record.options);
  const std::string& branch = record.options.branch;
  services.references.check_target(branch);
  strengthen(record.options, services.references.rule_of(branch));
  record.created = record.changed = services.clock.now();
  record.message = before->message;
  record.resumes = older;
  look_at_branch(services, record);

  const Commit commit = services.objects.read_commit(kept);
  SessionResult result;
  if (!commit.parents.empty()) result.base = commit.parents.front();
  result.base_tree = tree_of_commit(services.objects, result.base);
  result.tree = without_empty(services.objects, commit.tree);
  if (!record.base && result.base)
    throw Error(Errc::no_branch, "cannot resume session " + older.text() + ": branch '" + branch +
                                     "' was deleted; create it again, at " + result.base->hex() + " for example");

  // As SessionManager::open() does it: the row last, so that whatever is left before it has a directory that recovery
  // finds. Here everything that the session begins with is on disk before the row.
  std::unique_ptr<SessionDirectory> held = services.directories.create(record.id);
  try {
    // What is staged refers to blobs of the result, which another command may drop.
    if (record.base) services.references.pin_base(record.id, *record.base);
    services.references.pin_base(record.id, kept);
    Quarantine& quarantine = held->quarantine();
    const TreeRoot head_tree = tree_of_commit(quarantine, record.base);
    const MergeKeepingOurs merged = merge_keeping_ours(quarantine, result.base_tree, result.tree, head_tree);
    const RepoPath& prefix = record.options.prefix;
    if (!are_below(prefix, merged.conflicts))
      throw Error(Errc::not_a_directory, "cannot resume session " + older.text() + ": others made a file of " +
                                             quote_path(prefix.text()) + ", the root of its mount");
    record.unresolved = versions_of(quarantine, merged.conflicts, result, head_tree);
    {
      Overlay overlay(overlay_options(services, record), services.objects, held->staging(),
                      held->journal(), services.clock, services.log);
      try {
        apply_changes(overlay,
                      tree_changes(quarantine, tree_of(entry_at(quarantine, head_tree, prefix)),
                                   tree_of(entry_at(quarantine, merged.tree, prefix))),
                      [](const std::vector<Overlay::Stale>&) {});
        overlay.flush(true);
      } catch (...) {
        overlay.abandon();
        throw;
      }
    }
    if (terms.prepare) terms.prepare(held->path(), record.options);
    record_open(services, record, *held);
  } catch (...) {
    clean_up(services, record.id, *held, false);
    throw;
  }
  return std::make_unique<Session>(services, std::move(record), std::move(held));
}

}  // namespace escrow::session
