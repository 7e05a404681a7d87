#include "daemon/host/session_access.h"

#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "api/control_client.h"
#include "api/problem.h"
#include "daemon/host/file_verbs.h"
#include "daemon/host/live_mounts.h"
#include "daemon/host/mount_entries.h"
#include "daemon/host/mountpoint.h"
#include "daemon/host/session_files.h"
#include "daemon/host/session_git.h"
#include "daemon/host/session_stack.h"
#include "daemon/host/session_verbs.h"
#include "daemon/host/silent_host.h"
#include "fuse/place.h"
#include "session/base/overloaded.h"
#include "session/base/repo_path.h"
#include "session/base/still_wanted.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;
using namespace std::chrono_literals;

namespace {

// How long another process may hold the session without listening: it starts, it ends, or it is a command like this.
constexpr auto kAccessPatience = 10s;
constexpr auto kAccessPause = 20ms;

// The host listens from mounting to its end; nullopt while nobody does.
std::optional<api::ControlClient> connect(RepositoryContext& context, const session::SessionId& id) {
  std::optional<api::ControlClient> client;
  try {
    client.emplace(context.repository().directories().path_of(id), id);
  } catch (const Error& error) {
    if (error.code() != Errc::unavailable) throw;
  }
  return client;
}

bool has_live_host(RepositoryContext& context, const session::SessionId& id) {
  std::optional<api::ControlClient> client = connect(context, id);
  return client && client->ask_within(api::StatusRequest{}, kAccessPatience);
}

// Nobody hosts it any more: its record says all there is.
bool is_over(const session::SessionRecord& record) {
  return session::is_final(record.state) || record.state == session::State::awaiting_approval;
}

// While somebody else holds the session.
template <typename Verb>
auto patiently(Verb verb) {
  for (const auto deadline = std::chrono::steady_clock::now() + kAccessPatience;;) {
    try {
      return verb();
    } catch (const Error& error) {
      if (error.code() != Errc::attached_elsewhere || std::chrono::steady_clock::now() > deadline) throw;
    }
    std::this_thread::sleep_for(kAccessPause);
  }
}

// A rollback that keeps nothing, which needs no look at what the session holds.
struct GivenUp {
  session::Reason reason = session::Reason::requested;
  std::optional<int> exit_code{};
  session::Container container{};
};

std::optional<GivenUp> given_up(const api::Request& request, const session::SessionRecord& record) {
  if (const auto* rollback = std::get_if<api::RollbackRequest>(&request)) {
    return rollback->keep_result ? std::nullopt : std::optional(GivenUp{});
  }
  const auto* finish = std::get_if<api::FinishRequest>(&request);
  const bool is_one = finish != nullptr && finish->reason != session::Reason::success && !finish->keep_result &&
                      !record.options.ephemeral;
  if (!is_one) return std::nullopt;
  return GivenUp{finish->reason, finish->exit_code, {finish->image, finish->trigger_id}};
}

// Of a session that was rolled back: its host does not see that its directory is gone. Empty: there is no such mount.
std::string mount_without_directory(const session::SessionRecord& record) {
  if (record.last_error.empty()) return {};
  for (const fuse::MountedPath& mounted : fuse::mounted_paths())
    if (mounted.type == fuse::kMountType && mounted.source == "escrow:" + record.id.text())
      return "session " + record.id.text() + " is still mounted at " + session::quote_path(mounted.path) +
             ", where nothing is kept any more; take that away with umount(8)";
  return {};
}

std::optional<session::SessionId> newest_of(const std::vector<session::SessionId>& sessions) {
  return sessions.empty() ? std::nullopt : std::optional(sessions.back());
}

// The files of a session that is mounted nowhere, as its mount would show them.
struct DetachedFiles {
  static constexpr storage::Caches::Place kNowhere{};
  DetachedFiles(session::Session& session, RepositoryContext& context)
      : stack(session, context.repository(), context.log(), std::nullopt,
              open_entries(session, std::nullopt, context.repository(), kNowhere, std::nullopt), kNowhere,
              std::nullopt, std::nullopt, {}),
        files(stack.files(), nullptr) {}
  SessionStack stack;
  SessionFiles files;
};

SendPart parts_to(const std::function<void(const api::DiffPart&)>& on_part) {
  return [&on_part](const api::Answer& part) {
    if (const auto* text = std::get_if<api::DiffPart>(&part); text != nullptr && on_part) on_part(*text);
  };
}

}  // namespace

