#include "daemon/host/session_host.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "daemon/host/config.h"
#include "daemon/host/file_verbs.h"
#include "daemon/host/file_write_turns.h"
#include "daemon/host/invalidation.h"
#include "daemon/host/live_mounts.h"
#include "daemon/host/mountpoint.h"
#include "daemon/host/session_cut.h"
#include "daemon/host/session_git.h"
#include "daemon/host/session_stack.h"
#include "daemon/host/session_verbs.h"
#include "daemon/process/descriptor_limit.h"
#include "daemon/process/file_descriptor.h"
#include "session/base/overloaded.h"
#include "session/base/synchronized.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;
using session::LogLevel;
using session::WriteGate;
using std::chrono::milliseconds;

namespace {
// How long a mount that was unmounted may take to end.
constexpr std::chrono::milliseconds kUnmountPatience{1000}, kSettleEvery{1000};
// For a mount that is in use, though no process seems to use it.
constexpr std::chrono::milliseconds kPatienceForNobody{3000}, kPause{10};
thread_local const api::Peer* asker = nullptr;  // of the request that this thread serves: each connection has its own

FileDescriptor make_event() {
  FileDescriptor made(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (made) return made;
  throw Error(Errc::unavailable, std::string("cannot make an event descriptor: ") + std::strerror(errno));
}

}  // namespace

struct SessionHost::Impl {
  // Which verb runs: they exclude one another, and the first that ends the session decides.
  struct Verbs {
    bool ended = false;
    bool stopping = false;  // the host goes away: nobody may wait for the run any more
  };
  using Held = session::Synchronized<Verbs>::Write;

  Impl(std::unique_ptr<session::Session> hosted, Options given, storage::Repository& in, session::Log& to)
      : session(std::move(hosted)),
        options(std::move(given)),
        repository(in),
        log(to),
        cache_before(repository.cache_counts()),
        event(make_event()),
        stack(*session, repository, log, roots(),
              open_entries(*session, options.git, repository, options.place, options.git_viewer.hand), options.place,
              options.git, options.git_viewer,
              options.trace ? [this](const auto& lines) { options.trace->write(session->record(), lines); }
                            : std::function<void(const std::vector<session::TracedDenial>&)>()),
        mount(std::make_unique<fuse::Mount>(stack.files(), mount_options(), log, [this] { announce(); })) {
    allow_many_descriptors();
    session->gate().when_waiting([served = mount.get()] { return served->begin_to_wait(); });
    server = std::make_unique<api::ControlServer>(
        session->directory(),
        [this](const api::Request& request, const api::Peer& peer, const SendPart& send_part) {
          if (peer.session != session->id().text()) {
            throw Error(Errc::no_session, "this socket is session " + session->id().text() + "'s");
          }
          asker = &peer;
          return handle(request, peer.speaks_for.empty() ? principal_of(peer.uid) : peer.speaks_for, send_part);
        },
        [this] { return view(false); }, log);
    note_mounts(session->directory(), stack.mounts());
    session->set_mountpoint(options.mount.mountpoint);
  }

  ~Impl() {
    verbs.lock()->stopping = true;
    changed.notify_all();
    server.reset();
    if (settling.joinable()) settling.join();
    const bool ended = verbs.lock()->ended;
    const std::string warning = take_mount_away();
    if (!warning.empty()) log.write(LogLevel::warning, warning);
    session->gate().when_waiting({});
    mount.reset();
    if (ended) return;
    try {
      note_mounts(session->directory(), {});
      session->set_mountpoint("");
    } catch (const Error& error) {
      log.write(LogLevel::warning, std::string("the session stays marked as mounted: ") + error.what());
    }
  }

  // Where links must not lead out of.
  session::ContainedLinks::Roots roots() const {
    const std::string& host = options.mount.mountpoint;
    return {options.visible_root.empty() ? host : options.visible_root, host, session->record().options.prefix.text()};
  }

