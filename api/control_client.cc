#include "api/control_client.h"

#include <sys/socket.h>
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
constexpr std::chrono::milliseconds kForEver{0};

}  // namespace

ControlClient::ControlClient(const std::string& directory) {
  const ControlAddress at(directory);
  Descriptor made = make_socket();
  if (connect(made.get(), reinterpret_cast<const sockaddr*>(&at.address), sizeof at.address) != 0) {
    throw Error(Errc::unavailable, "the process that hosts the session does not listen on " + directory +
                                       "/control.sock: " + std::strerror(errno));
  }
  socket_ = made.release();
}

ControlClient::~ControlClient() {
  if (socket_ >= 0) close(socket_);
}

Answer ControlClient::ask(const Request& request, const std::function<void(const DiffPart&)>& on_part) {
  if (!send_line(socket_, encode(request), kForEver)) {
    throw Error(Errc::unavailable, "the process that hosts the session went away before it took the request");
  }
  LineReader reader(socket_, kMaxAnswerBytes);
  while (std::optional<std::string> line = reader.next(kForEver)) {
    Answer answer = decode_answer(*line);
    if (const auto* part = std::get_if<DiffPart>(&answer)) {
      if (on_part) on_part(*part);
      continue;
    }
    if (const auto* error = std::get_if<ErrorAnswer>(&answer)) throw Error(error->code, error->message);
    return answer;
  }
  throw Error(Errc::unavailable,
              "the process that hosts the session went away without an answer; `escrow status` "
              "shows what became of it");
}

}  // namespace escrow::api