void wait_for_release(RepositoryContext& context, const session::SessionId& id) {
  const auto deadline = std::chrono::steady_clock::now() + kAccessPatience;
  while (context.repository().directories().is_held(id) && std::chrono::steady_clock::now() < deadline) {
    if (has_live_host(context, id)) return;
    std::this_thread::sleep_for(kAccessPause);
  }
}

std::unique_ptr<session::Session> attach(RepositoryContext& context, const session::SessionId& id) {
  for (const auto deadline = std::chrono::steady_clock::now() + kAccessPatience;;) {
    try {
      return context.sessions().attach(id);
    } catch (const Error& error) {
      const bool is_held = error.code() == Errc::attached_elsewhere;
      if (!is_held || std::chrono::steady_clock::now() > deadline || has_live_host(context, id)) throw;
    }
    std::this_thread::sleep_for(kAccessPause);
  }
}

SessionAccess::SessionAccess(RepositoryContext& context, const std::string& text, std::string who)
    : context_(context), id_(context.sessions().resolve(text)), who_(std::move(who)) {}

api::Answer SessionAccess::ask(const api::Request& request, const std::function<void(const api::DiffPart&)>& on_part) {
  auto deadline = std::chrono::steady_clock::now() + kAccessPatience;
  while (true) {
    const session::SessionManager::Listed listed = context_.sessions().status(id_);
    if (is_over(listed.record)) return answer_ended(listed, request, on_part);
    if (context_.repository().directories().is_held(id_)) {
      if (std::optional<api::ControlClient> client = connect(context_, id_)) {
        client->speak_for(who_);
        if (std::optional<api::Answer> answer = ask_host(*client, request, on_part)) return *std::move(answer);
        if (client->is_silent()) deadline = std::chrono::steady_clock::now() + kAccessPatience;
      }
    } else if (std::optional<api::Answer> answer = act_detached(listed, request, on_part)) {
      return *std::move(answer);
    }
    if (std::chrono::steady_clock::now() > deadline) {
      throw Error(Errc::attached_elsewhere, "session " + id_.text() +
                                                " is held by another process that does not listen on its control "
                                                "socket; wait for it to end");
    }
    std::this_thread::sleep_for(kAccessPause);
  }
}

// Before it is done, as the host of a session does it.
void SessionAccess::remark_what_changes(const api::Request& request) {
  const char* what = changing_verb_of(request);
  if (what == nullptr) return;
  context_.repository().catalog().remark(id_, context_.clock().now(), who_, what);
}

// nullopt: it has ended or is about to, and has not taken the request; or it was killed.
std::optional<api::Answer> SessionAccess::ask_host(api::ControlClient& client, const api::Request& request,
                                                   const std::function<void(const api::DiffPart&)>& on_part) {
  try {
    return client.ask(request, on_part, can_answer);
  } catch (const Error&) {
    if (client.is_untaken()) return std::nullopt;
    if (!client.is_silent()) throw;
  }
  const bool is_gone = !context_.repository().directories().is_held(id_);
  if (is_gone || let_killed_host_end(client.host(), id_)) return std::nullopt;
  throw Error(Errc::unavailable,
              describe_silence(client.host(), id_) + "; unless it had begun with the request, it drops it");
}

// nullopt: another process was faster, and holds it.
std::optional<api::Answer> SessionAccess::act_detached(const session::SessionManager::Listed& listed,
                                                       const api::Request& request,
                                                       const std::function<void(const api::DiffPart&)>& on_part) {
  std::unique_ptr<session::Session> session;
  try {
    if (const std::optional<GivenUp> how = given_up(request, listed.record)) {
      const session::SessionRecord record =
          context_.sessions().roll_back(id_, how->reason, how->exit_code, who_, how->container);
      return api::RollbackAnswer{
          .state = record.state, .reason = record.reason, .warning = mount_without_directory(record)};
    }
    session = context_.sessions().attach(id_);
  } catch (const Error& error) {
    if (error.code() == Errc::attached_elsewhere) return std::nullopt;
    const bool is_damaged = error.code() == Errc::damaged_repository || error.code() == Errc::input_output;
    if (!is_damaged || !std::holds_alternative<api::StatusRequest>(request)) throw;
    session::SessionManager::Listed shown = listed;
    shown.record.last_error = error.what();
    return answer_ended(shown, request, on_part);
  }
  return act(*session, listed.attachment, request, on_part);
}

