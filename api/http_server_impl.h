// The inside of HttpServer: the server, and one client's connection. Only for http_server.cc (who comes and goes),
// http_connection.cc (a request comes) and http_answers.cc (its answer goes).
//
// All but the handler runs on the one thread that moves bytes.
#pragma once

#include <array>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <condition_variable>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "api/byte_stream.h"
#include "api/content_room.h"
#include "api/http_server.h"
#include "api/local_peer.h"
#include "api/problem.h"
#include "api/request_rules.h"
#include "session/base/synchronized.h"

namespace escrow::api {

struct HttpServer::Impl {
  class Connection;

  // One socket that clients connect to.
  struct Door {
    Acceptor acceptor;
    boost::asio::steady_timer pause;
    bool is_remote = false;
    std::size_t connections = 0;
  };

  Impl(const Options& given, Handler to, session::Log& log_to);
  ~Impl();
  void accept(Door& door);
  // Closes the connection that is missed least, so that another one fits in. False: each is being used.
  bool make_room(const Door& door);
  void drain();

  struct Open {
    std::size_t count = 0;
    bool draining = false;
  };
  void closed(Connection* connection);
  struct Workers : boost::asio::thread_pool {
    explicit Workers(unsigned threads) : thread_pool(threads), size(threads) {}
    const unsigned size;
    std::atomic<unsigned> requests = 0;  // that one has, or that wait for one
  };
  Workers& workers_for(std::string_view target);

  Options options;  // its limits and times are of the thread of the bytes; the rest is constant, as the next two
  const Handler handler;
  session::Log& log;
  boost::asio::io_context io{1};  // self-locking
  // While a worker has a request there may be nothing else to wait for.
  const boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{io.get_executor()};
  std::optional<boost::asio::ssl::context> tls;  // of doors that are remote; these four only on the thread of the bytes
  std::list<Door> doors;
  std::set<Connection*> connections;
  bool draining = false;
  session::Synchronized<Open> open;  // self-locking
  std::condition_variable all_closed;  // with `open`
  const ContentRoom content_room;    // self-locking, as the next two
  Workers workers;
  std::list<Workers> apart;  // of options.apart
  std::thread thread;
};

// One client. Kept alive by the operation it waits for.
class HttpServer::Impl::Connection : public std::enable_shared_from_this<Connection> {
 public:
  using error_code = boost::system::error_code;
  using Clock = std::chrono::steady_clock;

  Connection(Impl& server, Door& door, ByteStream::Socket socket);
  ~Connection();

  void start();
  void refuse_full();
  // Nothing more is read but what a client asks already that is not answered yet; what is being answered still is.
  void stop_reading();

  // ---- For make_room().
  const Door& door() const { return door_; }
  // Who may have many: a user of this machine, or an address, of IPv6 the network of a customer.
  const std::string& peer() const { return peer_name_; }
  bool is_known() const { return is_known_; }  // it has sent a request that was let in
  bool is_unused();
  Clock::time_point unused_since() const { return unused_since_; }
  void close();

 private:
  enum class Phase { reading, handling, writing, streaming };
  struct Receiving;
  struct Sending;

  // ---- http_connection.cc
  bool is_asking();
  void arm(std::chrono::milliseconds after);
  void disarm();
  std::chrono::milliseconds patience() const;
  void shake_hands();
  void await_request();
  bool skip_empty_line();
  void read_more();
  void read_header();
  void accept_header();
  bool limit_body();
  HttpRequest request() const;
  void ask_to_admit();
  void take_body();
  bool is_stranger(boost::beast::string_view authorization);
  void tell_to_continue();
  void read_body();
  void receive_content();
  void receive_piece(std::shared_ptr<Receiving> receiving);
  void keep_piece(std::shared_ptr<Receiving> receiving);
  void refuse_content(int failed);
  bool has_gone(const HttpRequest& request, bool has_waited);
  void dispatch(bool keep_alive, std::string body, std::shared_ptr<const ReceivedBody> content);
  void refuse(error_code failed);
  void refuse(ProblemCode code, const std::string& detail);
  void refuse(const Problem& problem);
  void refuse(HttpResponse response);

  // ---- http_answers.cc
  std::string who() const;
  void note(HttpResponse& response) const;
  void answer(HttpReply reply);
  void wait_for(Poll poll);
  void write(HttpResponse response);
  void begin_stream(Stream stream);
  void send_part(std::shared_ptr<Sending> sending);
  void next_part(std::shared_ptr<Sending> sending);
  void pause_stream(std::shared_ptr<Sending> sending);
  void end_stream();
  void end_answer();
  void linger();
  void discard();

  Impl& server_;
  Door& door_;
  ByteStream socket_;
  boost::asio::steady_timer timer_;
  boost::beast::flat_buffer buffer_;
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;
  RequestHead head_;  // of the request that is read or answered
  Phase phase_ = Phase::reading;
  std::uint64_t generation_ = 0;  // of the timer
  bool was_answered_ = false;     // ever
  bool timed_out_ = false;
  bool keep_alive_ = false;
  std::uint64_t body_limit_ = 0;
  bool is_known_;
  Clock::time_point unused_since_ = Clock::now();
  LocalPeer peer_;         // of a local one
  std::string principal_;  // of a remote one, by its last request's token
  std::string token_;
  std::string peer_name_;
};

}  // namespace escrow::api
