#include "session/transaction/forks.h"

#include <algorithm>
#include <set>
#include <utility>

#include "session/base/error.h"
#include "session/overlay/content_form.h"
#include "session/transaction/opening.h"
#include "session/transaction/savepoint_rules.h"
#include "session/transaction/session_tree.h"

namespace escrow::session {
namespace {

constexpr std::string_view kForkPrefix = ".fork-", kLandingPrefix = ".landing-";

std::optional<SessionId> named_after(std::string_view prefix, std::string_view name) {
  return name.starts_with(prefix) ? SessionId::parse(name.substr(prefix.size())) : std::nullopt;
}

std::string layer_of(std::string_view prefix, const SessionId& fork) { return std::string(prefix) + fork.text(); }

void add_files(std::set<StagingId>& files, StagingId staging, const std::string& sealed) {
  if (staging) files.insert(staging);
  if (sealed.empty()) return;
  const auto below = decode_sealed(sealed);
  for (const StagingId id : below->staging_files()) files.insert(id);
}

std::vector<StagingId> files_of(const std::vector<NodeRow>& rows) {
  std::set<StagingId> files;
  for (const NodeRow& row : rows) {
    add_files(files, row.staging, row.sealed);
    add_files(files, row.durable.staging, row.durable.sealed);
  }
  return {files.begin(), files.end()};
}

std::size_t depth_of(const Services& services, const SessionRecord& row) {
  std::size_t depth = 0;
  for (std::optional<SessionRecord> above = row; above && above->parent && depth <= kDeepestFork; ++depth)
    above = services.catalog.find(*above->parent);
  return depth;
}

// A fork comes into being directory first and row last, and ends the other way: it is no more when it has neither.
bool is_no_more(const Services& services, const SessionId& fork) {
  const std::optional<SessionRecord> row = services.catalog.find(fork);
  return (!row || is_final(row->state)) && !services.directories.exists(fork);
}

}  // namespace

bool is_own_savepoint(std::string_view name) { return name.starts_with('.'); }

void refuse_own_savepoint(std::string_view name) {
  if (is_own_savepoint(name)) check_savepoint_name(name);
}

void seal_for_fork(const Services& services, Overlay& parent, const SessionRecord& row, const SessionId& fork) {
  const std::string cannot = "cannot fork session " + row.id.text() + ": ";
  if (row.options.read_only) throw Error(Errc::wrong_state, cannot + "it is read-only, and could take nothing in");
  if (row.options.isolation == Isolation::serializable)
    throw Error(Errc::wrong_state, cannot + "it is serializable, and would not know what its fork has read");
  if (!row.unresolved.empty())
    throw Error(Errc::wrong_state, cannot + "it has conflicts that are not settled; `escrow resolve` settles them");
  if (depth_of(services, row) >= kDeepestFork)
    throw Error(Errc::wrong_state, cannot + "it is a fork of a fork already, " + std::to_string(kDeepestFork) +
                                       " deep, and that is the limit; commit it into its parent first");
  if (living_forks(services, parent).size() >= kMostForks)
    throw Error(Errc::wrong_state, cannot + "it has " + std::to_string(kMostForks) +
                                       " forks, and cannot have more; commit some or roll them back");
  parent.create_savepoint(layer_of(kForkPrefix, fork), savepoint_context(row));
}

void fill_fork(const Services& services, Overlay& parent, SessionDirectory& directory, const SessionRecord& row,
               const SessionId& fork) {
  const std::string layer = layer_of(kForkPrefix, fork);
  const std::vector<Savepoint> all = parent.savepoints();
  const auto sealed = std::find_if(all.begin(), all.end(), [&](const Savepoint& one) { return one.name == layer; });
  if (sealed == all.end()) throw Error(Errc::not_found, "nothing is sealed for session " + fork.text());
  parent.flush(true);  // the layer itself, and what it names
  JournalState state = parent.rows_at(layer);
  const std::unique_ptr<SessionDirectory> heir = services.directories.borrow(fork);
  directory.share_staging(files_of(state.nodes), *heir);
  JournalBatch batch;
  batch.nodes = std::move(state.nodes);
  batch.edges = std::move(state.edges);
  batch.blocks = std::move(state.blocks);
  batch.next_node = state.next_node;
  batch.next_staging = sealed->next_staging;
  batch.seals = *sealed;
  batch.seals->name = kForkStart;
  heir->journal().append(batch);
  heir->journal().barrier();
  heir->journal().let_go();
  services.references.pin_as(row.id, fork);
}

bool has_ended_forks(const Services& services, Overlay& parent) {
  const std::vector<Savepoint> all = parent.savepoints();
  return std::any_of(all.begin(), all.end(), [&](const Savepoint& one) {
    const auto fork = named_after(kForkPrefix, one.name);
    return one.name.starts_with(kLandingPrefix) || (fork && is_no_more(services, *fork));
  });
}

std::vector<SessionId> living_forks(const Services& services, Overlay& parent) {
  std::vector<SessionId> forks;
  for (const Savepoint& one : parent.savepoints())
    if (auto fork = named_after(kForkPrefix, one.name); fork && !is_no_more(services, *fork))
      forks.push_back(*std::move(fork));
  return forks;
}

void settle_forks(const Services& services, Overlay& parent, const IsStale& is_stale) {
  for (const Savepoint& one : parent.savepoints()) {
    const auto landing = named_after(kLandingPrefix, one.name);
    if (!landing) continue;
    const std::optional<SessionRecord> row = services.catalog.find(*landing);
    if (!row || row->state != State::committed) is_stale(parent.restore_savepoint(one.name));
    parent.drop_savepoint(one.name);
  }
  for (const Savepoint& one : parent.savepoints())
    if (const auto fork = named_after(kForkPrefix, one.name); fork && is_no_more(services, *fork))
      parent.drop_savepoint(one.name);
}

void refuse_with_forks(const SessionRecord& row, const char* verb, const std::vector<SessionId>& forks) {
  std::string names;
  for (const SessionId& fork : forks) names += (names.empty() ? "" : ", ") + fork.text();
  throw Error(Errc::wrong_state, std::string("cannot ") + verb + " session " + row.id.text() + " before its fork" +
                                     (forks.size() > 1 ? "s " : " ") + names + (forks.size() > 1 ? " are" : " is") +
                                     " committed or rolled back; --discard-forks rolls them back");
}

SessionOptions fork_options(const SessionOptions& parent, const SessionOptions& narrowing) {
  SessionOptions options = parent;
  options.audit = narrowing.audit;
  options.ephemeral = narrowing.ephemeral;
  options.keep_on_failure = narrowing.keep_on_failure;
  options.command = narrowing.command;
  options.read_only = parent.read_only || narrowing.read_only;
  options.policies.insert(options.policies.end(), narrowing.policies.begin(), narrowing.policies.end());
  options.contained_symlinks = parent.contained_symlinks || narrowing.contained_symlinks;
  // The parent's commit is what is reviewed.
  options.require_approval = false;
  options.approval_expires_s = 0;
  const auto least = [](std::uint64_t& limit, std::uint64_t other) {
    if (other != 0 && (limit == 0 || other < limit)) limit = other;
  };
  least(options.limits.staged_bytes, narrowing.limits.staged_bytes);
  least(options.limits.files, narrowing.limits.files);
  return options;
}

std::unique_ptr<Session> open_fork(const Services& services, const SessionId& parent, SessionOptions options,
                                   const SessionId& id, const std::function<void(const std::string&)>& prepare,
                                   const std::function<void()>& fill) {
  const auto above = [&] {
    std::optional<SessionRecord> row = services.catalog.find(parent);
    if (!row) throw Error(Errc::no_session, "there is no session " + parent.text());
    if (row->state != State::open)
      throw Error(Errc::wrong_state, "cannot fork session " + parent.text() + ": it is " + name_of(row->state));
    return *std::move(row);
  };
  SessionRecord record{id};
  record.options = std::move(options);
  record.parent = parent;
  record.created = record.changed = services.clock.now();
  record.base_time = above().base_time;
  std::unique_ptr<SessionDirectory> held = services.directories.create(id);
  try {
    if (prepare) prepare(held->path());
    fill();
    // As of the cut: the parent may have come onto another head since.
    for (const Savepoint& one : held->journal().savepoints())
      if (one.name == kForkStart) record.base = ObjectId::from_hex(one.context.substr(0, one.context.find('\0')));
    record_open(services, record, *held);
  } catch (...) {
    clean_up(services, id, *held, false);
    throw;
  }
  return std::make_unique<Session>(services, std::move(record), std::move(held));
}

CommitOutcome commit_fork(const Services& services, Overlay& fork, SessionDirectory& directory, SessionRecord& row,
                          const CommitRequest& request, const std::function<void()>& check,
                          const std::function<SessionResult()>& result_of) {
  std::optional<CommitOutcome> outcome;
  try {
    check();
    if (services.parents == nullptr) throw Error(Errc::not_supported, "forks cannot be committed here");
    fork.lend([&] { outcome = services.parents->land(*row.parent, row.id, request); });
  } catch (const std::exception& failure) {
    // The parent's host may have died after it was done.
    const std::optional<SessionRecord> now = services.catalog.find(row.id);
    if (!now || now->state != State::committed) {
      if (now && now->state == State::open) take_commit_back(services, row, failure.what(), request.who);
      throw;
    }
    outcome = Landed{*row.parent, now->counts.value_or(ChangeCounts{})};
  }
  if (auto* met = std::get_if<Conflicts>(&*outcome)) {
    if (!request.message.empty()) row.message = request.message;
    row.exit_code = request.exit_code;
    return end_in_conflict(services, row, directory, result_of(), std::move(*met),
                           request.by_hand ? CommitFor::by_hand : CommitFor::run, request.who);
  }
  if (const std::optional<SessionRecord> now = services.catalog.find(row.id)) row = *now;
  clean_up_or_log(services, row, directory);
  return *std::move(outcome);
}

SessionResult whole_result(Overlay& shown, const SessionRecord& row, Quarantine& quarantine,
                           std::vector<Omission>& omitted) {
  SessionRecord whole = row;
  whole.options.excludes.clear();
  BranchRule rule;
  rule.ignore.is_on = false;
  return session_result(shown, whole, rule, quarantine, omitted);
}

std::optional<ObjectId> start_of_fork(Overlay& fork, const SessionRecord& row, Quarantine& quarantine) {
  std::vector<Omission> left_out;
  return whole_result(*fork.at_savepoint(kForkStart), row, quarantine, left_out).tree;
}

}  // namespace escrow::session
