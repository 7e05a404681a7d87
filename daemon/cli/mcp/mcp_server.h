// Serves the Model Context Protocol on two descriptors, one message a line, until the client closes its side.
//
// Single-threaded, so that it can fork: each call of a tool has a process of its own, one after the other; the server
// itself opens nothing. `ping`, `tools/list` and cancellations are answered meanwhile. Throws Error{unavailable} when
// no process can be made or the answers cannot be written.
#pragma once

#include <sys/types.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "api/mcp_messages.h"
#include "daemon/cli/mcp/mcp_tools.h"
#include "daemon/process/file_descriptor.h"

namespace escrow::daemon {

class McpServer {
 public:
  // The descriptors stay the caller's.
  McpServer(McpSettings settings, int input, int output);
  ~McpServer();
  McpServer(const McpServer&) = delete;
  McpServer& operator=(const McpServer&) = delete;

  // Once. Returns when everything that was asked is answered, or nobody reads the answers any more.
  void serve();

 private:
  // The answers to one line: at once, or as one array when all of them are there.
  struct Answers {
    bool is_batch = false;
    std::size_t awaited = 0;
    std::string text;
  };
  struct Waiting {
    api::McpMessage message;
    std::shared_ptr<Answers> answers;
  };
  struct Call {
    Waiting asked;
    pid_t pid = -1;
    FileDescriptor pipe;
    std::string text;
    bool is_cancelled = false;
  };

  bool read_input();
  void take_line(const std::string& line);
  void take_message(const api::McpMessage& message, const std::shared_ptr<Answers>& answers);
  void answer_request(const Waiting& asked);
  void initialize(const Waiting& asked);
  void cancel(const std::string& id);
  void begin_call(Waiting asked);
  [[noreturn]] void work(const api::McpCall& call, int pipe);
  void read_call();
  void end_call();
  void stop_call();
  void deliver(const std::shared_ptr<Answers>& answers, const std::string& message);
  void forget(const std::shared_ptr<Answers>& answers);
  void write_line(const std::string& text);

  McpSettings settings_;
  const int input_, output_;
  std::optional<api::McpVersion> version_;  // of the client, once it is known
  std::string buffer_;
  bool is_line_too_long_ = false;
  bool has_ended_ = false;  // the input
  bool is_unread_ = false;  // the output
  std::deque<Waiting> waiting_;  // calls, in order
  std::optional<Call> call_;
};

}  // namespace escrow::daemon
