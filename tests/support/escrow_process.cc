#include "tests/support/escrow_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace escrow::test {
namespace {

using Pipe = std::array<int, 2>;

Pipe make_pipe() {
  Pipe ends;
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2: " + std::string(strerror(errno)));
  return ends;
}

[[noreturn]] void start(const std::vector<std::string>& arguments, const ProcessOptions& options, const Pipe& in,
                        const Pipe& out, const Pipe& err) {
  dup2(in[0], 0);
  dup2(out[1], 1);
  dup2(err[1], 2);
  if (!options.directory.empty() && chdir(options.directory.c_str()) != 0) _exit(126);
  for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  _exit(127);
}

// Appends what is there; false at the end of the stream.
bool drain(int fd, std::string& into) {
  std::array<char, 65536> buffer;
  const ssize_t count = read(fd, buffer.data(), buffer.size());
  if (count > 0) into.append(buffer.data(), static_cast<std::size_t>(count));
  return count > 0;
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& arguments, const ProcessOptions& options) {
  const Pipe in = make_pipe(), out = make_pipe(), err = make_pipe();
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork: " + std::string(strerror(errno)));
  if (child == 0) start(arguments, options, in, out, err);
  for (const int fd : {in[0], out[1], err[1]}) close(fd);
  if (write(in[1], options.input.data(), options.input.size()) < 0) errno = 0;
  close(in[1]);

  ProcessResult result;
  const auto deadline = std::chrono::steady_clock::now() + options.timeout;
  std::array<pollfd, 2> watched = {{{out[0], POLLIN, 0}, {err[0], POLLIN, 0}}};
  int status = 0;
  bool ended = false;
  // A background host keeps the pipes open if it does not let go of them: the child's end counts, not theirs.
  while (!ended) {
    poll(watched.data(), watched.size(), 20);
    if ((watched[0].revents & (POLLIN | POLLHUP)) != 0 && !drain(out[0], result.out)) watched[0].fd = -1;
    if ((watched[1].revents & (POLLIN | POLLHUP)) != 0 && !drain(err[0], result.err)) watched[1].fd = -1;
    ended = waitpid(child, &status, WNOHANG) == child;
    if (!ended && std::chrono::steady_clock::now() > deadline) kill(child, SIGKILL);
  }
  for (pollfd& stream : watched) {
    if (stream.fd < 0) continue;
    fcntl(stream.fd, F_SETFL, O_NONBLOCK);
    while (drain(stream.fd, stream.fd == out[0] ? result.out : result.err)) {}
  }
  close(out[0]);
  close(err[0]);
  result.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

ProcessResult run_escrow(std::vector<std::string> arguments, const ProcessOptions& options) {
  arguments.insert(arguments.begin(), ESCROW_BINARY);
  return run_process(arguments, options);
}

std::string shell(const std::string& text, const ProcessOptions& options) {
  ProcessResult result = run_process({"/bin/sh", "-c", text}, options);
  if (result.status != 0) {
    throw std::runtime_error("`" + text + "` exited with " + std::to_string(result.status) + ": " + result.err);
  }
  while (!result.out.empty() && result.out.back() == '\n') result.out.pop_back();
  return result.out;
}

pid_t host_of(const std::string& repository, const std::string& session) {
  const std::string path = repository + "/escrow/sessions/" + session + "/control.sock";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return -1;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ucred peer{};
  socklen_t size = sizeof peer;
  const bool is_known = connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
                        getsockopt(client, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  close(client);
  return is_known ? peer.pid : -1;
}

}  // namespace escrow::test