  fuse::MountOptions mount_options() {
    fuse::MountOptions result = options.mount;
    result.source = "escrow:" + session->id().text();
    result.paths_of = [this](session::NodeId node) { return stack.names(node).paths; };
    result.is_volatile = stack.volatile_nodes();
    if (const session::AccessPolicy* policy = stack.policy()) {
      result.cache_listings = !policy->can_deny_on_seen_directory(session::Action::list);
      result.cache_links = !policy->can_deny_on_seen_file(session::Action::read);
    }
    return result;
  }

  // ---- What brings the mount down.

  void announce() const {
    const std::uint64_t one = 1;
    if (write(event.get(), &one, sizeof one) < 0) log.write(LogLevel::warning, "cannot tell that the mount has ended");
  }

  // The kernel's dirty pages reach the session, if there is a way to the mount. False: not all of them in time.
  bool bring_in_pages(milliseconds patience = fuse::HelperProcess::kForEver) {
    return !mount->is_mounted() || mount->flush(stack.held_files(), patience) != fuse::Flushed::late;
  }

  bool writes_back() const { return options.mount.io.data == fuse::Data::writeback && mount->is_mounted(); }

  // The kernel's dirty pages reach the session, then nothing does.
  void seal() {
    session->gate().move_to(WriteGate::Position::draining);
    bring_in_pages();
    session->gate().move_to(WriteGate::Position::sealed);
  }

  // What was written in the last moments is in memory only. When it goes with the mount, and there is no room to commit
  // it or to record it, it would be lost, and a commit after that be without it.
  void record_if_room_is_short() {
    if (has_plenty_of_room(session->directory())) return;
    bring_in_pages();
    session->overlay().flush(false);
  }

  // nullopt: it is unmounted. Otherwise the processes that hold it; "" if none can be seen (a mount inside it, a
  // descriptor on its way through a socket). Such a hold often ends in a moment: a process is just exiting.
  std::optional<std::string> unmount_or_name_holders() {
    for (const auto deadline = std::chrono::steady_clock::now() + kPatienceForNobody; !mount->try_unmount();) {
      std::string holders = holders_of(options.mount.mountpoint);
      if (!holders.empty() || std::chrono::steady_clock::now() > deadline) return holders;
      std::this_thread::sleep_for(kPause);
    }
    return std::nullopt;
  }

  // Unmounts, or detaches and says who still holds it.
  std::string take_mount_away() {
    if (!mount->is_mounted()) return {};
    const std::optional<std::string> holders = unmount_or_name_holders();
    if (!holders) return {};
    mount->detach();
    return "the mount " + options.mount.mountpoint + " was still in use" +
           (holders->empty() ? ", by no process that can be seen, and was detached"
                             : " by " + *holders + " and was detached");
  }

  std::unique_ptr<SessionCut> try_cut() {
    return daemon::try_cut(session->gate(), *mount, writes_back(),
                           [this](milliseconds patience) { return bring_in_pages(patience); });
  }

  std::string seal_and_unmount(const Held&) {
    // Unmounting writes back what is dirty by itself; only when that is not possible each file is asked for.
    session->gate().move_to(WriteGate::Position::draining);
    std::string warning;
    if (mount->is_mounted() && mount->try_unmount()) {
      // Another mount namespace may still show it (a container, or a sandbox whose last process has just gone), and
      // then nothing was written back yet. One that no process lives in has nobody who could have mapped anything.
      if (!mount->wait_for_end(kUnmountPatience)) bring_in_pages();
    } else if (mount->is_mounted()) {
      bring_in_pages();
      session->gate().move_to(WriteGate::Position::sealed);
      warning = take_mount_away();
    }
    session->gate().move_to(WriteGate::Position::sealed);
    // Whoever learns that the session has ended finds every denial told.
    stack.denials().flush();
    return warning;
  }

  void end(Held& held) {
    stack.denials().flush();
    held->ended = true;
    announce();
  }

  // Nothing can be done with a session as long as nobody knows what became of its commit.
  void settle(Held& held) {
    if (held->ended || session->record().state != session::State::committing) return;
    const Invalidation invalidation(*session, *mount, log);
    session->settle();
    const session::SessionRecord record = session->record();
    if (record.state == session::State::open) {
      session->gate().move_to(record.options.read_only ? WriteGate::Position::sealed : WriteGate::Position::open);
      return;
    }
    const std::string warning = take_mount_away();
    if (!warning.empty()) log.write(LogLevel::warning, warning);
    end(held);
  }

