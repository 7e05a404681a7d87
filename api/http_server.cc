#include "api/http_server.h"

#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
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
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "api/problem.h"
#include "session/error.h"
#include "session/synchronized.h"

namespace escrow::api {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::local::stream_protocol;
using boost::system::error_code;
using session::Errc;
using session::Error;
using session::LogLevel;
using namespace std::chrono_literals;

namespace {

constexpr auto kPollInterval = 100ms;
// How long a client that was refused may still send what nobody reads.
constexpr auto kLinger = 2s;

[[noreturn]] void cannot_listen(const std::string& socket, const std::string& why) {
  throw Error(Errc::unavailable, "cannot listen on " + socket + ": " + why);
}

bool somebody_listens(const std::string& path) {
  asio::io_context context;
  stream_protocol::socket probe(context);
  error_code failed;
  probe.connect(stream_protocol::endpoint(path), failed);
  return !failed;
}

void remove_stale(const std::string& path) {
  struct stat about {};
  if (::lstat(path.c_str(), &about) != 0) return;
  if (!S_ISSOCK(about.st_mode)) cannot_listen(path, "something that is no socket is there; move it away");
  if (somebody_listens(path)) cannot_listen(path, "another server listens there; stop it first");
  ::unlink(path.c_str());
}

void give_to_group(const std::string& path, const std::string& group) {
  std::array<char, 16384> buffer;
  ::group entry{};
  ::group* found = nullptr;
  ::getgrnam_r(group.c_str(), &entry, buffer.data(), buffer.size(), &found);
  if (found == nullptr) cannot_listen(path, "there is no group '" + group + "'");
  if (::chown(path.c_str(), static_cast<uid_t>(-1), found->gr_gid) != 0) {
    cannot_listen(path, "it cannot be given to the group '" + group + "': " + std::strerror(errno));
  }
}

}  // namespace

struct HttpServer::Impl {
  class Connection;

  Impl(const Options& given, Handler to, session::Log& log_to)
      : options(given), handler(std::move(to)), log(log_to), acceptor(io), pause(io), workers(options.threads) {
    listen();
    accept();
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
    ::unlink(options.socket.c_str());
  }

  void listen() {
    if (options.socket.size() >= sizeof(sockaddr_un::sun_path)) {
      cannot_listen(options.socket, "the path is too long for a socket (unix(7)); choose one of at most " +
                                        std::to_string(sizeof(sockaddr_un::sun_path) - 1) + " bytes");
    }
    remove_stale(options.socket);
    error_code failed;
    acceptor.open(stream_protocol(), failed);
    // Nobody but this user until the group is set.
    const mode_t before = ::umask(0177);
    if (!failed) acceptor.bind(stream_protocol::endpoint(options.socket), failed);
    ::umask(before);
    if (failed) cannot_listen(options.socket, failed.message());
    if (!options.group.empty()) give_to_group(options.socket, options.group);
    if (::chmod(options.socket.c_str(), 0660) != 0) cannot_listen(options.socket, std::strerror(errno));
    acceptor.listen(asio::socket_base::max_listen_connections, failed);
    if (failed) cannot_listen(options.socket, failed.message());
  }

  void accept();
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
  stream_protocol::acceptor acceptor;  // these four only on the thread that moves bytes
  asio::steady_timer pause;
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
  Connection(Impl& server, stream_protocol::socket socket)
      : server_(server), socket_(std::move(socket)), timer_(server.io), buffer_(server.options.max_header_bytes * 4) {
    server_.connections.insert(this);
    ++server_.open.lock()->count;
  }
  ~Connection() { server_.closed(this); }

