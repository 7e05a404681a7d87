#include "daemon/session_host.h"

#include <sys/eventfd.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <utility>

#include "daemon/config.h"
#include "daemon/file_descriptor.h"
#include "daemon/mountpoint.h"
#include "daemon/session_stack.h"
#include "daemon/session_verbs.h"
#include "session/synchronized.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;
using session::LogLevel;
using session::WriteGate;

namespace {

// How long a mount that was unmounted may take to end.
constexpr std::chrono::milliseconds kPatience{1000};
// More than what waits in memory to be recorded ever needs.
constexpr std::uint64_t kPlenty_bytes = std::uint64_t{64} << 20;

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};

FileDescriptor make_event() {
  FileDescriptor made(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (made.get() < 0) {
    throw Error(Errc::unavailable, std::string("cannot make an event descriptor: ") + std::strerror(errno));
  }
  return made;
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
        event(make_event()),
        stack(*session, repository.catalog(), log, roots(),
              options.trace ? [this](const auto& lines) { options.trace->write(session->record(), lines); }
                            : std::function<void(const std::vector<session::TracedDenial>&)>()),
        mount(std::make_unique<fuse::Mount>(stack.files(), mount_options(), log, [this] { announce(); })) {
    server = std::make_unique<api::ControlServer>(
        session->directory(),
        [this](const api::Request& request, const api::Peer& peer, const SendPart& send_part) {
          return handle(request, principal_of(peer.uid), send_part);
        },
        log);
    session->set_mountpoint(options.mount.mountpoint);
  }

  ~Impl() {
    verbs.lock()->stopping = true;
    run_ended.notify_all();
    server.reset();
    const bool ended = verbs.lock()->ended;
    const std::string warning = take_mount_away();
    if (!warning.empty()) log.write(LogLevel::warning, warning);
    mount.reset();
    if (ended) return;
    try {
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

  fuse::MountOptions mount_options() const {
    fuse::MountOptions result = options.mount;
    result.source = "escrow:" + session->id().text();
    if (const session::AccessPolicy* policy = stack.policy()) {
      result.cache_listings = !policy->can_deny(session::Action::list);
      result.cache_links = !policy->can_deny(session::Action::read);
    }
    return result;
  }

  // ---- What brings the mount down.

  void announce() const {
    const std::uint64_t one = 1;
    if (write(event.get(), &one, sizeof one) < 0) log.write(LogLevel::warning, "cannot tell that the mount has ended");
  }

  // The kernel's dirty pages reach the session, then nothing does.
  void seal() {
    session->gate().move_to(WriteGate::Position::draining);
    if (mount->is_mounted()) mount->flush(session->overlay().held_files());
    session->gate().move_to(WriteGate::Position::sealed);
  }

  // What was written in the last moments is in memory only. When it goes with the mount, and there is no room to commit
  // it or to record it, it would be lost, and a commit after that be without it.
  void record_if_room_is_short() {
    struct statvfs disk {};
    const bool is_known = ::statvfs(session->directory().c_str(), &disk) == 0;
    if (is_known && std::uint64_t{disk.f_bavail} * disk.f_frsize >= kPlenty_bytes) return;
    if (mount->is_mounted()) mount->flush(session->overlay().held_files());
    session->overlay().flush(false);
  }

  // Unmounts, or detaches and says who still holds it.
  std::string take_mount_away() {
    if (!mount->is_mounted() || mount->try_unmount()) return {};
    const std::string holders = holders_of(options.mount.mountpoint);
    mount->detach();
    return "the mount " + options.mount.mountpoint + " was still in use" +
           (holders.empty() ? std::string(" and was detached") : " by " + holders + " and was detached");
  }

  std::string seal_and_unmount(const Held&) {
    // Unmounting writes back what is dirty by itself; only when that is not possible each file is asked for.
    session->gate().move_to(WriteGate::Position::draining);
    std::string warning;
    if (mount->is_mounted() && mount->try_unmount()) {
      // Another mount namespace may still show it (a container, or a sandbox whose last process has just gone), and
      // then nothing was written back yet.
      if (!mount->wait_for_end(kPatience)) mount->flush(session->overlay().held_files());
    } else if (mount->is_mounted()) {
      mount->flush(session->overlay().held_files());
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

  // ---- Verbs.

  void refuse_while_run_owns(const char* verb) const {
    if (options.cancel_run) {
      throw Error(Errc::wrong_state, std::string("cannot ") + verb + " session " + session->id().text() +
                                         ": a command still runs in it; its exit status decides, or roll it back");
    }
  }

  api::Answer commit(const api::CommitRequest& request, const std::string& who) {
    Held held = verbs.lock();
    if (held->ended) return late_commit_answer(session->record());
    refuse_while_run_owns("commit");
    const WriteGate::Position before = session->gate().position();
    try {
      seal();
      const session::CommitOutcome outcome = session->commit({.message = request.message,
                                                              .exit_code = {},
                                                              .reason = session::Reason::success,
                                                              .by_hand = true,
                                                              .who = who});
      api::CommitAnswer answer = commit_answer(*session, outcome);
      if (std::holds_alternative<session::Conflicts>(outcome)) {
        session->gate().move_to(before);
        return answer;
      }
      answer.warning = take_mount_away();
      end(held);
      return answer;
    } catch (...) {
      if (session->record().state == session::State::open) session->gate().move_to(before);
      throw;
    }
  }

  api::Answer rollback(const api::RollbackRequest& request, const std::string& who) {
    if (options.cancel_run) return cancel_run();
    Held held = verbs.lock();
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
    run_ended.wait(held.lock(), [&] { return held->ended || held->stopping; });
    if (!held->ended) {
      throw Error(Errc::unavailable, "the run was cancelled, but session " + session->id().text() +
                                         " could not be rolled back; `escrow status` shows why");
    }
    return late_rollback_answer(session->record());
  }

  api::Answer unmount() {
    refuse_while_run_owns("unmount");
    Held held = verbs.lock();
    if (!held->ended) record_if_room_is_short();
    if (!held->ended && !mount->try_unmount()) {
      const std::string holders = holders_of(options.mount.mountpoint);
      throw Error(Errc::busy, "cannot unmount " + options.mount.mountpoint + ": it is in use" +
                                  (holders.empty() ? std::string() : " by " + holders) +
                                  "; let go of it and try again");
    }
    announce();
    return api::UnmountAnswer{.mountpoint = options.mount.mountpoint};
  }

  // As a run ends its session: nothing is written any more, and the mount is gone whoever holds it.
  api::Answer finish(const api::FinishRequest& request, const std::string& who) {
    refuse_while_run_owns("finish");
    Held held = verbs.lock();
    if (held->ended) return late_finish_answer(session->record(), request);
    if (request.reason == session::Reason::success || request.keep_result) record_if_room_is_short();
    std::string warning = seal_and_unmount(held);
    api::Answer answer = finish_session(*session, request, who, std::move(warning));
    end(held);
    return answer;
  }

  void invalidate(const std::vector<session::Overlay::Stale>& stale) {
    for (const session::Overlay::Stale& entry : stale) mount->invalidate_entry(entry.directory, entry.name);
  }

  api::Answer discard(const api::DiscardRequest& request) {
    const std::vector<session::RepoPath> paths = parse_paths(request.paths);
    Held held = verbs.lock();
    if (held->ended) refuse_ended(session->record(), "discard in");
    if (mount->is_mounted()) mount->flush(session->overlay().held_files());
    invalidate(session->discard(paths));
    return api::DiscardAnswer{.discarded = paths.size()};
  }

  api::Answer update() {
    refuse_while_run_owns("update");
    Held held = verbs.lock();
    if (held->ended) refuse_ended(session->record(), "update");
    if (mount->is_mounted()) mount->flush(session->overlay().held_files());
    const session::UpdateOutcome outcome = session->update();
    invalidate(outcome.stale);
    return update_answer(outcome);
  }

  api::Answer diff(const api::DiffRequest& request, const SendPart& send_part) {
    {
      Held held = verbs.lock();
      if (held->ended) refuse_ended(session->record(), "diff");
      if (mount->is_mounted()) mount->flush(session->overlay().held_files());
    }
    // Not under the lock of the verbs: a reader of a long diff must not keep a commit waiting.
    return send_diff(*session, repository, request, send_part);
  }

  api::IoView io() const {
    return {.opens = fuse::name_of(options.mount.io.opens),
            .data = fuse::name_of(options.mount.io.data),
            .reason = options.io_reason};
  }

  api::Answer status(const api::StatusRequest& request) {
    api::SessionView view = view_of(*session, session::Attachment::mounted, request.with_changes);
    view.io = io();
    stack.denials().flush();
    view.denials = denials_of(repository.catalog(), session->id());
    return view;
  }

  api::Answer handle(const api::Request& request, const std::string& who, const SendPart& send_part) {
    return std::visit(Overloaded{
                          [&](const api::StatusRequest& it) { return status(it); },
                          [&](const api::CommitRequest& it) { return commit(it, who); },
                          [&](const api::RollbackRequest& it) { return rollback(it, who); },
                          [&](const api::DiscardRequest& it) { return discard(it); },
                          [&](const api::UpdateRequest&) { return update(); },
                          [&](const api::DiffRequest& it) { return diff(it, send_part); },
                          [&](const api::UnmountRequest&) { return unmount(); },
                          [&](const api::FinishRequest& it) { return finish(it, who); },
                      },
                      request);
  }

  const std::unique_ptr<session::Session> session;  // constant, as the next four; self-locking
  const Options options;
  storage::Repository& repository;
  session::Log& log;
  const FileDescriptor event;
  SessionStack stack;                  // self-locking
  session::Synchronized<Verbs> verbs;  // self-locking; held for the whole of a verb
  std::condition_variable run_ended;   // with `verbs`
  std::unique_ptr<fuse::Mount> mount;  // constant until destruction; self-locking
  std::unique_ptr<api::ControlServer> server;
};

SessionHost::SessionHost(std::unique_ptr<session::Session> session, Options options, storage::Repository& repository,
                         session::Log& log)
    : impl_(std::make_unique<Impl>(std::move(session), std::move(options), repository, log)) {}

SessionHost::~SessionHost() = default;

session::Session& SessionHost::session() { return *impl_->session; }
const std::string& SessionHost::mountpoint() const { return impl_->options.mount.mountpoint; }
fuse::Mount& SessionHost::mount() { return *impl_->mount; }
session::FileSystem& SessionHost::files() { return impl_->stack.files(); }
api::IoView SessionHost::io() const { return impl_->io(); }
int SessionHost::event_fd() const { return impl_->event.get(); }
bool SessionHost::has_ended() const { return impl_->verbs.lock()->ended; }
bool SessionHost::is_mounted() const { return impl_->mount->is_mounted(); }

std::string SessionHost::seal_and_unmount() { return impl_->seal_and_unmount(impl_->verbs.lock()); }

void SessionHost::record_if_room_is_short() {
  const Impl::Held held = impl_->verbs.lock();
  impl_->record_if_room_is_short();
}

session::CommitOutcome SessionHost::finish_commit(const session::CommitRequest& request) {
  Impl::Held held = impl_->verbs.lock();
  session::CommitOutcome outcome = impl_->session->commit(request);
  impl_->end(held);
  impl_->run_ended.notify_all();
  return outcome;
}

void SessionHost::finish_rollback(session::Reason reason, std::optional<int> exit_code, const std::string& who,
                                  bool keep_result) {
  Impl::Held held = impl_->verbs.lock();
  impl_->session->rollback(reason, exit_code, who, keep_result);
  impl_->end(held);
  impl_->run_ended.notify_all();
}

std::string SessionHost::leave() {
  const Impl::Held held = impl_->verbs.lock();
  if (impl_->mount->is_mounted()) impl_->mount->flush(impl_->session->overlay().held_files());
  return impl_->take_mount_away();
}

api::Answer SessionHost::handle(const api::Request& request, const std::string& who, const SendPart& send_part) {
  return impl_->handle(request, who, send_part);
}

}  // namespace escrow::daemon