  // Every verb's beginning. It may have waited for another one, and its asker may have given up meanwhile.
  Held lock_verbs() {
    Held held = verbs.lock();
    if (asker != nullptr && asker->has_gone && asker->has_gone())
      throw Error(Errc::unavailable, "the asker has gone; nothing is done");
    settle(held);
    return held;
  }

  // Also when nobody asks for anything any more. Under the lock of the verbs.
  void settle_by_itself(const std::string& why) {
    log.write(LogLevel::warning, "what became of the commit of session " + session->id().text() +
                                     " is looked for until it is known: " + why);
    changed.notify_all();
    if (!settling.joinable()) settling = std::thread([this] { settle_until_stopped(); });
  }

  void settle_until_stopped() {
    for (Held held = verbs.lock(); !held->stopping && !held->ended;) {
      if (session->record().state != session::State::committing) {
        changed.wait(held.lock());
        continue;
      }
      changed.wait_for(held.lock(), kSettleEvery);
      try {
        if (!held->stopping) settle(held);
      } catch (const Error&) {
        // Not yet: the disk is full still, or cannot be written.
      }
    }
  }

  // ---- Verbs.

  void refuse_while_run_owns(const char* verb) const {
    if (options.cancel_run) {
      throw Error(Errc::wrong_state, std::string("cannot ") + verb + " session " + session->id().text() +
                                         ": a command still runs in it; its exit status decides, or roll it back");
    }
  }

  // How it ends, and what it changes, are the command's.
  void refuse_while_run_has_it() const {
    if (options.cancel_run) {
      throw Error(Errc::attached_elsewhere, "session " + session->id().text() +
                                                " is in use by another process; wait for its command to end");
    }
  }

  api::Answer commit(const api::CommitRequest& request, const std::string& who) {
    Held held = lock_verbs();
    if (held->ended) return late_commit_answer(session->record());
    refuse_while_run_owns("commit");
    const WriteGate::Position before = session->gate().position();
    const std::shared_ptr<void> excluded = file_writes.exclude();
    std::unique_ptr<SessionCut> cut;
    try {
      cut = try_cut();
      if (!cut) {
        // Programs are refused from here on: not for a commit that cannot be.
        if (auto conflicts = session->foreseen_conflicts()) return commit_answer(*session, std::move(*conflicts));
        // Writes into the kernel's cache cannot be refused.
        if (writes_back()) refuse_to_commit_without_cut(session->id());
        seal();
      }
      const session::CommitOutcome outcome =
          session->commit(with_commits_inside(*session, {.message = request.message, .exit_code = {},
                                                         .reason = session::Reason::success,
                                                         .by_hand = true, .who = who,
                                                         .include_ignored = request.include_ignored}));
      api::CommitAnswer answer = commit_answer(*session, outcome);
      if (std::holds_alternative<session::Conflicts>(outcome)) {
        session->gate().move_to(before);
        return answer;
      }
      // From here on each call is refused: before, one into the repository waited.
      session->gate().move_to(WriteGate::Position::sealed);
      cut.reset();
      add_warning(answer, take_mount_away());
      end(held);
      return answer;
    } catch (const std::exception& failure) {
      const session::State state = session->record().state;
      session->gate().move_to(state == session::State::open ? before : WriteGate::Position::sealed);
      if (state == session::State::committing) settle_by_itself(failure.what());
      throw;
    }
  }

  api::Answer rollback(const api::RollbackRequest& request, const std::string& who) {
    if (options.cancel_run) return cancel_run();
    Held held = lock_verbs();
    if (held->ended) return late_rollback_answer(session->record());
    session->gate().move_to(WriteGate::Position::sealed);
    const std::string warning = take_mount_away();
    session->rollback(session::Reason::requested, std::nullopt, who, request.keep_result);
    const session::SessionRecord record = session->record();
    end(held);
    return api::RollbackAnswer{.state = record.state, .reason = record.reason, .warning = warning};
  }