api::Answer SessionAccess::act(session::Session& session, session::Attachment attachment, const api::Request& request,
                               const std::function<void(const api::DiffPart&)>& on_part) {
  const std::string& who = who_;
  return std::visit(
      session::Overloaded{
          [&](const api::StatusRequest& it) -> api::Answer {
            api::SessionView view = view_of(session, attachment, it.with_changes);
            view.denials = denials_of(context_.repository().catalog(), id_);
            return view;
          },
          [&](const api::CommitRequest& it) -> api::Answer {
            const session::CommitOutcome outcome =
                session.commit(with_commits_inside(session, {.message = it.message,
                                                             .exit_code = {},
                                                             .reason = session::Reason::success,
                                                             .by_hand = true,
                                                             .who = who,
                                                             .include_ignored = it.include_ignored}));
            return commit_answer(session, outcome);
          },
          [&](const api::RollbackRequest& it) -> api::Answer {
            session.rollback(session::Reason::requested, std::nullopt, who, it.keep_result);
            const session::SessionRecord record = session.record();
            return api::RollbackAnswer{.state = record.state, .reason = record.reason, .warning = {}};
          },
          [&](const api::DiscardRequest& it) -> api::Answer {
            const std::vector<session::RepoPath> paths = parse_paths(it.paths);
            remark_what_changes(request);
            session.discard(paths);
            return api::DiscardAnswer{.discarded = it.paths.size()};
          },
          [&](const api::UpdateRequest&) -> api::Answer {
            remark_what_changes(request);
            return update_answer(session.update());
          },
          [&](const api::ResolveRequest& it) -> api::Answer {
            remark_what_changes(request);
            return resolve(session, it, who);
          },
          [&](const api::ForkRequest& it) -> api::Answer { return daemon::fork_into(session, it, [] {}); },
          [&](const api::LandRequest& it) -> api::Answer {
            remark_what_changes(request);
            return daemon::land(session, it, who);
          },
          [&](const api::SavepointRequest& it) -> api::Answer {
            remark_what_changes(request);
            return change_kept_savepoints(session, context_.repository(), context_.log(), it);
          },
          [&](const api::MountsRequest& it) -> api::Answer {
            remark_what_changes(request);
            return change_kept_mounts(session, context_.repository(), it);
          },
          [&](const api::DiffRequest& it) -> api::Answer {
            return send_diff(session, context_.repository(), it, parts_to(on_part));
          },
          [&](const api::ExportRequest&) -> api::Answer {
            session::KeptToExport kept(session, {});
            return send_export(kept, context_.repository(), parts_to(on_part));
          },
          [&](const api::FinishRequest& it) -> api::Answer {
            const session::SessionRecord record = session.record();
            if (record.options.ephemeral && record.last_error.empty()) {
              throw Error(Errc::unavailable, "the process that hosted session " + id_.text() +
                                                 " has died; recovery rolls it back");
            }
            return finish_session(session, it.only_if_seen ? unseen(it) : it, who, {});
          },
          [&](const api::ChangesRequest&) -> api::Answer { return changes_of(session); },
          [&](const auto& it) -> api::Answer { return ask_files(DetachedFiles(session, context_).files, session, it); },
          [&](const api::TrafficRequest&) -> api::Answer { return api::TrafficAnswer{}; },
          [&](const api::UnmountRequest&) -> api::Answer {
            if (attachment != session::Attachment::lost) {
              throw Error(Errc::wrong_state, "session " + id_.text() + " is not mounted");
            }
            const std::string mountpoint = session.record().mountpoint;
            clear_dead_mount(mountpoint, "escrow:" + id_.text());
            session.set_mountpoint("");
            return api::UnmountAnswer{.mountpoint = mountpoint};
          },
      },
      request);
}

