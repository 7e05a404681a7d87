#include "daemon/service/sessions/mount_host.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cassert>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "api/json_document.h"
#include "api/request_fields.h"
#include "daemon/host/io_choice.h"
#include "daemon/host/mount_service.h"
#include "daemon/host/mountpoint.h"
#include "daemon/host/repository_context.h"
#include "daemon/host/session_access.h"
#include "daemon/host/session_git.h"
#include "daemon/host/session_host.h"
#include "daemon/process/exit_status.h"
#include "daemon/service/host_process.h"
#include "daemon/service/http/request_options.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;
using namespace std::chrono_literals;

namespace {

constexpr auto kRenewAfter = 60s;  // files of packs that others have removed are held no longer between two sessions


class MountHost {
 public:
  MountHost() : signals_(take_leave_signals()), channel_(begin_host_process()) {}

  void serve_until_told() {
    while (const std::optional<Message> message = next()) {
      try {
        if (message->kind == MessageKind::prepare) open(message->body, false);
        if (message->kind == MessageKind::order) serve(decode_mount_order(message->body));
      } catch (const Error& error) {
        if (message->kind == MessageKind::order) channel_.send(MessageKind::refused, encode_refusal(error));
      }
    }
  }

 private:
  // nullopt: there is nobody any more to give an order, or a signal asks to leave.
  std::optional<Message> next() {
    std::array<pollfd, 2> watched = {{{channel_.descriptor(), POLLIN, 0}, {signals_.get(), POLLIN, 0}}};
    while (::poll(watched.data(), watched.size(), -1) < 0) {
      if (errno != EINTR) return std::nullopt;
    }
    if (watched[1].revents != 0) return std::nullopt;
    return channel_.receive();
  }

  void open(const std::string& repository, bool verbose) {
    const auto now = std::chrono::steady_clock::now();
    if (!context_ || repository != path_) {
      GlobalOptions options;
      options.repository = repository;
      options.verbose = verbose;
      context_.reset();
      context_ = std::make_unique<RepositoryContext>(options);
      path_ = repository;
    } else if (now - opened_ > kRenewAfter) {
      context_->repository().renew_handles();
    } else {
      return;
    }
    opened_ = now;
  }

  SessionHost::Options options_of(const MountOrder& order, const session::Session& attached) const {
    const session::SessionOptions session = attached.record().options;
    const std::string& git_directory = context_->repository().git_directory();
    SessionHost::Options options;
    options.git = noted_git_terms(attached.directory());
    options.git_viewer = order.viewer;
    options.mount.mountpoint = check_mountpoint(order.mountpoint, git_directory);
    const MountArguments wanted = mounting_of(order.mount_options);
    options.place = {.is_seen = true, .sees_others = !wanted.in_container};
    options.mount.allow_other = wanted.allow_other || ::geteuid() == 0;
    if (!wanted.allow_other) options.mount.root_mask = closed_to_others(options.mount.mountpoint, git_directory);
    options.mount.read_only = session.read_only;
    options.mount.xattrs = wanted.opened.xattr == "user";
    options.mount.io_uring = wanted.opened.io_uring != "off";
    options.mount.extra_options = wanted.kernel_options;
    options.mount.extra_options.insert(options.mount.extra_options.end(), {"nosuid", "nodev"});
    IoChoice io = choose_io(wanted.opened, needs_of_policies(session.policies, session.prefix.text()), session.limits,
                            with_objects(kept_mounts(attached.directory()).entries, options.git,
                                         context_->repository()));
    options.mount.io = io.mode;
    options.io_reason = std::move(io.reason);
    return options;
  }

  void serve(const MountOrder& order) {
    try {
      open(order.repository, order.verbose);
    } catch (const Error& error) {
      // The service has it open itself: what keeps this process from it is a matter of the moment.
      throw Error(Errc::unavailable, std::string("the session's host cannot open the repository: ") + error.what());
    }
    std::unique_ptr<session::Session> session = attach(*context_, order.id);
    const SessionHost::Options options = options_of(order, *session);
    auto host = std::make_unique<SessionHost>(std::move(session), options, context_->repository(), context_->log());
    warn(host->words_about_hidden_git());
    channel_.send(MessageKind::ready, encode(host->io()));
    serve_mount(*host, signals_);
    if (!host->has_ended()) warn(host->leave());
    const api::TrafficAnswer served = host->traffic();
    host.reset();
    channel_.send(MessageKind::released, api::to_json(served));
  }

  void warn(const std::string& warning) {
    if (!warning.empty()) context_->log().write(session::LogLevel::warning, warning);
  }

  const FileDescriptor signals_;
  MessageChannel channel_;
  std::unique_ptr<RepositoryContext> context_;  // of the repository at `path_`
  std::string path_;
  std::chrono::steady_clock::time_point opened_;
};

}  // namespace

std::string encode(const MountOrder& order) {
  return api::JsonObject()
      .text("repository", order.repository)
      .flag("verbose", order.verbose)
      .text("id", order.id.text())
      .text("mountpoint", order.mountpoint)
      .text("mount_options", order.mount_options)
      .text("hand", order.viewer.hand)
      .texts("show_git", order.viewer.shown)
      .flag("shows_entries", order.viewer.shows_entries)
      .text();
}

MountOrder decode_mount_order(std::string_view bytes) {
  api::RequestFields fields(bytes, "the order");
  const auto id = session::SessionId::parse(fields.required_text("id"));
  assert(id);
  MountOrder order{.repository = fields.required_text("repository"),
                   .verbose = fields.flag("verbose").value_or(false),
                   .id = *id,
                   .mountpoint = fields.required_text("mountpoint"),
                   .mount_options = fields.text("mount_options").value_or(""),
                   .viewer = {.hand = fields.text("hand").value_or(""),
                              .shown = fields.texts("show_git").value_or(std::vector<std::string>()),
                              .shows_entries = fields.flag("shows_entries").value_or(false)}};
  fields.refuse_others();
  return order;
}

std::string encode(const api::IoView& io) {
  return api::JsonObject().text("opens", io.opens).text("data", io.data).text("reason", io.reason).text();
}

api::IoView decode_io(std::string_view bytes) {
  api::RequestFields fields(bytes, "the answer");
  return {.opens = fields.required_text("opens"),
          .data = fields.required_text("data"),
          .reason = fields.text("reason").value_or("")};
}

int run_mount_host() {
  MountHost().serve_until_told();
  return kExitSuccess;
}

}  // namespace escrow::daemon
