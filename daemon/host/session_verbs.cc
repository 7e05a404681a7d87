#include "daemon/host/session_verbs.h"

#include <sys/statvfs.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "daemon/host/kept_mounts.h"
#include "daemon/host/session_git.h"
#include "daemon/process/exit_status.h"
#include "session/base/overloaded.h"
#include "session/transaction/approval.h"
#include "session/transaction/commit.h"
#include "storage/staging/staged_state_file.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;

namespace {

constexpr std::size_t kDiffPartBytes = 256 * 1024;
constexpr std::uint64_t kPlenty_bytes = std::uint64_t{64} << 20;

storage::DiffFormat storage_format(api::DiffFormat format) {
  switch (format) {
    case api::DiffFormat::name_status:
      return storage::DiffFormat::name_status;
    case api::DiffFormat::stat:
      return storage::DiffFormat::stat;
    case api::DiffFormat::patch:
      return storage::DiffFormat::patch;
  }
  return storage::DiffFormat::patch;
}

api::DiffEnd send_trees(const std::optional<session::ObjectId>& before, const std::optional<session::ObjectId>& after,
                        const session::Quarantine* quarantine, const storage::Repository& repository,
                        const api::DiffRequest& request, const SendPart& send_part) {
  std::string pending;
  const auto send = [&] {
    if (!pending.empty()) send_part(api::DiffPart{.text = std::exchange(pending, {})});
  };
  const auto add = [&](std::string_view text) {
    pending += text;
    if (pending.size() >= kDiffPartBytes) send();
  };
  repository.write_diff(before, after, storage_format(request.format), quarantine, add, request.path);
  send();
  return {};
}

std::string way_on(const session::SessionRecord& record) {
  if (record.state != session::State::commit_failed) return {};
  return "; `escrow resume " + record.id.text() + "` opens a session with its result on the branch's new head";
}

}  // namespace

api::SessionView view_of(session::Session& session, session::Attachment attachment, bool with_changes) {
  api::SessionView view{.record = session.record(),
                        .attachment = attachment,
                        .head = session.head(),
                        .counts = std::nullopt,
                        .usage = std::nullopt,
                        .omitted = {}};
  if (session::is_final(view.record.state)) return view;
  try {
    if (with_changes) {
      session::Preview preview = session.preview();
      view.counts = session::count_changes(preview.changes);
      view.omitted = std::move(preview.omitted);
      view.would_conflict = std::move(preview.conflicts);
    }
    view.usage = session.overlay().usage();
    if (view.record.last_error.empty()) view.record.last_error = session.overlay().last_unreadable();
  } catch (const Error& error) {
    // What is damaged is shown as far as it can be read.
    const bool is_damage = error.code() == Errc::input_output || error.code() == Errc::damaged_repository;
    if (is_damage || error.code() == Errc::data_lost) {
      view.record.last_error = error.what();
      return view;
    }
    // It may have ended while this waited for its turn.
    if (error.code() != Errc::wrong_state || session.record().state == session::State::open) throw;
    return view_of(session, attachment, false);
  }
  return view;
}

api::DenialView denials_of(const session::SessionCatalog& catalog, const session::SessionId& id) {
  api::DenialView view;
  for (const session::DenialCount& denial : catalog.denials(id)) {
    view.count += denial.count;
    if (!denial.operation.empty()) view.kinds += 1;
  }
  return view;
}

void add_warning(api::CommitAnswer& answer, const std::string& more) {
  if (!more.empty()) answer.warning += (answer.warning.empty() ? "" : "; ") + more;
}

std::string squashed_words(const std::string& why) {
  return why.empty() ? std::string() : "the commits made inside became one: " + why;
}

api::CommitAnswer commit_answer(const session::Session& session, const session::CommitOutcome& outcome) {
  api::CommitAnswer answer = commit_answer(session.record(), outcome);
  if (!answer.landed_in) answer.omitted = session.omitted();  // into a parent all comes along
  return answer;
}