api::Answer SessionAccess::answer_ended(const session::SessionManager::Listed& listed, const api::Request& request,
                                        const std::function<void(const api::DiffPart&)>& on_part) {
  const session::SessionRecord& record = listed.record;
  const bool is_waiting = record.state == session::State::awaiting_approval;
  return std::visit(session::Overloaded{
                        [&](const api::StatusRequest&) -> api::Answer {
                          return api::SessionView{
                              .record = record,
                              .attachment = listed.attachment,
                              .head = context_.repository().references().head(record.options.branch),
                              .counts = record.counts,
                              .usage = std::nullopt,
                              .omitted = {},
                              .io = std::nullopt,
                              .denials = denials_of(context_.repository().catalog(), record.id),
                              .resumed_as = newest_of(context_.repository().catalog().resumed_as(record.id))};
                        },
                        [&](const api::CommitRequest&) -> api::Answer { return late_commit_answer(record); },
                        [&](const api::RollbackRequest& it) -> api::Answer {
                          if (!is_waiting || it.keep_result) return late_rollback_answer(record);
                          return reject({.reviewer = who_, .comment = {}}, session::Reason::requested);
                        },
                        [&](const api::FinishRequest& it) -> api::Answer { return late_finish_answer(record, it); },
                        [&](const api::DiscardRequest&) -> api::Answer { refuse_ended(record, "discard in"); },
                        [&](const api::UpdateRequest&) -> api::Answer { refuse_ended(record, "update"); },
                        [&](const api::ResolveRequest&) -> api::Answer { refuse_ended(record, "resolve paths of"); },
                        [&](const api::ForkRequest&) -> api::Answer { refuse_ended(record, "fork"); },
                        [&](const api::LandRequest&) -> api::Answer { refuse_ended(record, "commit a fork into"); },
                        [&](const api::SavepointRequest& it) -> api::Answer {
                          refuse_ended(record, std::string(api::name_of(it.verb)) + " a savepoint of");
                        },
                        [&](const api::MountsRequest&) -> api::Answer {
                          refuse_ended(record, "change the mount table of");
                        },
                        [&](const api::DiffRequest& it) -> api::Answer {
                          if (!it.since.empty()) refuse_ended(record, "diff since a savepoint of");
                          if (!is_waiting) refuse_ended(record, "diff");
                          return send_sealed_diff(record, context_.repository(), it, parts_to(on_part));
                        },
                        [&](const api::ExportRequest&) -> api::Answer { refuse_ended(record, "export"); },
                        [&](const api::UnmountRequest&) -> api::Answer { refuse_ended(record, "unmount"); },
                        [&](const api::ChangesRequest&) -> api::Answer { refuse_ended(record, "look into"); },
                        [&](const api::ReadFileRequest&) -> api::Answer { refuse_ended(record, "look into"); },
                        [&](const api::ListFilesRequest&) -> api::Answer { refuse_ended(record, "look into"); },
                        [&](const api::WriteFileRequest&) -> api::Answer { refuse_ended(record, "write into"); },
                        [&](const api::RemoveFileRequest&) -> api::Answer { refuse_ended(record, "write into"); },
                        [&](const api::TrafficRequest&) -> api::Answer { return api::TrafficAnswer{}; },
                    },
                    request);
}

api::SessionView SessionAccess::status(bool with_changes) {
  return std::get<api::SessionView>(ask(api::StatusRequest{.with_changes = with_changes}));
}

api::CommitAnswer SessionAccess::commit(const api::CommitRequest& request) {
  return std::get<api::CommitAnswer>(ask(request));
}

api::RollbackAnswer SessionAccess::rollback(bool keep_result) {
  return std::get<api::RollbackAnswer>(ask(api::RollbackRequest{.keep_result = keep_result}));
}