  // Asks the run to end its command, and waits for what became of the session.
  api::Answer cancel_run() {
    options.cancel_run();
    Held held = verbs.lock();
    changed.wait(held.lock(), [&] { return held->ended || held->stopping; });
    if (!held->ended) {
      throw Error(Errc::unavailable, "the run was cancelled, but session " + session->id().text() +
                                         " could not be rolled back; `escrow status` shows why");
    }
    return late_rollback_answer(session->record());
  }

  api::Answer unmount() {
    refuse_while_run_owns("unmount");
    Held held = lock_verbs();
    if (!held->ended) record_if_room_is_short();
    if (const auto holders = held->ended ? std::nullopt : unmount_or_name_holders()) {
      throw Error(Errc::busy, "cannot unmount " + options.mount.mountpoint + ": it is in use" +
                                  (holders->empty() ? std::string() : " by " + *holders) +
                                  "; let go of it and try again");
    }
    announce();
    return api::UnmountAnswer{.mountpoint = options.mount.mountpoint};
  }

  // As a run ends its session: nothing is written any more, and the mount is gone whoever holds it.
  api::Answer finish(const api::FinishRequest& request, const std::string& who) {
    refuse_while_run_has_it();
    Held held = lock_verbs();
    if (held->ended) return late_finish_answer(session->record(), request);
    const std::shared_ptr<void> excluded = file_writes.exclude();
    if (request.reason == session::Reason::success || request.keep_result) record_if_room_is_short();
    const api::FinishRequest ending = request.only_if_seen && !mount->was_used() ? unseen(request) : request;
    api::Answer answer = finish_session(*session, ending, who, seal_and_unmount(held));
    end(held);
    return answer;
  }

  // Before what changes the session.
  void remark(const api::Request& request, const std::string& who) {
    if (const char* verb = changing_verb_of(request))
      repository.catalog().remark(session->id(), session::SystemClock().now(), who, verb);
  }

  // A verb that looks at what the session holds.
  Held lock_to_look(const char* verb) {
    Held held = lock_verbs();
    if (held->ended) refuse_ended(session->record(), verb);
    bring_in_pages();
    return held;
  }

  // A verb that changes what the session shows.
  template <typename Work>
  api::Answer change(const api::Request& request, const char* verb, const std::string& who, Work work) {
    const Held held = lock_to_look(verb);
    if (writes_back()) refuse_under_write_back(verb, session->id());
    remark(request, who);
    const Invalidation invalidation(*session, *mount, log);
    return work();
  }

  api::Answer discard(const api::DiscardRequest& request, const std::string& who) {
    const std::vector<session::RepoPath> paths = parse_paths(request.paths);
    return change(request, "discard in", who, [&] {
      session->discard(paths);
      return api::DiscardAnswer{.discarded = paths.size()};
    });
  }

  api::Answer update(const std::string& who) {
    refuse_while_run_owns("update");
    return change(api::UpdateRequest{}, "update", who, [&] { return update_answer(session->update()); });
  }

  api::Answer resolve(const api::ResolveRequest& request, const std::string& who) {
    const char* verb = "resolve paths of";
    if (!request.paths.empty()) {
      refuse_while_run_owns(verb);
      return change(request, verb, who, [&] { return daemon::resolve(*session, request, who); });
    }
    const Held held = lock_to_look(verb);
    return daemon::resolve(*session, request, who);
  }

  // What programs wrote before the call is in the savepoint, in whatever order the kernel brings it in; nobody is
  // refused anything. Files that are open when the session goes back keep what they have: of those that changed, the
  // names lead to new ones.
  api::Answer savepoint(const api::SavepointRequest& request, const std::string& who) {
    const std::string verb = std::string(api::name_of(request.verb)) + " a savepoint of";
    const Held held = lock_verbs();
    if (held->ended) refuse_ended(session->record(), verb);
    if (request.verb == api::SavepointVerb::list || request.verb == api::SavepointVerb::drop)
      return change_savepoints(*session, request);
    remark(request, who);
    const std::shared_ptr<void> excluded = file_writes.exclude();
    const Invalidation invalidation(*session, *mount, log);  // once writers go on
    std::unique_ptr<SessionCut> cut = required_cut(verb);
    return change_live_savepoints(*session, repository, stack, *mount, log, request, [&cut] { cut.reset(); });
  }

