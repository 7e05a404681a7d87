#include "tests/api/raw_client.h"

#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

#include "api/control_socket.h"

namespace escrow::test {

RawClient::RawClient(const std::string& directory) {
  const api::ControlAddress at(directory);
  socket_ = api::make_socket().release();
  if (at.error != 0 || connect(socket_, reinterpret_cast<const sockaddr*>(&at.address), sizeof at.address) != 0) {
    throw std::runtime_error("cannot connect");
  }
}

RawClient::~RawClient() { close(socket_); }

void RawClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count < 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

void RawClient::stop_sending() { shutdown(socket_, SHUT_WR); }

std::string RawClient::read_line() {
  std::string line;
  char letter;
  while (recv(socket_, &letter, 1, 0) == 1 && letter != '\n') line += letter;
  return line;
}

std::string RawClient::read_body() {
  static const std::string kLength = "Content-Length: ";
  std::size_t size = 0;
  for (std::string line = read_line(); line.size() > 1; line = read_line()) {
    if (line.starts_with(kLength)) size = std::stoul(line.substr(kLength.size()));
  }
  std::string body(size, '\0');
  const ssize_t count = size == 0 ? 0 : recv(socket_, body.data(), size, MSG_WAITALL);
  body.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
  return body;
}

}  // namespace escrow::test
