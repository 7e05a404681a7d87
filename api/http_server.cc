#include "api/http_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <limits>
#include <list>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "api/bearer_token.h"
#include "api/byte_stream.h"
#include "api/listening.h"
#include "api/problem.h"
#include "session/synchronized.h"

namespace escrow::api {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using session::LogLevel;
using namespace std::chrono_literals;

namespace {

constexpr auto kPollInterval = 100ms;
// How long a client that was refused may still send what nobody reads; and how long one that has just come is waited
// for when the server is to stop.
constexpr auto kLinger = 2s;

}  // namespace

struct HttpServer::Impl {
  class Connection;

  // One socket that clients connect to.
  struct Door {
    Acceptor acceptor;
    asio::steady_timer pause;
    bool is_remote = false;
    std::size_t connections = 0;
  };

  Impl(const Options& given, Handler to, session::Log& log_to)
      : options(given), handler(std::move(to)), log(log_to), workers(options.threads) {
    if (!options.tcp.certificate.empty()) tls = tls_context(options.tcp.certificate, options.tcp.key);
    if (!options.tcp.address.empty()) {
      doors.push_back({listen_on_tcp(io, options.tcp.address), asio::steady_timer(io), true});
    }
    doors.push_back({options.given_socket >= 0
                         ? listen_on_given(io, options.given_socket, options.socket, options.group)
                         : listen_on_unix(io, options.socket, options.group),
                     asio::steady_timer(io)});
    for (Door& door : doors) accept(door);
    thread = std::thread([this] { io.run(); });
  }

  ~Impl() {
    asio::post(io, [this] { drain(); });
    {
      auto held = open.lock();
      all_closed.wait(held.lock(), [&] { return held->draining && held->count == 0; });
    }
    workers.join();
    io.stop();
    thread.join();
    if (options.given_socket < 0) ::unlink(options.socket.c_str());
  }

  void accept(Door& door);
  void drain();

  struct Open {
    std::size_t count = 0;
    bool draining = false;
  };
  void closed(Connection* connection) {
    connections.erase(connection);
    auto held = open.lock();
    --held->count;
    all_closed.notify_all();
  }