  // Most of what waits to be recorded is so before anybody has to wait.
  std::unique_ptr<SessionCut> required_cut(const std::string& verb) {
    session->overlay().flush(true);
    if (std::unique_ptr<SessionCut> cut = try_cut()) return cut;
    refuse_without_cut(verb, session->id());
  }

  // As it was when it was asked for, while programs and verbs go on.
  api::Answer export_state(const SendPart& send_part) {
    Held held = lock_verbs();
    if (held->ended) refuse_ended(session->record(), "export");
    std::shared_ptr<void> excluded = file_writes.exclude();
    std::unique_ptr<SessionCut> cut = required_cut("export");
    session::KeptToExport kept(*session, [&cut] { cut.reset(); });
    excluded.reset();
    held.lock().unlock();
    return send_export(kept, repository, send_part);
  }

  api::Answer mounts(const api::MountsRequest& request, const std::string& who) {
    const Held held = lock_verbs();
    if (held->ended) refuse_ended(session->record(), "change the mount table of");
    remark(request, who);
    return change_live_mounts(*session, repository, stack, *mount, log, request);
  }

  // As a savepoint; what it is then is filled in while programs go on.
  api::Answer fork(const api::ForkRequest& request) {
    const Held held = lock_verbs();
    if (held->ended) refuse_ended(session->record(), "fork");
    std::shared_ptr<void> excluded = file_writes.exclude();
    std::unique_ptr<SessionCut> cut = required_cut("fork");
    return daemon::fork_into(*session, request, [&] {
      cut.reset();
      excluded.reset();
    });
  }

  // Also of a run, while its command runs in it: a fork that the command has made.
  api::Answer land(const api::LandRequest& request, const std::string& who) {
    return change(request, "commit a fork into", who, [&] { return daemon::land(*session, request, who); });
  }

  api::Answer diff(const api::DiffRequest& request, const SendPart& send_part) {
    lock_to_look("diff");
    // Not under the lock of the verbs: a reader of a long diff must not keep a commit waiting.
    return send_diff(*session, repository, request, send_part);
  }

  api::Answer changes() {
    refuse_while_run_has_it();
    lock_to_look("look into");
    return changes_of(*session);
  }

  SessionFiles session_files() {
    refuse_while_run_has_it();
    return {stack.files(), mount.get()};
  }

  api::TrafficAnswer traffic() const {
    const storage::CacheCounts cache = repository.cache_counts();
    return {operations_of(mount->counts()), session->overlay().usage().staged_bytes, cache.hits - cache_before.hits,
            cache.misses - cache_before.misses};
  }

  api::IoView io() const {
    const fuse::IoMode mode = options.mount.io;
    return {.opens = fuse::name_of(mode.opens), .data = fuse::name_of(mode.data), .reason = options.io_reason};
  }

  api::SessionView view(bool with_changes) {
    const bool is_mounted = mount->is_mounted();
    api::SessionView view =
        view_of(*session, is_mounted ? session::Attachment::mounted : session::Attachment::none, with_changes);
    if (!view.counts) view.counts = view.record.counts;
    view.io = io();
    stack.denials().flush();
    view.denials = denials_of(repository.catalog(), session->id());
    return view;
  }