api::CommitAnswer commit_answer(const session::SessionRecord& record, const session::CommitOutcome& outcome) {
  api::CommitAnswer answer{.state = record.state,
                           .reason = record.reason,
                           .commit = std::nullopt,
                           .result = std::nullopt,
                           .expires = std::nullopt,
                           .counts = {},
                           .conflicts = {},
                           .omitted = {},
                           .warning = {}};
  std::visit(session::Overloaded{
                 [&](const session::Committed& committed) {
                   add_warning(answer, squashed_words(committed.squashed));
                   answer.commit = committed.commit;
                   answer.counts = committed.counts;
                 },
                 [](const session::NothingToCommit&) {},
                 [&](const session::Conflicts& conflicts) { answer.conflicts = conflicts.paths; },
                 [&](const session::Landed& landed) {
                   answer.landed_in = landed.parent;
                   answer.counts = landed.counts;
                 },
                 [&](const session::AwaitingApproval& sealed) {
                   add_warning(answer, squashed_words(sealed.squashed));
                   answer.result = sealed.result;
                   answer.expires = sealed.expires;
                   answer.counts = sealed.counts;
                 },
             },
             outcome);
  return answer;
}

void refuse_ended(const session::SessionRecord& record, const std::string& verb) {
  if (record.state == session::State::awaiting_approval) session::refuse_waiting(record, verb);
  std::string how = name_of(record.state);
  if (record.commit) how += " as " + record.commit->hex();
  throw Error(Errc::wrong_state, "cannot " + verb + " session " + record.id.text() + ": it is already " + how + " (" +
                                     name_of(record.reason) + ")" + way_on(record));
}

api::CommitAnswer late_commit_answer(const session::SessionRecord& record) {
  if (record.state != session::State::committed) refuse_ended(record, "commit");
  return {.state = record.state,
          .reason = record.reason,
          .commit = record.commit,
          .result = std::nullopt,
          .expires = std::nullopt,
          .counts = record.counts.value_or(session::ChangeCounts{}),
          .conflicts = {},
          .omitted = {},
          .warning = "the session was committed before"};
}

api::RollbackAnswer late_rollback_answer(const session::SessionRecord& record) {
  if (record.state != session::State::rolled_back) refuse_ended(record, "roll back");
  return {.state = record.state, .reason = record.reason, .warning = "the session was rolled back before"};
}

api::Answer finish_session(session::Session& session, const api::FinishRequest& request, const std::string& who,
                           std::string warning) {
  if (!request.image.empty() || !request.trigger_id.empty()) session.identify({request.image, request.trigger_id});
  if (request.reason == session::Reason::success) {
    const session::CommitOutcome outcome =
        session.commit(with_commits_inside(session, {.message = request.message,
                                                     .exit_code = request.exit_code,
                                                     .reason = request.reason,
                                                     .by_hand = false,
                                                     .who = who}));
    api::CommitAnswer answer = commit_answer(session, outcome);
    add_warning(answer, warning);
    return answer;
  }
  session.rollback(request.reason, request.exit_code, who, request.keep_result);
  const session::SessionRecord record = session.record();
  return api::RollbackAnswer{.state = record.state, .reason = record.reason, .warning = std::move(warning)};
}

api::FinishRequest unseen(api::FinishRequest request) {
  if (request.reason != session::Reason::success) return request;
  request.reason = session::Reason::not_started;
  request.exit_code.reset();
  request.keep_result = true;
  return request;
}

// Whatever ended it before has decided.
api::Answer late_finish_answer(const session::SessionRecord& record, const api::FinishRequest& request) {
  if (request.reason == session::Reason::success) return late_commit_answer(record);
  return late_rollback_answer(record);
}

api::DiffEnd send_diff(session::Session& session, const storage::Repository& repository,
                       const api::DiffRequest& request, const SendPart& send_part) {
  session::Preview preview = request.since.empty() ? session.preview() : session.preview_since(request.since);
  send_part(api::DiffBegin{.omitted = preview.omitted.size()});
  send_trees(preview.before, preview.after, &session.quarantine(), repository, request, send_part);
  return {.omitted = std::move(preview.omitted)};
}

