// Asks the host process of a session, over its control socket (control_server.h). One request at a time; not
// thread-safe.
//
// An answer may take as long as it takes, while the host is there: one that has said nothing for a while is asked
// whether it is well, beside the request.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "api/protocol.h"
#include "session/base/ids.h"

namespace escrow::api {

class ControlClient {
 public:
  // Throws Error{unavailable} when nobody listens there.
  ControlClient(const std::string& directory, const session::SessionId& id);
  ~ControlClient();
  ControlClient(ControlClient&& other) noexcept
      : directory_(std::move(other.directory_)),
        id_(other.id_),
        who_(std::move(other.who_)),
        socket_(std::exchange(other.socket_, -1)),
        is_silent_(other.is_silent_),
        is_untaken_(other.is_untaken_) {}
  ControlClient& operator=(ControlClient&&) = delete;

  // Whom the requests are made for; without: this process's user, as the host sees it.
  void speak_for(const std::string& who) { who_ = who; }

  // The parts of a diff go to `on_part`. Throws the Problem that the host answers, with the code of the Error that it
  // was there; Error{unavailable} when it goes away without a whole answer, does not even say that it is well, or is of
  // a version before HTTP. `can_answer`, where it is given, saves waiting for that: it says whether that process is
  // able to answer anything.
  Answer ask(const Request& request, const std::function<void(const DiffPart&)>& on_part = {},
             const std::function<bool(pid_t host)>& can_answer = {});

  // A look at a host that others need not wait for: nullopt when it does not answer within `patience`, or an error.
  std::optional<Answer> ask_within(const Request& request, std::chrono::milliseconds patience) noexcept;

  // After ask() has thrown: because the host answers nothing at all.
  bool is_silent() const { return is_silent_; }
  // After ask() has thrown: because the host ended before it read the request, which may be asked again elsewhere.
  bool is_untaken() const { return is_untaken_; }
  // The process that listens; 0: it is in another pid namespace.
  pid_t host() const;

 private:
  [[noreturn]] void give_up();
  [[noreturn]] void fail_untaken();
  [[noreturn]] void fail_unintelligible() const;
  bool is_well() const;

  std::string directory_;
  session::SessionId id_;
  std::string who_;
  int socket_ = -1;
  bool is_silent_ = false, is_untaken_ = false;
};

}  // namespace escrow::api
