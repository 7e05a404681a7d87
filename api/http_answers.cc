// The part of HttpServer that sends the answer, at once, later or in parts.
#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <utility>

#include "api/http_server_impl.h"
#include "api/refusal.h"

namespace escrow::api {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using session::LogLevel;
using Connection = HttpServer::Impl::Connection;
using namespace std::chrono_literals;

namespace {

constexpr auto kPollInterval = 100ms;
// How long a client that was refused may still send what nobody reads.
constexpr auto kLingerAfterAnswer = 2s;

template <typename Message>
void set_header(Message& message, const HttpResponse& response, bool keep_alive) {
  message.result(http::int_to_status(response.status));
  message.version(11);
  if (!response.content_type.empty()) message.set(http::field::content_type, response.content_type);
  message.set(http::field::cache_control, "no-store");
  for (const auto& [name, value] : response.headers) message.set(name, value);
  message.keep_alive(keep_alive);
}

}  // namespace

// An answer in parts that is being sent, or of any answer the header alone; kept alive by the operation that uses it.
struct Connection::Sending {
  Stream stream;
  http::response<http::empty_body> header;
  std::optional<http::response_serializer<http::empty_body>> serializer;
  Stream::Part part;
  bool has_failed = false;
};

std::string Connection::who() const {
  if (!principal_.empty()) return principal_;
  if (!door_.is_remote) return "uid " + peer_name_;
  // Of IPv6 the network alone is known.
  std::array<unsigned char, sizeof(in6_addr)> address{};
  std::copy_n(peer_name_.begin(), std::min(peer_name_.size(), address.size()), address.begin());
  std::array<char, INET6_ADDRSTRLEN> text{};
  const bool is_ipv4 = peer_name_.size() == sizeof(in_addr);
  ::inet_ntop(is_ipv4 ? AF_INET : AF_INET6, address.data(), text.data(), text.size());
  return std::string("a stranger at ") + text.data() + (is_ipv4 ? "" : "/64");
}

// On a worker: nothing of the request changes before it is answered.
void Connection::note(HttpResponse& response) const {
  note_refusal(response, head_.method, head_.target, who(), server_.log);
}

void Connection::answer(HttpReply reply) {
  if (Poll* poll = std::get_if<Poll>(&reply)) return wait_for(std::move(*poll));
  if (Stream* stream = std::get_if<Stream>(&reply)) return begin_stream(std::move(*stream));
  write(std::get<HttpResponse>(std::move(reply)));
}

void Connection::wait_for(Poll poll) {
  timer_.expires_after(server_.draining ? 0ms : kPollInterval);
  ++generation_;
  timer_.async_wait([self = shared_from_this(), poll = std::move(poll)](error_code) mutable {
    if (self->socket_.peer_is_gone()) return self->close();
    Connection& connection = *self;
    asio::post(connection.server_.workers, [self = std::move(self), poll = std::move(poll),
                                            is_last = connection.server_.draining]() mutable {
      std::optional<HttpResponse> response = poll(is_last);
      if (response) self->note(*response);
      HttpReply reply = response ? HttpReply(*std::move(response)) : HttpReply(std::move(poll));
      Impl& server = self->server_;
      asio::post(server.io, [self = std::move(self), reply = std::move(reply)]() mutable {
        Connection& here = *self;
        here.answer(std::move(reply));
      });
    });
  });
}

void Connection::write(HttpResponse response) {
  phase_ = Phase::writing;
  was_answered_ = true;
  keep_alive_ = keep_alive_ && !server_.draining;
  timed_out_ = false;
  arm(server_.options.request_timeout);
  const auto sent = [self = shared_from_this()](error_code failed) { failed ? self->close() : self->end_answer(); };
  if (head_.method == "HEAD") {
    // The length is that of the answer to a GET; the bytes are not sent (RFC 9110, section 9.3.2).
    auto sending = std::make_shared<Sending>();
    set_header(sending->header, response, keep_alive_);
    sending->header.content_length(response.body.size());
    sending->serializer.emplace(sending->header);
    return http::async_write_header(socket_, *sending->serializer,
                                    [sent, sending](error_code failed, std::size_t) { sent(failed); });
  }
  auto message = std::make_shared<http::response<http::string_body>>();
  set_header(*message, response, keep_alive_);
  message->body() = std::move(response.body);
  message->prepare_payload();
  http::async_write(socket_, *message, [sent, message](error_code failed, std::size_t) { sent(failed); });
}

// ---- Answers in parts: send_part() and next_part() take turns.

void Connection::begin_stream(Stream stream) {
  phase_ = Phase::streaming;
  was_answered_ = true;
  // To a client of HTTP/1.0 the end of the connection is the end of the answer.
  keep_alive_ = keep_alive_ && head_.knows_chunks && !server_.draining;
  auto sending = std::make_shared<Sending>();
  sending->part.bytes = std::move(stream.head.body);
  set_header(sending->header, stream.head, keep_alive_);
  sending->header.chunked(head_.knows_chunks);
  sending->stream = std::move(stream);
  sending->serializer.emplace(sending->header);
  timed_out_ = false;
  arm(patience());
  http::async_write_header(socket_, *sending->serializer,
                           [self = shared_from_this(), sending](error_code failed, std::size_t) {
                             if (failed) return self->close();
                             if (self->head_.method == "HEAD") return self->end_answer();
                             sending->part.bytes.empty() ? self->next_part(sending) : self->send_part(sending);
                           });
}

void Connection::send_part(std::shared_ptr<Sending> sending) {
  if (sending->has_failed) return close();
  if (sending->part.bytes.empty()) return sending->part.is_end ? end_stream() : pause_stream(std::move(sending));
  arm(patience());
  const auto bytes = asio::buffer(sending->part.bytes);
  const auto sent = [self = shared_from_this(), sending](error_code failed, std::size_t) {
    if (failed) return self->close();
    if (sending->part.is_end) return self->end_stream();
    self->next_part(sending);
  };
  if (!head_.knows_chunks) return asio::async_write(socket_, bytes, sent);
  asio::async_write(socket_, http::make_chunk(bytes), sent);
}

void Connection::next_part(std::shared_ptr<Sending> sending) {
  disarm();
  asio::post(server_.workers, [self = shared_from_this(), sending = std::move(sending),
                               is_last = server_.draining]() mutable {
    Impl& server = self->server_;
    try {
      sending->part = sending->stream.next(is_last);
    } catch (const std::exception& failure) {
      sending->has_failed = true;
      server.log.write(LogLevel::warning, std::string("an answer was broken off: ") + failure.what());
    }
    sending->part.is_end = sending->part.is_end || is_last;
    asio::post(server.io, [self = std::move(self), sending = std::move(sending)]() mutable {
      Connection& connection = *self;
      connection.send_part(std::move(sending));
    });
  });
}

void Connection::pause_stream(std::shared_ptr<Sending> sending) {
  timer_.expires_after(server_.draining ? 0ms : kPollInterval);
  ++generation_;
  timer_.async_wait([self = shared_from_this(), sending = std::move(sending)](error_code) mutable {
    if (self->socket_.peer_is_gone()) return self->close();
    Connection& connection = *self;
    connection.next_part(std::move(sending));
  });
}

void Connection::end_stream() {
  if (!head_.knows_chunks) return linger();
  arm(patience());
  asio::async_write(socket_, http::make_chunk_last(), [self = shared_from_this()](error_code failed, std::size_t) {
    failed ? self->close() : self->end_answer();
  });
}

// ---- After it.

void Connection::end_answer() { keep_alive_ ? await_request() : linger(); }

// A client that was refused may be sending still: closing at once could take the answer from it.
void Connection::linger() {
  phase_ = Phase::reading;
  arm(kLingerAfterAnswer);
  socket_.async_end_output([self = shared_from_this()] { self->discard(); });
}

void Connection::discard() {
  if (server_.draining || timed_out_) return close();
  socket_.async_discard_some([self = shared_from_this()](error_code failed, std::size_t) {
    if (failed) return self->close();
    self->discard();
  });
}

}  // namespace escrow::api
