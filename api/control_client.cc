#include "api/control_client.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "api/control_messages.h"
#include "api/control_socket.h"
#include "api/session_calls.h"
#include "session/base/still_wanted.h"

namespace escrow::api {

using session::Errc;
using session::Error;

namespace {

constexpr std::chrono::milliseconds kSilence{5'000};  // until the host is asked whether it is well
constexpr std::chrono::milliseconds kPause{100};        // until the caller is looked for
constexpr std::chrono::milliseconds kShortWait{1'000};  // by then a host that runs has taken a request
constexpr std::chrono::milliseconds kHealthPatience{20'000};  // on a machine with other work, too

int content_of(const Request& request) {
  const auto* const write = std::get_if<WriteFileRequest>(&request);
  return write != nullptr ? write->content : -1;
}

// 0 or an errno; EAGAIN: a listener that accepts nobody has its queue full.
int connect_to(const std::string& directory, const Descriptor& socket) {
  const ControlAddress at(directory);
  if (at.error != 0) return at.error;
  const timeval patience{std::chrono::duration_cast<std::chrono::seconds>(kHealthPatience).count(), 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  return connect(socket.get(), reinterpret_cast<const sockaddr*>(&at.address), sizeof at.address) == 0 ? 0 : errno;
}

// Whether the peer has yet to read something of what was sent to it.
bool has_unread(int socket) {
  int bytes = 0;
  return ::ioctl(socket, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

}  // namespace

ControlClient::ControlClient(const std::string& directory, const session::SessionId& id)
    : directory_(directory), id_(id) {
  Descriptor made = make_socket();
  const int error = connect_to(directory, made);
  if (error == EAGAIN) {
    is_silent_ = true;
  } else if (error != 0) {
    throw Error(Errc::unavailable, "the process that hosts the session does not listen on " + directory +
                                       "/control.sock: " + std::strerror(error));
  }
  socket_ = made.release();
}

ControlClient::~ControlClient() {
  if (socket_ >= 0) close(socket_);
}

pid_t ControlClient::host() const {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket_, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

// One that listens no more, or has removed its directory, is on its way out: it may still answer what it owes.
bool ControlClient::is_well() const {
  const Descriptor second = make_socket();
  if (const int error = connect_to(directory_, second); error != 0) return error != EAGAIN;
  const SessionRequestLine health{.method = "GET", .target = std::string(kHealthTarget), .json = {}};
  if (!send_bytes(second.get(), to_bytes(health, {}), kHealthPatience)) return true;
  ResponseReader reader(second.get());
  return reader.next(kHealthPatience) || reader.end() != NoMessage::too_slow;
}

void ControlClient::give_up() {
  is_silent_ = true;
  throw Error(Errc::unavailable, "the process that hosts the session does not answer");
}

void ControlClient::fail_untaken() {
  is_untaken_ = true;
  throw Error(Errc::unavailable, "the process that hosts the session went away before it took the request");
}

void ControlClient::fail_unintelligible() const {
  const pid_t process = host();
  throw Error(Errc::unavailable,
              "session " + id_.text() + " is hosted by a process" +
                  (process > 0 ? " (" + std::to_string(process) + ")" : std::string()) +
                  " of an earlier version of Escrow, which this version cannot ask; let its command end, or unmount it "
                  "with umount(8), which leaves the session open, and try again");
}

Answer ControlClient::ask(const Request& request, const std::function<void(const DiffPart&)>& on_part,
                          const std::function<bool(pid_t host)>& can_answer) {
  const std::string bytes = to_bytes(call_of(id_, request), who_);
  if (is_silent_) give_up();
  // Whatever it does, a host takes what is sent.
  if (!send_bytes(socket_, bytes, kHealthPatience, content_of(request))) {
    if (!is_well()) give_up();
    fail_untaken();
  }
  std::function<void(std::string_view)> take;
  if (std::holds_alternative<DiffRequest>(request) || std::holds_alternative<ExportRequest>(request)) {
    take = [&](std::string_view text) {
      if (on_part) on_part(DiffPart{.text = std::string(text)});
    };
  }
  ResponseReader reader(socket_, std::move(take));
  const auto sent = std::chrono::steady_clock::now();
  for (auto asked = sent;;) {
    if (std::optional<HttpResponse> response = reader.next(kPause)) return answer_of(request, *std::move(response));
    if (reader.end() == NoMessage::malformed) fail_unintelligible();
    if (reader.end() != NoMessage::too_slow) break;
    const auto now = std::chrono::steady_clock::now();
    // Its host has not begun with it, and drops it once this socket is closed.
    if (now - sent > kShortWait && has_unread(socket_))
      session::require_still_wanted("a request to session " + id_.text());
    if (now - asked < kSilence) continue;
    asked = now;
    if ((can_answer && !can_answer(host())) || !is_well()) give_up();
  }
  if (reader.end() == NoMessage::unread) fail_untaken();
  throw Error(Errc::unavailable,
              reader.has_begun() ? "the process that hosts the session broke its answer off; its log says why, and "
                                   "`escrow status` shows what became of the session"
                                 : "the process that hosts the session went away without an answer; `escrow status` "
                                   "shows what became of it");
}

std::optional<Answer> ControlClient::ask_within(const Request& request, std::chrono::milliseconds patience) noexcept {
  try {
    if (is_silent_ || !send_bytes(socket_, to_bytes(call_of(id_, request), who_), patience)) return std::nullopt;
    ResponseReader reader(socket_);
    std::optional<HttpResponse> response = reader.next(patience);
    if (!response) return std::nullopt;
    return answer_of(request, *std::move(response));
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace escrow::api