api::DiffEnd send_sealed_diff(const session::SessionRecord& record, const storage::Repository& repository,
                              const api::DiffRequest& request, const SendPart& send_part) {
  const session::SessionResult sealed = session::sealed_result(repository.objects(), record);
  return send_trees(sealed.base_tree, sealed.tree, nullptr, repository, request, send_part);
}

api::DiffEnd send_export(session::KeptToExport& kept, const storage::Repository& repository,
                         const SendPart& send_part) {
  std::string pending;
  const auto send = [&] { send_part(api::DiffPart{.text = std::exchange(pending, {})}); };
  storage::StagedStateWriter writer([&](std::string_view bytes) {
    pending += bytes;
    if (pending.size() >= kDiffPartBytes) send();
  });
  session::send_staged_state(kept.overlay(), kept.record(), repository.objects(), writer);
  send();
  return {};
}

int exit_status_of(const api::CommitAnswer& answer) {
  if (!answer.conflicts.empty()) return kExitConflict;
  return answer.result ? kExitAwaitsApproval : kExitSuccess;
}

std::vector<session::RepoPath> parse_paths(const std::vector<std::string>& texts) {
  if (texts.empty()) throw Error(Errc::bad_request, "no path was given");
  std::vector<session::RepoPath> paths;
  for (const std::string& text : texts) paths.push_back(session::RepoPath::parse(text, "PATH"));
  return paths;
}

const char* changing_verb_of(const api::Request& request) {
  return std::visit(
      session::Overloaded{
          [](const api::DiscardRequest&) -> const char* { return "discarded changes"; },
          [](const api::UpdateRequest&) -> const char* { return "updated it"; },
          [](const api::ResolveRequest& it) -> const char* { return it.paths.empty() ? nullptr : "resolved paths"; },
          [](const api::CommitRequest&) -> const char* { return "finished it"; },
          [](const api::FinishRequest&) -> const char* { return "finished it"; },
          [](const api::RollbackRequest&) -> const char* { return nullptr; },
          [](const api::StatusRequest&) -> const char* { return nullptr; },
          [](const api::DiffRequest&) -> const char* { return nullptr; },
          [](const api::UnmountRequest&) -> const char* { return nullptr; },
          [](const api::ExportRequest&) -> const char* { return nullptr; },
          [](const api::ChangesRequest&) -> const char* { return nullptr; },
          [](const api::ReadFileRequest&) -> const char* { return nullptr; },
          [](const api::ListFilesRequest&) -> const char* { return nullptr; },
          // The caller notes a series of these once.
          [](const api::WriteFileRequest&) -> const char* { return nullptr; },
          [](const api::RemoveFileRequest&) -> const char* { return nullptr; },
          [](const api::TrafficRequest&) -> const char* { return nullptr; },
          [](const api::ForkRequest&) -> const char* { return nullptr; },
          [](const api::LandRequest&) -> const char* { return "committed a fork into it"; },
          [](const api::MountsRequest& it) -> const char* {
            return it.verb == api::MountsVerb::list ? nullptr : "changed its mount table";
          },
          [](const api::SavepointRequest& it) -> const char* {
            return it.verb == api::SavepointVerb::restore ? "restored a savepoint" : nullptr;
          },
      },
      request);
}

api::UpdateAnswer update_answer(const session::UpdateOutcome& outcome) {
  return {.base = outcome.base, .merged = outcome.merged, .conflicts = outcome.conflicts};
}

std::vector<api::TrafficAnswer::Operation> operations_of(const std::vector<fuse::OperationCount>& counts) {
  std::vector<api::TrafficAnswer::Operation> operations;
  for (const fuse::OperationCount& one : counts) {
    const auto& within = one.times.within;
    operations.push_back({one.name, one.count, {within.begin(), within.end()}, one.times.seconds});
  }
  return operations;
}