  const Options options;  // constant, as the next two
  const Handler handler;
  session::Log& log;
  asio::io_context io{1};  // self-locking
  // While a worker has a request there may be nothing else to wait for.
  const asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  std::optional<asio::ssl::context> tls;  // of doors that are remote; these four only on the thread that moves bytes
  std::list<Door> doors;
  std::set<Connection*> connections;
  bool draining = false;
  session::Synchronized<Open> open;  // self-locking
  std::condition_variable all_closed;  // with `open`
  asio::thread_pool workers;  // self-locking
  std::thread thread;
};

// One client. Kept alive by the operation it waits for; all but the handler runs on the thread that moves bytes.
class HttpServer::Impl::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Impl& server, Door& door, ByteStream::Socket socket)
      : server_(server),
        door_(door),
        socket_(std::move(socket), door.is_remote && server.tls ? &*server.tls : nullptr),
        timer_(server.io),
        buffer_(server.options.max_header_bytes * 4) {
    server_.connections.insert(this);
    ++door_.connections;
    ++server_.open.lock()->count;
  }
  ~Connection() {
    --door_.connections;
    server_.closed(this);
  }

  void start() {
    if (door_.is_remote) return socket_.has_tls() ? shake_hands() : await_request();
    ucred peer{};
    socklen_t size = sizeof peer;
    if (::getsockopt(socket_.native_handle(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return;
    uid_ = peer.uid;
    gid_ = peer.gid;
    take_groups();
    await_request();
  }

  void refuse_full() {
    // What it takes to be understood under TLS is too much for one connection too many.
    if (socket_.has_tls()) return close();
    refuse(ProblemCode::unavailable, "there are too many connections; try again");
  }

  // Nothing more is read but what a client asks already that is not answered yet; what is being answered still is.
  void stop_reading() {
    if (phase_ == Phase::reading) return is_asking() ? arm(kLinger) : close();
    // A client that takes nothing of what it follows is not waited for.
    if (phase_ == Phase::streaming) arm(kLinger);
  }

 private:
  enum class Phase { reading, handling, writing, streaming };

  void take_groups() {
    socklen_t size = 0;  // without room the kernel says how much they take
    ::getsockopt(socket_.native_handle(), SOL_SOCKET, SO_PEERGROUPS, nullptr, &size);
    groups_.resize(size / sizeof groups_.front());
    if (::getsockopt(socket_.native_handle(), SOL_SOCKET, SO_PEERGROUPS, groups_.data(), &size) != 0) groups_.clear();
  }

  // One that was accepted, and then closed without a word, would have been better off waiting for the next server.
  bool is_asking() { return !was_answered_ || buffer_.size() > 0 || socket_.has_bytes(); }

  // Cancels what the connection waits for, unless arm() or disarm() comes first.
  void arm(std::chrono::milliseconds after) {
    timer_.expires_after(after);
    timer_.async_wait([self = weak_from_this(), generation = ++generation_](error_code failed) {
      const std::shared_ptr<Connection> here = self.lock();
      if (failed || !here || generation != here->generation_) return;
      here->timed_out_ = true;
      here->socket_.cancel();
    });
  }
  void disarm() {
    ++generation_;
    timer_.cancel();
  }

  void close() {
    disarm();
    socket_.close();
  }

  void shake_hands() {
    arm(server_.options.request_timeout);
    socket_.async_handshake([self = shared_from_this()](error_code failed) {
      failed ? self->close() : self->await_request();
    });
  }

  void await_request() {
    if (server_.draining && !is_asking()) return close();
    phase_ = Phase::reading;
    timed_out_ = false;
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(server_.options.max_header_bytes));
    // Which limit holds for the body, the header says.
    parser_->body_limit(std::numeric_limits<std::uint64_t>::max());
    if (buffer_.size() > 0) return read_header();
    arm(server_.draining ? kLinger : server_.options.idle_timeout);
    socket_.async_read_some(buffer_.prepare(4096), [self = shared_from_this()](error_code failed, std::size_t count) {
      if (failed) return self->close();
      self->buffer_.commit(count);
      self->read_header();
    });
  }

  void read_header() {
    arm(patience());
    http::async_read_header(socket_, buffer_, *parser_, [self = shared_from_this()](error_code failed, std::size_t) {
      if (failed) return self->refuse(failed);
      const auto& message = self->parser_->get();
      if (self->door_.is_remote && !self->is_known(message[http::field::authorization])) return self->refuse_stranger();
      if (!self->limit_body()) return self->refuse(http::error::body_limit);
      if (beast::iequals(message[http::field::expect], "100-continue")) return self->tell_to_continue();
      self->read_body();
    });
  }

  bool is_content() const {
    const auto& message = parser_->get();
    const beast::string_view type = message[http::field::content_type];
    return message.method() == http::verb::put || media_type({type.data(), type.size()}) == kTarType;
  }

  bool limit_body() {
    body_limit_ = is_content() ? server_.options.max_content_bytes : server_.options.max_body_bytes;
    parser_->body_limit(body_limit_);
    const auto length = parser_->content_length();
    return !length || *length <= body_limit_;
  }

  // Before a stranger's body is read, so that it costs nothing.
  bool is_known(beast::string_view authorization) {
    const std::string_view token = token_of({authorization.data(), authorization.size()});
    principal_ = token.empty() ? std::string() : server_.options.tcp.principal_of_token(token);
    return !principal_.empty();
  }

  void refuse_stranger() {
    refuse(ProblemCode::unauthenticated, "the request has no valid token; send Authorization: Bearer TOKEN");
  }

  void tell_to_continue() {
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    asio::async_write(socket_, asio::buffer(kContinue), [self = shared_from_this()](error_code failed, std::size_t) {
      if (failed) return self->close();
      self->read_body();
    });
  }

  void read_body() {
    // The time may have run out between two operations.
    if (timed_out_) return refuse(error_code());
    if (is_content()) return receive_content();
    http::async_read(socket_, buffer_, *parser_, [self = shared_from_this()](error_code failed, std::size_t) {
      if (failed) return self->refuse(failed);
      self->dispatch();
    });
  }

  // ---- Contents: receive_piece() and keep_piece() take turns.

  struct Receiving {
    explicit Receiving(http::request_parser<http::string_body>&& header) : parser(std::move(header)) {}
    http::request_parser<http::buffer_body> parser;
    std::shared_ptr<ReceivedBody> kept;
    std::array<char, 65536> piece;
    std::size_t count = 0;  // of the piece
    int failed = 0;         // errno
  };

  void receive_content() { keep_piece(std::make_shared<Receiving>(std::move(*parser_))); }

  void receive_piece(std::shared_ptr<Receiving> receiving) {
    if (receiving->failed != 0) return refuse_content(receiving->failed);
    if (receiving->parser.is_done()) {
      const auto message = receiving->parser.release();
      return dispatch(message, message.keep_alive(), {}, std::move(receiving->kept));
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
  void keep_piece(std::shared_ptr<Receiving> receiving) {
    disarm();
    phase_ = Phase::handling;
    asio::post(server_.workers, [self = shared_from_this(), receiving = std::move(receiving)]() mutable {
      Impl& server = self->server_;
      if (!receiving->kept) {
        receiving->kept = ReceivedBody::create(server.options.content_directory, receiving->failed);
      }
      if (receiving->kept) receiving->failed = receiving->kept->append({receiving->piece.data(), receiving->count});
      asio::post(server.io, [self = std::move(self), receiving = std::move(receiving)]() mutable {
        Connection& connection = *self;
        connection.receive_piece(std::move(receiving));
      });
    });
  }

  void refuse_content(int failed) {
    const bool is_full = failed == ENOSPC || failed == EDQUOT;
    refuse(is_full ? ProblemCode::no_space : ProblemCode::internal,
           "the content cannot be kept in " + server_.options.content_directory + " while it comes: " +
               std::strerror(failed) + "; nothing was changed");
  }

  // ---- Answers.

  void dispatch() {
    http::request<http::string_body> message = parser_->release();
    dispatch(message, message.keep_alive(), std::move(message.body()), nullptr);
  }

  void dispatch(const http::request_header<>& header, bool keep_alive, std::string body,
                std::shared_ptr<const ReceivedBody> content) {
    disarm();
    phase_ = Phase::handling;
    keep_alive_ = keep_alive;
    knows_chunks_ = header.version() >= 11;
    const auto text = [](beast::string_view view) { return std::string(view.data(), view.size()); };
    HttpRequest request{.method = text(header.method_string()),
                        .target = text(header.target()),
                        .content_type = text(header[http::field::content_type]),
                        .idempotency_key = text(header["Idempotency-Key"]),
                        .last_event_id = text(header["Last-Event-ID"]),
                        .prefer = text(header["Prefer"]),
                        .body = std::move(body),
                        .content = std::move(content),
                        .principal = principal_,
                        .uid = uid_,
                        .gid = gid_,
                        .groups = groups_};
    asio::post(server_.workers, [self = shared_from_this(), request = std::move(request)]() mutable {
      Impl& server = self->server_;
      HttpReply reply = server.handler(request);
      asio::post(server.io, [self = std::move(self), reply = std::move(reply)]() mutable {
        Connection& connection = *self;
        connection.answer(std::move(reply));
      });
    });
  }

  void answer(HttpReply reply) {
    if (Poll* poll = std::get_if<Poll>(&reply)) return wait_for(std::move(*poll));
    if (Stream* stream = std::get_if<Stream>(&reply)) return begin_stream(std::move(*stream));
    write(std::get<HttpResponse>(std::move(reply)));
  }

  void wait_for(Poll poll) {
    timer_.expires_after(server_.draining ? 0ms : kPollInterval);
    ++generation_;
    timer_.async_wait([self = shared_from_this(), poll = std::move(poll)](error_code) mutable {
      if (self->socket_.peer_is_gone()) return self->close();
      Connection& connection = *self;
      asio::post(connection.server_.workers, [self = std::move(self), poll = std::move(poll),
                                              is_last = connection.server_.draining]() mutable {
        std::optional<HttpResponse> response = poll(is_last);
        HttpReply reply = response ? HttpReply(*std::move(response)) : HttpReply(std::move(poll));
        asio::io_context& io = self->server_.io;
        asio::post(io, [self = std::move(self), reply = std::move(reply)]() mutable {
          Connection& here = *self;
          here.answer(std::move(reply));
        });
      });
    });
  }

  void write(HttpResponse response) {
    phase_ = Phase::writing;
    was_answered_ = true;
    keep_alive_ = keep_alive_ && !server_.draining;
    auto message = std::make_shared<http::response<http::string_body>>(http::int_to_status(response.status), 11);
    if (!response.content_type.empty()) message->set(http::field::content_type, response.content_type);
    message->set(http::field::cache_control, "no-store");
    for (const auto& [name, value] : response.headers) message->set(name, value);
    message->body() = std::move(response.body);
    message->keep_alive(keep_alive_);
    message->prepare_payload();
    timed_out_ = false;
    arm(server_.options.request_timeout);
    http::async_write(socket_, *message, [self = shared_from_this(), message](error_code failed, std::size_t) {
      if (failed) return self->close();
      if (self->keep_alive_) return self->await_request();
      self->linger();
    });
  }

  // ---- Answers in parts: send_part() and next_part() take turns.

  // What is being sent; kept alive by the operation that uses it.
  struct Sending {
    Stream stream;
    http::response<http::empty_body> header;
    std::optional<http::response_serializer<http::empty_body>> serializer;
    Stream::Part part;
    bool has_failed = false;
  };

  std::chrono::milliseconds patience() const { return server_.draining ? kLinger : server_.options.request_timeout; }

  void begin_stream(Stream stream) {
    phase_ = Phase::streaming;
    was_answered_ = true;
    // To a client of HTTP/1.0 the end of the connection is the end of the answer.
    keep_alive_ = keep_alive_ && knows_chunks_ && !server_.draining;
    auto sending = std::make_shared<Sending>();
    sending->part.bytes = std::move(stream.head.body);
    sending->header.result(http::int_to_status(stream.head.status));
    sending->header.version(11);
    if (!stream.head.content_type.empty()) sending->header.set(http::field::content_type, stream.head.content_type);
    sending->header.set(http::field::cache_control, "no-store");
    for (const auto& [name, value] : stream.head.headers) sending->header.set(name, value);
    sending->header.keep_alive(keep_alive_);
    sending->header.chunked(knows_chunks_);
    sending->stream = std::move(stream);
    sending->serializer.emplace(sending->header);
    timed_out_ = false;
    arm(patience());
    http::async_write_header(socket_, *sending->serializer,
                             [self = shared_from_this(), sending](error_code failed, std::size_t) {
                               if (failed) return self->close();
                               sending->part.bytes.empty() ? self->next_part(sending) : self->send_part(sending);
                             });
  }

  void send_part(std::shared_ptr<Sending> sending) {
    if (sending->has_failed) return close();
    if (sending->part.bytes.empty()) return sending->part.is_end ? end_stream() : pause_stream(std::move(sending));
    arm(patience());
    const auto bytes = asio::buffer(sending->part.bytes);
    const auto sent = [self = shared_from_this(), sending](error_code failed, std::size_t) {
      if (failed) return self->close();
      if (sending->part.is_end) return self->end_stream();
      self->next_part(sending);
    };
    if (!knows_chunks_) return asio::async_write(socket_, bytes, sent);
    asio::async_write(socket_, http::make_chunk(bytes), sent);
  }

  void next_part(std::shared_ptr<Sending> sending) {
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

  void pause_stream(std::shared_ptr<Sending> sending) {
    timer_.expires_after(server_.draining ? 0ms : kPollInterval);
    ++generation_;
    timer_.async_wait([self = shared_from_this(), sending = std::move(sending)](error_code) mutable {
      if (self->socket_.peer_is_gone()) return self->close();
      Connection& connection = *self;
      connection.next_part(std::move(sending));
    });
  }

  void end_stream() {
    if (!knows_chunks_) return linger();
    arm(patience());
    asio::async_write(socket_, http::make_chunk_last(), [self = shared_from_this()](error_code failed, std::size_t) {
      if (failed) return self->close();
      if (self->keep_alive_) return self->await_request();
      self->linger();
    });
  }

  // What the parser made of the request.
  void refuse(error_code failed) {
    const Options& options = server_.options;
    if (timed_out_) return refuse(ProblemCode::request_timeout, "the request did not arrive in time");
    if (failed == http::error::body_limit) {
      return refuse(ProblemCode::body_too_large,
                    "the request's body is larger than " + std::to_string(body_limit_) + " bytes");
    }
    if (failed == http::error::header_limit || failed == http::error::buffer_overflow) {
      return refuse(ProblemCode::header_too_large,
                    "the request's header is larger than " + std::to_string(options.max_header_bytes) + " bytes");
    }
    if (failed.category() != make_error_code(http::error::bad_method).category() ||
        failed == http::error::end_of_stream || failed == http::error::partial_message) {
      return close();
    }
    refuse(ProblemCode::malformed_request, "this is not a request of HTTP/1.1: " + failed.message());
  }

  void refuse(ProblemCode code, const std::string& detail) {
    keep_alive_ = false;
    write(problem_response(Problem(code, detail)));
  }

  // A client that was refused may be sending still: closing at once could take the answer from it.
  void linger() {
    phase_ = Phase::reading;
    arm(kLinger);
    socket_.async_end_output([self = shared_from_this()] { self->discard(); });
  }
  void discard() {
    if (server_.draining || timed_out_) return close();
    socket_.async_discard_some([self = shared_from_this()](error_code failed, std::size_t) {
      if (failed) return self->close();
      self->discard();
    });
  }

  Impl& server_;
  Door& door_;
  ByteStream socket_;
  asio::steady_timer timer_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  Phase phase_ = Phase::reading;
  std::uint64_t generation_ = 0;  // of the timer
  bool was_answered_ = false;     // ever
  bool timed_out_ = false;
  bool keep_alive_ = false;
  bool knows_chunks_ = true;  // HTTP/1.1
  std::uint64_t body_limit_ = 0;
  unsigned uid_ = kNobodysId, gid_ = kNobodysId;  // of a local peer, as the next
  std::vector<unsigned> groups_;
  std::string principal_;                        // of a remote one, by its last request's token
};

void HttpServer::Impl::accept(Door& door) {
  door.acceptor.async_accept([this, &door](error_code failed, ByteStream::Socket socket) {
    if (failed && draining) return;
    if (failed) {
      // Out of descriptors: wait for some to come back rather than spin.
      door.pause.expires_after(100ms);
      door.pause.async_wait([this, &door](error_code) {
        if (!draining) accept(door);
      });
      return;
    }
    const bool is_full = door.connections >= options.max_connections;
    const auto connection = std::make_shared<Connection>(*this, door, std::move(socket));
    is_full ? connection->refuse_full() : connection->start();
    if (!draining) accept(door);
  });
}

void HttpServer::Impl::drain() {
  draining = true;
  error_code ignored;
  for (Door& door : doors) {
    door.acceptor.close(ignored);
    door.pause.cancel();
  }
  // Closing may end the last hold on a connection, which then takes itself out of the set.
  const std::vector<Connection*> now(connections.begin(), connections.end());
  for (Connection* connection : now) {
    if (connections.contains(connection)) connection->stop_reading();
  }
  // Whom a door has let in already without anybody having noticed comes before.
  asio::post(io, [this] {
    open.lock()->draining = true;
    all_closed.notify_all();
  });
}

HttpServer::HttpServer(const Options& options, Handler handler, session::Log& log)
    : impl_(std::make_unique<Impl>(options, std::move(handler), log)) {}

HttpServer::~HttpServer() = default;

}  // namespace escrow::api
