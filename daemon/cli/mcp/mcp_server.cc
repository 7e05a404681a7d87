#include "daemon/cli/mcp/mcp_server.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "session/base/error.h"

namespace escrow::daemon {

using api::McpMessage;
using session::Errc;
using session::Error;

namespace {

constexpr std::size_t kMostLineBytes = 64 << 20;
constexpr std::size_t kMostWaiting = 1000;

[[noreturn]] void fail_mcp(const std::string& what) {
  throw Error(Errc::unavailable, what + ": " + std::strerror(errno));
}

// Whether all was written.
bool write_fully(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(descriptor, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

void redirect_to_null(int descriptor, int flags) {
  const int null = ::open("/dev/null", flags | O_CLOEXEC);
  if (null >= 0) {
    ::dup2(null, descriptor);
    ::close(null);
  }
}

}  // namespace

McpServer::McpServer(McpSettings settings, int input, int output)
    : settings_(std::move(settings)), input_(input), output_(output) {}

McpServer::~McpServer() {
  if (call_) stop_call();
}

void McpServer::serve() {
  // A client that is gone is an answer that cannot be written.
  ::signal(SIGPIPE, SIG_IGN);
  while (!is_unread_ && (!has_ended_ || call_ || !waiting_.empty())) {
    if (!call_ && !waiting_.empty()) {
      Waiting next = std::move(waiting_.front());
      waiting_.pop_front();
      begin_call(std::move(next));
      continue;
    }
    std::array<pollfd, 3> watched = {pollfd{has_ended_ ? -1 : input_, POLLIN, 0}, pollfd{output_, 0, 0},
                                     pollfd{call_ ? call_->pipe.get() : -1, POLLIN, 0}};
    if (::poll(watched.data(), watched.size(), -1) < 0) {
      if (errno == EINTR) continue;
      fail_mcp("poll");
    }
    if ((watched[1].revents & (POLLERR | POLLNVAL)) != 0) is_unread_ = true;
    if (watched[0].revents != 0 && !read_input()) has_ended_ = true;
    if (call_ && watched[2].revents != 0) read_call();
  }
}

// False at its end.
bool McpServer::read_input() {
  std::array<char, 65536> piece;
  const ssize_t count = ::read(input_, piece.data(), piece.size());
  if (count < 0) return errno == EINTR || errno == EAGAIN;
  std::string_view rest(piece.data(), static_cast<std::size_t>(count));
  // What the last line lacks is its newline.
  if (count == 0 && !buffer_.empty() && !is_line_too_long_) take_line(std::exchange(buffer_, {}));
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    const std::string_view part = rest.substr(0, end);
    if (!is_line_too_long_) buffer_ += part;
    if (buffer_.size() > kMostLineBytes) {
      is_line_too_long_ = true;
      buffer_.clear();
    }
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
    if (std::exchange(is_line_too_long_, false)) {
      write_line(api::mcp_error("null", api::kMcpParseError, "the line is longer than 64 MiB"));
    } else {
      take_line(std::exchange(buffer_, {}));
    }
  }
  return count > 0;
}

void McpServer::take_line(const std::string& line) {
  if (line.find_first_not_of(" \t\r") == std::string::npos) return;
  const api::McpLine read = api::read_mcp_line(line);
  const auto answers = std::make_shared<Answers>();
  answers->is_batch = read.is_batch;
  if (read.is_batch && version_ == api::McpVersion::v2025_06_18) {
    write_line(api::mcp_error("null", api::kMcpInvalidRequest, "this version of the protocol has no batches"));
    return;
  }
  for (const McpMessage& message : read.messages) {
    if (message.kind == McpMessage::Kind::request || message.kind == McpMessage::Kind::invalid) ++answers->awaited;
  }
  for (const McpMessage& message : read.messages) take_message(message, answers);
}

void McpServer::take_message(const McpMessage& message, const std::shared_ptr<Answers>& answers) {
  switch (message.kind) {
    case McpMessage::Kind::invalid:
      return deliver(answers, api::mcp_error(message.id, message.code, message.error));
    case McpMessage::Kind::response:
      return;  // nothing was asked of the client
    case McpMessage::Kind::notification:
      if (message.method == "notifications/cancelled") cancel(api::read_mcp_cancelled(message.params));
      return;
    case McpMessage::Kind::request:
      return answer_request({.message = message, .answers = answers});
  }
}

void McpServer::answer_request(const Waiting& asked) {
  const McpMessage& message = asked.message;
  const auto refuse = [&](int code, const std::string& why) {
    deliver(asked.answers, api::mcp_error(message.id, code, why));
  };
  if (message.method == "ping") return deliver(asked.answers, api::mcp_result(message.id, "{}"));
  if (message.method == "initialize") return initialize(asked);
  if (message.method != "tools/list" && message.method != "tools/call") {
    return refuse(api::kMcpNoSuchMethod, "this server has no method \"" + message.method + "\"");
  }
  if (!version_) return refuse(api::kMcpInvalidRequest, "the first request is to be \"initialize\"");
  if (message.method == "tools/list") {
    return deliver(asked.answers, api::mcp_result(message.id, api::mcp_tools(mcp_tool_list())));
  }
  std::string error;
  const std::optional<api::McpCall> call = api::read_mcp_call(message.params, error);
  if (!call) return refuse(api::kMcpInvalidParams, error);
  if (!has_mcp_tool(call->tool)) {
    return refuse(api::kMcpInvalidParams, "there is no tool \"" + call->tool + "\"; tools/list names them");
  }
  if (waiting_.size() >= kMostWaiting) return refuse(api::kMcpInternalError, "too many calls wait for their turn");
  waiting_.push_back(asked);
}

void McpServer::initialize(const Waiting& asked) {
  std::string error;
  const std::optional<api::McpInitialize> wanted = api::read_mcp_initialize(asked.message.params, error);
  if (!wanted) return deliver(asked.answers, api::mcp_error(asked.message.id, api::kMcpInvalidParams, error));
  version_ = wanted->version;
  settings_.client = wanted->client;
  deliver(asked.answers, api::mcp_result(asked.message.id, api::mcp_initialized(*version_, ESCROW_VERSION,
                                                                                  mcp_instructions(settings_))));
}

// A request that was cancelled gets no answer.
void McpServer::cancel(const std::string& id) {
  if (id.empty()) return;
  if (call_ && call_->asked.message.id == id && !call_->is_cancelled) {
    call_->is_cancelled = true;
    ::kill(call_->pid, SIGTERM);
  }
  for (auto at = waiting_.begin(); at != waiting_.end(); ++at) {
    if (at->message.id != id) continue;
    forget(at->answers);
    waiting_.erase(at);
    return;
  }
}

void McpServer::begin_call(Waiting asked) {
  std::string error;
  const std::optional<api::McpCall> call = api::read_mcp_call(asked.message.params, error);
  std::array<int, 2> ends;
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail_mcp("pipe2");
  FileDescriptor reader(ends[0]), writer(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) fail_mcp("fork");
  if (pid == 0) {
    // A command does not outlive who would tell of it.
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(1);
    work(*call, writer.get());
  }
  call_.emplace(Call{.asked = std::move(asked), .pid = pid, .pipe = std::move(reader), .text = {}});
}

// Standard input and output are the client's: nothing that runs here may use them.
void McpServer::work(const api::McpCall& call, int pipe) {
  ::signal(SIGPIPE, SIG_DFL);
  redirect_to_null(STDIN_FILENO, O_RDONLY);
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  int status = 1;
  try {
    const std::string text = api::encode(call_mcp_tool(settings_, call.tool, call.arguments));
    status = write_fully(pipe, text) ? 0 : 1;
  } catch (...) {
    status = 1;
  }
  ::_exit(status);
}

void McpServer::read_call() {
  std::array<char, 65536> piece;
  const ssize_t count = ::read(call_->pipe.get(), piece.data(), piece.size());
  if (count < 0 && errno == EINTR) return;
  if (count > 0) {
    call_->text.append(piece.data(), static_cast<std::size_t>(count));
  } else {
    end_call();
  }
}

void McpServer::end_call() {
  int status = 0;
  while (::waitpid(call_->pid, &status, 0) < 0 && errno == EINTR) {
  }
  const Call call = std::move(*call_);
  call_.reset();
  const std::string& id = call.asked.message.id;
  if (call.is_cancelled) return forget(call.asked.answers);
  try {
    if (status != 0) throw Error(Errc::unavailable, "the process that carried it out has died");
    deliver(call.asked.answers, api::mcp_result(id, api::mcp_answered(*version_, api::decode_mcp_answer(call.text))));
  } catch (const Error& error) {
    deliver(call.asked.answers, api::mcp_error(id, api::kMcpInternalError, error.what()));
  }
}

// Nobody reads its answer any more: a command is ended, its own session rolled back.
void McpServer::stop_call() {
  ::kill(call_->pid, SIGTERM);
  while (::waitpid(call_->pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  call_.reset();
}

void McpServer::deliver(const std::shared_ptr<Answers>& answers, const std::string& message) {
  answers->text += (answers->text.empty() ? "" : ",") + message;
  forget(answers);
}

void McpServer::forget(const std::shared_ptr<Answers>& answers) {
  if (--answers->awaited != 0 && answers->is_batch) return;
  if (answers->text.empty()) return;
  write_line(answers->is_batch ? "[" + answers->text + "]" : answers->text);
  answers->text.clear();
}

void McpServer::write_line(const std::string& text) {
  if (!write_fully(output_, text + "\n")) is_unread_ = true;
}

}  // namespace escrow::daemon