bool has_plenty_of_room(const std::string& directory) {
  struct statvfs disk {};
  return ::statvfs(directory.c_str(), &disk) == 0 && std::uint64_t{disk.f_bavail} * disk.f_frsize >= kPlenty_bytes;
}

namespace {

// On what the session shows beside its repository, of which savepoints have nothing; empty: there is no such thing.
std::string words_about_restore(const std::vector<std::string>& caches, const std::vector<MountEntrySpec>& entries) {
  const auto add = [](std::string& list, const std::string& one) {
    list += (list.empty() ? "'" : ", '") + session::quote_path(one) + "'";
  };
  std::string renewed, kept;
  for (const std::string& cache : caches) add(renewed, cache);
  for (const MountEntrySpec& entry : entries)
    if (!entry.read_only && entry.source != MountEntrySpec::Source::cache) add(kept, entry.path.text());
  if (renewed.empty() && kept.empty()) return {};
  std::string words = "savepoints hold files of the repository only: ";
  if (!renewed.empty())
    words += (caches.size() == 1 ? "the cache " + renewed + " begins" : "the caches " + renewed + " begin") +
             std::string(" anew as last published");
  if (!kept.empty()) words += (renewed.empty() ? "" : ", and ") + ("what is below " + kept) + " stays as it is";
  return words;
}

}  // namespace

api::SavepointsAnswer change_savepoints(session::Session& session, const api::SavepointRequest& request,
                                        const std::function<void()>& is_cut) {
  api::SavepointsAnswer answer;
  switch (request.verb) {
    case api::SavepointVerb::list:
      break;
    case api::SavepointVerb::create:
      session.create_savepoint(request.name, is_cut);
      break;
    case api::SavepointVerb::restore: {
      const std::vector<MountEntrySpec> entries = kept_mounts(session.directory()).entries;
      session::Session::Restored restored = session.restore_savepoint(request.name);
      answer.undo = std::move(restored.undo);
      answer.warning = words_about_restore(restored.caches, entries);
      break;
    }
    case api::SavepointVerb::drop:
      session.drop_savepoint(request.name);
      break;
  }
  const std::vector<session::Savepoint> all = session.savepoints();
  for (const session::Savepoint& one : all) answer.savepoints.push_back({one.name, one.created});
  return answer;
}

namespace {

session::SessionId fork_from(const std::string& text) {
  const auto id = session::SessionId::parse(text);
  if (!id) throw Error(Errc::bad_request, "\"fork\" is no whole id of a session");
  return *id;
}

}  // namespace

api::ForkAnswer fork_into(session::Session& parent, const api::ForkRequest& request,
                          const std::function<void()>& is_cut) {
  parent.fork_into(fork_from(request.fork), is_cut);
  return {};
}

api::LandAnswer land(session::Session& parent, const api::LandRequest& request, const std::string& who) {
  const session::CommitOutcome outcome = parent.land(fork_from(request.fork), {.message = request.message,
                                                                               .exit_code = request.exit_code,
                                                                               .reason = request.reason,
                                                                               .by_hand = true,
                                                                               .who = who});
  if (const auto* met = std::get_if<session::Conflicts>(&outcome)) return {.counts = {}, .conflicts = met->paths};
  const auto* landed = std::get_if<session::Landed>(&outcome);
  if (landed == nullptr) return {};
  return {.has_changed = true, .counts = landed->counts, .conflicts = {}};
}

api::ResolveAnswer resolve(session::Session& session, const api::ResolveRequest& request, const std::string& who) {
  if (request.paths.empty()) return {.settled = {}, .left = session.unresolved(), .merged = 0};
  session::Resolution done = session.resolve(parse_paths(request.paths), request.how, who);
  return {.settled = std::move(done.settled), .left = std::move(done.left), .merged = done.merged};
}

}  // namespace escrow::daemon