  api::Answer handle(const api::Request& request, const std::string& who, const SendPart& send_part) {
    return std::visit(
        session::Overloaded{
            [&](const api::StatusRequest& it) -> api::Answer { return view(it.with_changes); },
            [&](const api::CommitRequest& it) { return commit(it, who); },
            [&](const api::RollbackRequest& it) { return rollback(it, who); },
            [&](const api::DiscardRequest& it) { return discard(it, who); },
            [&](const api::UpdateRequest&) { return update(who); },
            [&](const api::ResolveRequest& it) { return resolve(it, who); },
            [&](const api::DiffRequest& it) { return diff(it, send_part); },
            [&](const api::SavepointRequest& it) { return savepoint(it, who); },
            [&](const api::ForkRequest& it) { return fork(it); },
            [&](const api::LandRequest& it) { return land(it, who); },
            [&](const api::ExportRequest&) -> api::Answer { return export_state(send_part); },
            [&](const api::MountsRequest& it) { return mounts(it, who); },
            [&](const api::UnmountRequest&) { return unmount(); },
            [&](const api::FinishRequest& it) { return finish(it, who); },
            [&](const api::ChangesRequest&) { return changes(); },
            [&](const api::WriteFileRequest& it) { return write_whole(session_files(), *session, it, file_writes); },
            [&](const auto& it) -> api::Answer { return ask_files(session_files(), *session, it); },
            [&](const api::TrafficRequest&) -> api::Answer { return traffic(); },
        },
        request);
  }

  const std::unique_ptr<session::Session> session;  // constant, as the next four; self-locking
  const Options options;
  storage::Repository& repository;
  session::Log& log;
  const storage::CacheCounts cache_before;  // what the process had counted for sessions before this one
  const FileDescriptor event;
  SessionStack stack;                  // self-locking
  FileWriteTurns file_writes;  // self-locking
  session::Synchronized<Verbs> verbs;  // self-locking; held for the whole of a verb
  std::condition_variable changed;     // with `verbs`: the session has ended, or the host is to stop
  std::unique_ptr<fuse::Mount> mount;  // constant until destruction; self-locking
  std::unique_ptr<api::ControlServer> server;
  std::thread settling;                // guarded by `verbs`
};

SessionHost::SessionHost(std::unique_ptr<session::Session> session, Options options, storage::Repository& repository,
                         session::Log& log)
    : impl_(std::make_unique<Impl>(std::move(session), std::move(options), repository, log)) {}

SessionHost::~SessionHost() = default;

session::Session& SessionHost::session() { return *impl_->session; }
std::string SessionHost::words_about_hidden_git() const { return impl_->stack.words_about_hidden_git(); }
const std::string& SessionHost::mountpoint() const { return impl_->options.mount.mountpoint; }
fuse::Mount& SessionHost::mount() { return *impl_->mount; }
session::FileSystem& SessionHost::files() { return impl_->stack.files(); }
api::IoView SessionHost::io() const { return impl_->io(); }
api::TrafficAnswer SessionHost::traffic() const { return impl_->traffic(); }
std::vector<api::MountEntryView> SessionHost::mounts() { return impl_->stack.mounts(); }
int SessionHost::event_fd() const { return impl_->event.get(); }
bool SessionHost::has_ended() const { return impl_->verbs.lock()->ended; }
bool SessionHost::is_mounted() const { return impl_->mount->is_mounted() && !impl_->mount->is_unmounted(); }

std::string SessionHost::seal_and_unmount() { return impl_->seal_and_unmount(impl_->verbs.lock()); }

void SessionHost::record_if_room_is_short() {
  const Impl::Held held = impl_->verbs.lock();
  impl_->record_if_room_is_short();
}

session::CommitOutcome SessionHost::finish_commit(const session::CommitRequest& request) {
  Impl::Held held = impl_->verbs.lock();
  session::CommitOutcome outcome = impl_->session->commit(request);
  impl_->end(held);
  impl_->changed.notify_all();
  return outcome;
}

void SessionHost::finish_rollback(session::Reason reason, std::optional<int> exit_code, const std::string& who,
                                  bool keep_result) {
  Impl::Held held = impl_->verbs.lock();
  impl_->session->rollback(reason, exit_code, who, keep_result);
  impl_->end(held);
  impl_->changed.notify_all();
}

std::string SessionHost::leave() {
  const Impl::Held held = impl_->verbs.lock();
  std::string lost;
  try {
    impl_->bring_in_pages();
  } catch (const Error& error) {
    lost = error.what();
  }
  const std::string warning = impl_->take_mount_away();
  return lost.empty() || warning.empty() ? lost + warning : lost + "; " + warning;
}

}  // namespace escrow::daemon