std::string SessionAccess::finish(const api::FinishRequest& request) {
  const auto ask_host = [&] {
    try {
      return ask(request);
    } catch (const api::Problem& problem) {
      if (!request.only_if_seen || problem.problem() != api::ProblemCode::unknown_field) throw;
      api::FinishRequest older = request;  // its host is of an earlier version
      older.only_if_seen = false;
      return ask(older);
    }
  };
  const api::Answer answer = ask_host();
  if (const auto* commit = std::get_if<api::CommitAnswer>(&answer)) return commit->warning;
  return std::get<api::RollbackAnswer>(answer).warning;
}

api::ChangesAnswer SessionAccess::changes() { return std::get<api::ChangesAnswer>(ask(api::ChangesRequest{})); }

api::FileAnswer SessionAccess::file(const api::Request& request) { return std::get<api::FileAnswer>(ask(request)); }

api::ListingAnswer SessionAccess::files(const api::ListFilesRequest& request) {
  return std::get<api::ListingAnswer>(ask(request));
}

api::DiscardAnswer SessionAccess::discard(const std::vector<std::string>& paths) {
  return std::get<api::DiscardAnswer>(ask(api::DiscardRequest{.paths = paths}));
}

// Here and for land() the fork is the parent's host's until that has answered.
void SessionAccess::fork_into(const session::SessionId& fork) {
  const session::WantedAlways wanted;
  ask(api::ForkRequest{.fork = fork.text()});
}

api::LandAnswer SessionAccess::land(const api::LandRequest& request) {
  const session::WantedAlways wanted;
  return std::get<api::LandAnswer>(ask(request));
}

api::UpdateAnswer SessionAccess::update() { return std::get<api::UpdateAnswer>(ask(api::UpdateRequest{})); }

api::ResolveAnswer SessionAccess::settle(const std::vector<std::string>& paths, session::Settle how) {
  return std::get<api::ResolveAnswer>(ask(api::ResolveRequest{.paths = paths, .how = how}));
}

api::SavepointsAnswer SessionAccess::savepoint(const api::SavepointRequest& request) {
  return std::get<api::SavepointsAnswer>(ask(request));
}

api::MountsAnswer SessionAccess::mounts(const api::MountsRequest& request) {
  return std::get<api::MountsAnswer>(ask(request));
}

api::CommitAnswer SessionAccess::approve(const session::Approval& approval) {
  return patiently([&] {
    const session::SessionRecord before = context_.sessions().status(id_).record;
    const bool is_done = before.state == session::State::committed && before.result &&
                         before.result->hex().starts_with(approval.result);
    if (is_done) return late_commit_answer(before);
    const session::CommitOutcome outcome = context_.sessions().approve(id_, approval);
    return commit_answer(context_.sessions().status(id_).record, outcome);
  });
}

api::RollbackAnswer SessionAccess::reject(const session::Review& review, session::Reason reason) {
  return patiently([&] {
    const session::SessionRecord record = context_.sessions().reject(id_, review, reason);
    return api::RollbackAnswer{.state = record.state, .reason = record.reason, .warning = {}};
  });
}

api::DiffEnd SessionAccess::diff(const api::DiffRequest& request, const std::function<void(std::string_view)>& out) {
  return std::get<api::DiffEnd>(ask(request, [&](const api::DiffPart& part) { out(part.text); }));
}

void SessionAccess::export_state(const std::function<void(std::string_view)>& out) {
  ask(api::ExportRequest{}, [&](const api::DiffPart& part) { out(part.text); });
}

std::vector<session::Omission> SessionAccess::omitted(api::DiffEnd end) {
  return end.unnamed == 0 ? std::move(end.omitted) : status(true).omitted;
}

std::string SessionAccess::unmount() {
  const std::string mountpoint = std::get<api::UnmountAnswer>(ask(api::UnmountRequest{})).mountpoint;
  const auto deadline = std::chrono::steady_clock::now() + kAccessPatience;
  while (context_.repository().directories().is_held(id_)) {
    if (std::chrono::steady_clock::now() > deadline) {
      throw Error(Errc::unavailable, "session " + id_.text() + " is unmounted, but the process that hosted it has not "
                                     "let go of it yet; try again");
    }
    std::this_thread::sleep_for(kAccessPause);
  }
  return mountpoint;
}

}  // namespace escrow::daemon
