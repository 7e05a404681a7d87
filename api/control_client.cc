#include "api/control_client.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "api/control_socket.h"

namespace escrow::api {

using session::Errc;
using session::Error;

namespace {

// Of an answer: far above what any has, so that a host gone mad cannot fill the memory.
constexpr std::size_t kMaxAnswerBytes = std::size_t{1} << 30;
constexpr std::chrono::milliseconds kSilence{5'000};        // until the host is pinged
constexpr std::chrono::milliseconds kPingPatience{20'000};  // on a machine with other work, too

// 0 or an errno; EAGAIN: a listener that accepts nobody has its queue full.
int connect_to(const std::string& directory, const Descriptor& socket) {
  const ControlAddress at(directory);
  const timeval patience{std::chrono::duration_cast<std::chrono::seconds>(kPingPatience).count(), 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  return connect(socket.get(), reinterpret_cast<const sockaddr*>(&at.address), sizeof at.address) == 0 ? 0 : errno;
}

}  // namespace

ControlClient::ControlClient(const std::string& directory) : directory_(directory) {
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

// One that listens no more is on its way out: what it owes, it may still answer.
bool ControlClient::answers_ping() const {
  const Descriptor second = make_socket();
  if (const int error = connect_to(directory_, second); error != 0) return error != EAGAIN;
  LineReader reader(second.get(), kMaxAnswerBytes);
  if (!send_line(second.get(), kPing, kPingPatience)) return true;
  return reader.next(kPingPatience) || reader.end() != LineReader::End::too_slow;
}

void ControlClient::give_up() {
  is_silent_ = true;
  throw Error(Errc::unavailable, "the process that hosts the session does not answer");
}

void ControlClient::fail_untaken() {
  is_untaken_ = true;
  throw Error(Errc::unavailable, "the process that hosts the session went away before it took the request");
}

Answer ControlClient::ask(const Request& request, const std::function<void(const DiffPart&)>& on_part,
                          const std::function<bool(pid_t host)>& can_answer) {
  if (is_silent_) give_up();
  // Whatever it does, a host takes what is sent.
  const auto* const write = std::get_if<WriteFileRequest>(&request);
  if (!send_line(socket_, encode(request, who_), kPingPatience, write != nullptr ? write->content : -1)) {
    if (!answers_ping()) give_up();
    fail_untaken();
  }
  LineReader reader(socket_, kMaxAnswerBytes);
  for (;;) {
    std::optional<std::string> line = reader.next(kSilence);
    if (!line && reader.end() != LineReader::End::too_slow) break;
    if (!line) {
      if ((can_answer && !can_answer(host())) || !answers_ping()) give_up();
      continue;
    }
    Answer answer = decode_answer(*line);
    if (const auto* part = std::get_if<DiffPart>(&answer)) {
      if (on_part) on_part(*part);
      continue;
    }
    if (const auto* error = std::get_if<ErrorAnswer>(&answer)) throw_answered(*error);
    return answer;
  }
  if (reader.end() == LineReader::End::unread) fail_untaken();
  throw Error(Errc::unavailable,
              "the process that hosts the session went away without an answer; `escrow status` "
              "shows what became of it");
}

std::optional<Answer> ControlClient::ask_within(const Request& request, std::chrono::milliseconds patience) noexcept {
  try {
    if (is_silent_ || !send_line(socket_, encode(request, who_), patience)) return std::nullopt;
    LineReader reader(socket_, kMaxAnswerBytes);
    const std::optional<std::string> line = reader.next(patience);
    if (!line) return std::nullopt;
    Answer answer = decode_answer(*line);
    if (std::holds_alternative<ErrorAnswer>(answer)) return std::nullopt;
    return answer;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace escrow::api