  void start() {
    ucred peer{};
    socklen_t size = sizeof peer;
    if (::getsockopt(socket_.native_handle(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return;
    uid_ = peer.uid;
    gid_ = peer.gid;
    await_request();
  }

  void refuse_full() { refuse(ProblemCode::unavailable, "there are too many connections; try again"); }

  // Nothing more is read; what is being answered still is.
  void stop_reading() {
    if (phase_ == Phase::reading) close();
  }

 private:
  enum class Phase { reading, handling, writing };

  // Cancels what the connection waits for, unless arm() or disarm() comes first.
  void arm(std::chrono::milliseconds after) {
    timer_.expires_after(after);
    timer_.async_wait([self = weak_from_this(), generation = ++generation_](error_code failed) {
      const std::shared_ptr<Connection> here = self.lock();
      if (failed || !here || generation != here->generation_) return;
      here->timed_out_ = true;
      error_code ignored;
      here->socket_.cancel(ignored);
    });
  }
  void disarm() {
    ++generation_;
    timer_.cancel();
  }

  void close() {
    disarm();
    error_code ignored;
    socket_.close(ignored);
  }

  void await_request() {
    if (server_.draining) return close();
    phase_ = Phase::reading;
    timed_out_ = false;
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(server_.options.max_header_bytes));
    parser_->body_limit(server_.options.max_body_bytes);
    if (buffer_.size() > 0) return read_header();
    arm(server_.options.idle_timeout);
    socket_.async_read_some(buffer_.prepare(4096), [self = shared_from_this()](error_code failed, std::size_t count) {
      if (failed) return self->close();
      self->buffer_.commit(count);
      self->read_header();
    });
  }

  void read_header() {
    arm(server_.options.request_timeout);
    http::async_read_header(socket_, buffer_, *parser_, [self = shared_from_this()](error_code failed, std::size_t) {
      if (failed) return self->refuse(failed);
      const auto& message = self->parser_->get();
      if (beast::iequals(message[http::field::expect], "100-continue")) return self->tell_to_continue();
      self->read_body();
    });
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
    http::async_read(socket_, buffer_, *parser_, [self = shared_from_this()](error_code failed, std::size_t) {
      if (failed) return self->refuse(failed);
      self->dispatch();
    });
  }

  // ---- Answers.

  void dispatch() {
    disarm();
    phase_ = Phase::handling;
    http::request<http::string_body> message = parser_->release();
    keep_alive_ = message.keep_alive();
    knows_chunks_ = message.version() >= 11;
    const auto text = [](beast::string_view view) { return std::string(view.data(), view.size()); };
    HttpRequest request{.method = text(message.method_string()),
                        .target = text(message.target()),
                        .content_type = text(message[http::field::content_type]),
                        .idempotency_key = text(message["Idempotency-Key"]),
                        .body = std::move(message.body()),
                        .uid = uid_,
                        .gid = gid_};
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

  bool client_is_gone() {
    char byte;
    return ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
  }

  void wait_for(Poll poll) {
    timer_.expires_after(server_.draining ? 0ms : kPollInterval);
    ++generation_;
    timer_.async_wait([self = shared_from_this(), poll = std::move(poll)](error_code) mutable {
      if (self->client_is_gone()) return self->close();
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

  void begin_stream(Stream stream) {
    phase_ = Phase::writing;
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
    arm(server_.options.request_timeout);
    http::async_write_header(socket_, *sending->serializer,
                             [self = shared_from_this(), sending](error_code failed, std::size_t) {
                               if (failed) return self->close();
                               sending->part.bytes.empty() ? self->next_part(sending) : self->send_part(sending);
                             });
  }

  void send_part(std::shared_ptr<Sending> sending) {
    if (sending->has_failed) return close();
    if (sending->part.bytes.empty()) return sending->part.is_end ? end_stream() : pause_stream(std::move(sending));
    arm(server_.options.request_timeout);
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
      if (self->client_is_gone()) return self->close();
      Connection& connection = *self;
      connection.next_part(std::move(sending));
    });
  }

  void end_stream() {
    if (!knows_chunks_) return linger();
    arm(server_.options.request_timeout);
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
                    "the request's body is larger than " + std::to_string(options.max_body_bytes) + " bytes");
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
    error_code ignored;
    socket_.shutdown(stream_protocol::socket::shutdown_send, ignored);
    arm(kLinger);
    discard();
  }
  void discard() {
    if (server_.draining) return close();
    socket_.async_read_some(asio::buffer(scrap_), [self = shared_from_this()](error_code failed, std::size_t) {
      if (failed || self->timed_out_) return self->close();
      self->discard();
    });
  }

  Impl& server_;
  stream_protocol::socket socket_;
  asio::steady_timer timer_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  std::array<char, 1024> scrap_;
  Phase phase_ = Phase::reading;
  std::uint64_t generation_ = 0;  // of the timer
  bool timed_out_ = false;
  bool keep_alive_ = false;
  bool knows_chunks_ = true;  // HTTP/1.1
  unsigned uid_ = 0, gid_ = 0;
};

void HttpServer::Impl::accept() {
  acceptor.async_accept([this](error_code failed, stream_protocol::socket socket) {
    if (draining) return;
    if (failed) {
      // Out of descriptors: wait for some to come back rather than spin.
      pause.expires_after(100ms);
      pause.async_wait([this](error_code) {
        if (!draining) accept();
      });
      return;
    }
    const bool is_full = connections.size() >= options.max_connections;
    const auto connection = std::make_shared<Connection>(*this, std::move(socket));
    is_full ? connection->refuse_full() : connection->start();
    accept();
  });
}

void HttpServer::Impl::drain() {
  draining = true;
  error_code ignored;
  acceptor.close(ignored);
  pause.cancel();
  // Closing may end the last hold on a connection, which then takes itself out of the set.
  const std::vector<Connection*> now(connections.begin(), connections.end());
  for (Connection* connection : now) {
    if (connections.contains(connection)) connection->stop_reading();
  }
  open.lock()->draining = true;
  all_closed.notify_all();
}

HttpServer::HttpServer(const Options& options, Handler handler, session::Log& log)
    : impl_(std::make_unique<Impl>(options, std::move(handler), log)) {}

HttpServer::~HttpServer() = default;

}  // namespace escrow::api
