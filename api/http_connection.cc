// The part of HttpServer that takes a request in, and refuses what is none.
#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <limits>
#include <utility>

#include "api/bearer_token.h"
#include "api/http_server_impl.h"
#include "api/listening.h"
#include "api/refusal.h"
#include "session/base/still_wanted.h"

namespace escrow::api {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using Connection = HttpServer::Impl::Connection;
using namespace std::chrono_literals;

namespace {

// How long a client that has just come is waited for when the server is to stop.
constexpr auto kLinger = 2s;
// After which a request counts as one that has waited.
constexpr auto kShortWait = 1s;

// Whether what could not be read as a first line ends as one: with a version, if with another one.
bool names_a_version(const beast::flat_buffer& buffer) {
  const std::string_view read(static_cast<const char*>(buffer.data().data()), buffer.size());
  const std::string_view line = read.substr(0, read.find_first_of("\r\n"));
  return std::count(line.begin(), line.end(), ' ') == 2 && line.substr(line.rfind(' ')).starts_with(" HTTP/");
}

}  // namespace

// A content on its way into a file: receive_piece() and keep_piece() take turns.
struct Connection::Receiving {
  explicit Receiving(http::request_parser<http::string_body>&& header) : parser(std::move(header)) {}
  http::request_parser<http::buffer_body> parser;
  std::shared_ptr<ReceivedBody> kept;
  std::array<char, 65536> piece;
  std::size_t count = 0;  // of the piece
  int failed = 0;         // errno
};

Connection::Connection(Impl& server, Door& door, ByteStream::Socket socket)
    : server_(server),
      door_(door),
      socket_(std::move(socket), door.is_remote && server.tls ? &*server.tls : nullptr),
      timer_(server.io),
      buffer_(server.options.max_header_bytes * 4),
      is_known_(false) {
  if (door_.is_remote) {
    peer_name_ = remote_network_of(socket_.native_handle());
  } else {
    peer_ = local_peer_of(socket_.native_handle());
    peer_name_ = std::to_string(peer_.uid);
  }
  server_.connections.insert(this);
  ++door_.connections;
  ++server_.open.lock()->count;
}

Connection::~Connection() {
  --door_.connections;
  server_.closed(this);
}

void Connection::start() {
  if (door_.is_remote) return socket_.has_tls() ? shake_hands() : await_request();
  if (peer_.uid != kNobodysId) await_request();
}

void Connection::refuse_full() {
  // What it takes to be understood under TLS is too much for one connection too many.
  if (socket_.has_tls()) return close();
  refuse(ProblemCode::unavailable, "there are too many connections; try again");
}

void Connection::stop_reading() {
  if (phase_ == Phase::reading) return is_asking() ? arm(kLinger) : close();
  // A client that takes nothing of what it follows is not waited for.
  if (phase_ == Phase::streaming) arm(kLinger);
}

// A stranger may be sending for ever; who was let in before is not interrupted.
bool Connection::is_unused() {
  if (phase_ != Phase::reading) return false;
  return !is_known_ || (buffer_.size() == 0 && !socket_.has_bytes());
}

// One that was accepted, and then closed without a word, would have been better off waiting for the next server.
bool Connection::is_asking() { return !was_answered_ || buffer_.size() > 0 || socket_.has_bytes(); }

// Cancels what the connection waits for, unless arm() or disarm() comes first.
void Connection::arm(std::chrono::milliseconds after) {
  timer_.expires_after(after);
  timer_.async_wait([self = weak_from_this(), generation = ++generation_](error_code failed) {
    const std::shared_ptr<Connection> here = self.lock();
    if (failed || !here || generation != here->generation_) return;
    here->timed_out_ = true;
    here->socket_.cancel();
  });
}

void Connection::disarm() {
  ++generation_;
  timer_.cancel();
}

void Connection::close() {
  disarm();
  socket_.close();
}

std::chrono::milliseconds Connection::patience() const {
  return server_.draining ? kLinger : server_.options.request_timeout;
}

// ---- A request's header.

void Connection::shake_hands() {
  arm(server_.options.request_timeout);
  socket_.async_handshake([self = shared_from_this()](error_code failed) {
    failed ? self->close() : self->await_request();
  });
}

void Connection::await_request() {
  if (server_.draining && !is_asking()) return close();
  phase_ = Phase::reading;
  unused_since_ = Clock::now();
  timed_out_ = false;
  head_ = {};
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(server_.options.max_header_bytes));
  // Which limit holds for the body, the header says.
  parser_->body_limit(std::numeric_limits<std::uint64_t>::max());
  if (buffer_.size() > 0 && skip_empty_line() && buffer_.size() > 0) return read_header();
  // Over TCP anybody may connect: who has not said yet who they are has the time of a request, and not of a pause.
  arm(server_.draining || (door_.is_remote && !is_known_) ? patience() : server_.options.idle_timeout);
  read_more();
}

