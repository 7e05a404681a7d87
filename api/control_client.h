// Asks the host process of a session, over its control socket. One request at a time; not thread-safe.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "api/protocol.h"

namespace escrow::api {

class ControlClient {
 public:
  // Throws Error{unavailable} when nobody listens there.
  explicit ControlClient(const std::string& directory);
  ~ControlClient();
  ControlClient(ControlClient&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}
  ControlClient& operator=(ControlClient&&) = delete;

  // Parts that precede the answer go to `on_part`. Throws the Error that the host answers, Error{unavailable} when it
  // goes away without an answer.
  Answer ask(const Request& request, const std::function<void(const DiffPart&)>& on_part = {});

 private:
  int socket_ = -1;
};

}  // namespace escrow::api
