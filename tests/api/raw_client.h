// A peer of the control socket that need not follow the protocol.
#pragma once

#include <string>
#include <string_view>

namespace escrow::test {

class RawClient {
 public:
  explicit RawClient(const std::string& directory);
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void send(std::string_view bytes);
  void stop_sending();
  // Up to the next newline; what came so far when the server closes.
  std::string read_line();
  // The body of an answer that says how long it is.
  std::string read_body();

 private:
  int socket_;
};

}  // namespace escrow::test