// Old clients send an empty line behind a body (RFC 9112, section 2.2): one is ignored.
bool Connection::skip_empty_line() {
  const auto here = [this](std::size_t at) { return static_cast<const char*>(buffer_.data().data())[at]; };
  if (buffer_.size() == 0 || here(0) != '\r') return true;
  if (buffer_.size() == 1) return false;
  if (here(1) == '\n') buffer_.consume(2);
  return true;
}

void Connection::read_more() {
  socket_.async_read_some(buffer_.prepare(4096), [self = shared_from_this()](error_code failed, std::size_t count) {
    if (failed) return self->close();
    self->buffer_.commit(count);
    if (!self->skip_empty_line()) return self->read_more();
    self->read_header();
  });
}

void Connection::read_header() {
  arm(patience());
  http::async_read_header(socket_, buffer_, *parser_, [self = shared_from_this()](error_code failed, std::size_t) {
    if (failed) return self->refuse(failed);
    try {
      self->accept_header();
    } catch (const Problem& problem) {
      self->refuse(problem);
    }
  });
}

void Connection::accept_header() {
  const auto& header = parser_->get();
  if (header.method() == http::verb::head) head_.method = "HEAD";  // also of a refusal
  head_ = read_head(header);
  if (door_.is_remote && is_stranger(header[http::field::authorization])) {
    throw Problem(ProblemCode::unauthenticated, "the request has no valid token; send Authorization: Bearer TOKEN");
  }
  is_known_ = true;
  if (!limit_body()) return refuse(http::error::body_limit);
  head_.is_content && server_.options.admit ? ask_to_admit() : take_body();
}

bool Connection::limit_body() {
  body_limit_ = head_.is_content ? server_.options.max_content_bytes : server_.options.max_body_bytes;
  parser_->body_limit(body_limit_);
  const auto length = parser_->content_length();
  return !length || *length <= body_limit_;
}

// All of it but its body.
HttpRequest Connection::request() const {
  return {.method = head_.method,
          .target = head_.target,
          .content_type = head_.content_type,
          .last_event_id = head_.last_event_id,
          .prefer = head_.prefer,
          .idempotency_key = head_.idempotency_key,
          .body = {},
          .content = {},
          .principal = principal_,
          .token = token_,
          .peer = peer_};
}

void Connection::ask_to_admit() {
  disarm();
  phase_ = Phase::handling;
  const auto length = parser_->content_length();
  asio::post(server_.workers, [self = shared_from_this(), length = length ? std::optional<std::uint64_t>(*length)
                                                                          : std::nullopt]() mutable {
    Impl& server = self->server_;
    std::optional<HttpResponse> refusal = server.options.admit(self->request(), length);
    if (refusal) self->note(*refusal);
    asio::post(server.io, [self = std::move(self), refusal = std::move(refusal)]() mutable {
      Connection& connection = *self;
      if (refusal) return connection.refuse(*std::move(refusal));
      connection.phase_ = Phase::reading;
      connection.arm(connection.patience());
      connection.take_body();
    });
  });
}

// Before a stranger's body is read, so that it costs nothing.
bool Connection::is_stranger(beast::string_view authorization) {
  const std::string_view token = token_of({authorization.data(), authorization.size()});
  principal_ = token.empty() ? std::string() : server_.options.tcp.principal_of_token(token);
  token_ = principal_.empty() ? std::string() : std::string(token);
  return principal_.empty();
}

// ---- Its body.

void Connection::take_body() { head_.expects_continue ? tell_to_continue() : read_body(); }

void Connection::tell_to_continue() {
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  asio::async_write(socket_, asio::buffer(kContinue), [self = shared_from_this()](error_code failed, std::size_t) {
    if (failed) return self->close();
    self->read_body();
  });
}

void Connection::read_body() {
  // The time may have run out between two operations.
  if (timed_out_) return refuse(error_code());
  if (head_.is_content) return receive_content();
  http::async_read(socket_, buffer_, *parser_, [self = shared_from_this()](error_code failed, std::size_t) {
    if (failed) return self->refuse(failed);
    http::request<http::string_body> message = self->parser_->release();
    self->dispatch(message.keep_alive(), std::move(message.body()), nullptr);
  });
}

void Connection::receive_content() { keep_piece(std::make_shared<Receiving>(std::move(*parser_))); }

void Connection::receive_piece(std::shared_ptr<Receiving> receiving) {
  if (receiving->failed != 0) return refuse_content(receiving->failed);
  if (receiving->parser.is_done()) {
    return dispatch(receiving->parser.release().keep_alive(), {}, std::move(receiving->kept));
  }
  if (server_.draining) return close();
  phase_ = Phase::reading;
  auto& body = receiving->parser.get().body();
  body.data = receiving->piece.data();
  body.size = receiving->piece.size();
  arm(server_.options.request_timeout);
  http::async_read(socket_, buffer_, receiving->parser,
                   [self = shared_from_this(), receiving](error_code failed, std::size_t) {
                     if (failed && failed != http::error::need_buffer) return self->refuse(failed);
                     receiving->count = receiving->piece.size() - receiving->parser.get().body().size;
                     self->keep_piece(receiving);
                   });
}

