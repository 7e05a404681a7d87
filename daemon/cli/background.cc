#include "daemon/cli/background.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "api/protocol.h"
#include "session/base/error.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;

namespace {

// What the child tells its parent: one letter, then the rest up to the end of the pipe.
constexpr char kReady = 'R';
constexpr char kFailed = 'F';  // followed by the code's name, a newline and the message

void send_text(int pipe, const std::string& text) {
  std::string_view left = text;
  while (!left.empty()) {
    const ssize_t count = write(pipe, left.data(), left.size());
    if (count < 0 && errno != EINTR) return;
    if (count > 0) left.remove_prefix(static_cast<std::size_t>(count));
  }
}

std::string read_all(int pipe) {
  std::string text;
  std::array<char, 4096> buffer;
  while (true) {
    const ssize_t count = read(pipe, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

void leave_terminal() {
  const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int stream : {0, 1, 2}) dup2(nowhere, stream);
  if (nowhere > 2) close(nowhere);
  if (chdir("/") != 0) return;
}

[[noreturn]] void run_child(int pipe, const std::function<int(const Announce&)>& work) {
  setsid();
  bool announced = false;
  const Announce announce = [&](const std::string& output) {
    std::fflush(nullptr);
    leave_terminal();
    send_text(pipe, kReady + output);
    close(pipe);
    announced = true;
  };
  int status = 1;
  try {
    status = work(announce);
  } catch (const Error& error) {
    if (!announced) send_text(pipe, kFailed + std::string(api::name_of(error.code())) + "\n" + error.what());
  } catch (const std::exception& error) {
    if (!announced) send_text(pipe, kFailed + std::string("unavailable\ninternal error: ") + error.what());
  }
  _exit(status);
}

}  // namespace

std::string run_in_background(const std::function<int(const Announce&)>& work) {
  std::array<int, 2> ends;
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw Error(Errc::unavailable, std::string("cannot start the host process: ") + std::strerror(errno));
  }
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) {
    throw Error(Errc::unavailable, std::string("cannot start the host process: ") + std::strerror(errno));
  }
  if (child == 0) {
    close(ends[0]);
    run_child(ends[1], work);
  }
  close(ends[1]);
  const std::string told = read_all(ends[0]);
  close(ends[0]);
  if (!told.empty() && told.front() == kReady) return told.substr(1);
  waitpid(child, nullptr, 0);
  if (told.empty()) {
    throw Error(Errc::unavailable, "the host process ended before the session was mounted; `escrow sessions` shows it");
  }
  const std::size_t newline = told.find('\n');
  const std::optional<Errc> code = api::errc_from_name(told.substr(1, newline - 1));
  throw Error(code.value_or(Errc::unavailable), told.substr(newline + 1));
}

}  // namespace escrow::daemon