// On a worker: a disk may keep a write waiting.
void Connection::keep_piece(std::shared_ptr<Receiving> receiving) {
  disarm();
  phase_ = Phase::handling;
  asio::post(server_.workers, [self = shared_from_this(), receiving = std::move(receiving)]() mutable {
    Impl& server = self->server_;
    if (!receiving->kept) {
      receiving->kept = ReceivedBody::create(server.options.content_directory, receiving->failed,
                                             server.content_room.share(self->who()));
    }
    if (receiving->kept) receiving->failed = receiving->kept->append({receiving->piece.data(), receiving->count});
    asio::post(server.io, [self = std::move(self), receiving = std::move(receiving)]() mutable {
      Connection& connection = *self;
      connection.receive_piece(std::move(receiving));
    });
  });
}

void Connection::refuse_content(int failed) {
  if (failed == ENOBUFS) {
    return refuse(ProblemCode::no_space,
                  "contents that are on their way may take half of what is free in " +
                      server_.options.content_directory +
                      ", and those of one caller half of that, which is taken; try again, or send less at once; "
                      "nothing was changed");
  }
  const bool is_full = failed == ENOSPC || failed == EDQUOT;
  refuse(is_full ? ProblemCode::no_space : ProblemCode::internal,
         "the content cannot be kept in " + server_.options.content_directory + " while it comes: " +
             std::strerror(failed) + "; nothing was changed");
}

// A request that has waited may have been given up. With a preference or a key it goes on without its client, who asks
// for the answer later. Over TCP a client that has closed looks like one that only sends no more: once the request has
// waited it counts as gone. curl, nginx and Go's net/http send no end before they have their answer; as servers, nginx
// and net/http take a client that does for gone.
bool Connection::has_gone(const HttpRequest& request, bool has_waited) {
  if (!request.prefer.empty() || request.idempotency_key) return false;
  return (door_.is_remote && has_waited && socket_.peer_is_gone()) || socket_.takes_no_answer();
}

void Connection::dispatch(bool keep_alive, std::string body, std::shared_ptr<const ReceivedBody> content) {
  disarm();
  phase_ = Phase::handling;
  keep_alive_ = keep_alive;
  HttpRequest request = this->request();
  request.body = std::move(body);
  request.content = std::move(content);
  Impl::Workers& chosen = server_.workers_for(request.target);
  const bool has_to_wait = ++chosen.requests > chosen.size;
  asio::post(chosen, [self = shared_from_this(), request = std::move(request), &chosen, has_to_wait]() mutable {
    Impl& server = self->server_;
    const bool is_abandoned = has_to_wait && self->has_gone(request, true);
    if (is_abandoned) note_dropped(self->head_.method, self->head_.target, self->who(), server.log);
    const std::function<bool()> is_wanted = [&, begun = std::chrono::steady_clock::now()] {
      return !self->has_gone(request, std::chrono::steady_clock::now() - begun > kShortWait);
    };
    const session::WantedWhile wanted(is_wanted);
    HttpReply reply = is_abandoned ? HttpResponse() : server.handler(request);
    --chosen.requests;
    if (is_abandoned) return asio::post(server.io, [self = std::move(self)] { self->close(); });
    if (auto* response = std::get_if<HttpResponse>(&reply)) self->note(*response);
    asio::post(server.io, [self = std::move(self), reply = std::move(reply)]() mutable {
      Connection& connection = *self;
      connection.answer(std::move(reply));
    });
  });
}

// ---- What is wrong with it.

// What the parser made of the request.
void Connection::refuse(error_code failed) {
  if (timed_out_) return refuse(ProblemCode::request_timeout, "the request did not arrive in time");
  if (failed == http::error::body_limit) {
    return refuse(ProblemCode::body_too_large,
                  "the request's body is larger than " + std::to_string(body_limit_) + " bytes");
  }
  if (failed == http::error::header_limit || failed == http::error::buffer_overflow) {
    const bool has_target = parser_ && !parser_->get().target().empty();
    return refuse(has_target ? ProblemCode::header_too_large : ProblemCode::target_too_long,
                  std::string("the request's ") + (has_target ? "header" : "target") + " is larger than " +
                      std::to_string(server_.options.max_header_bytes) + " bytes");
  }
  if (failed.category() != make_error_code(http::error::bad_method).category() ||
      failed == http::error::end_of_stream || failed == http::error::partial_message) {
    return close();
  }
  if (failed == http::error::bad_version && names_a_version(buffer_)) {
    return refuse(ProblemCode::version_not_supported, "this server speaks HTTP/1.1 and HTTP/1.0");
  }
  refuse(ProblemCode::malformed_request, "this is not a request of HTTP/1.1: " + failed.message());
}

void Connection::refuse(ProblemCode code, const std::string& detail) { refuse(Problem(code, detail)); }

void Connection::refuse(const Problem& problem) {
  HttpResponse response = problem_response(problem);
  note(response);
  if (server_.options.on_refusal) server_.options.on_refusal(response.status);
  refuse(std::move(response));
}

// Where the next request would begin is not known any more.
void Connection::refuse(HttpResponse response) {
  keep_alive_ = false;
  write(std::move(response));
}

}  // namespace escrow::api
