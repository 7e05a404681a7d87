#include "api/http_client.h"

#include <openssl/ssl.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <optional>
#include <utility>

#include "api/tcp_address.h"
#include "session/base/error.h"

namespace escrow::api {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
namespace ssl = asio::ssl;
using boost::system::error_code;
using session::Errc;
using session::Error;

namespace {

using Socket = asio::generic::stream_protocol::socket;
using SentRequest = http::request<http::string_body>;
using UploadHeader = http::request<http::empty_body>;
using Response = http::response<http::string_body>;

// Far above what any answer has, so that a server gone mad cannot fill the memory.
constexpr std::uint64_t kMostAnswerBytes = std::uint64_t{1} << 30;
constexpr std::size_t kChunkBytes = std::size_t{256} << 10;

struct Place {
  bool is_unix = false, has_tls = false;
  std::string path;        // of a Unix socket
  std::string name, port;  // else
};

[[noreturn]] void refuse_host(const std::string& host, const std::string& why) {
  throw Error(Errc::bad_request, "'" + host + "' is no host: " + why +
                                     "; give unix:///PATH or https://NAME[:PORT]");
}

Place place_of(const std::string& host) {
  static constexpr std::string_view kUnix = "unix://", kTls = "https://", kPlain = "http://";
  if (host.starts_with(kUnix)) {
    Place place{.is_unix = true, .path = host.substr(kUnix.size())};
    if (!place.path.starts_with('/')) refuse_host(host, "the path of the socket is not absolute");
    return place;
  }
  Place place{.has_tls = host.starts_with(kTls)};
  if (!place.has_tls && !host.starts_with(kPlain)) refuse_host(host, "it begins with neither unix:// nor https://");
  std::string authority = host.substr(place.has_tls ? kTls.size() : kPlain.size());
  if (authority.ends_with('/')) authority.pop_back();
  if (!place.has_tls && kind_of_tcp_address(authority) != TcpAddressKind::loopback) {
    refuse_host(host, "without TLS a token could be read on its way");
  }
  const std::size_t bracket = authority.find(']');
  const std::size_t colon = authority.find(':', bracket == std::string::npos ? 0 : bracket);
  place.name = authority.substr(0, colon);
  place.port = colon == std::string::npos ? "443" : authority.substr(colon + 1);
  const bool is_bracketed = place.name.starts_with('[') && place.name.ends_with(']');
  if (is_bracketed) place.name = place.name.substr(1, place.name.size() - 2);
  if (place.name.empty() || place.port.empty() || authority.find('/') != std::string::npos) {
    refuse_host(host, "it is not a name with or without a port");
  }
  return place;
}

// Thrown when nothing more of a body need be sent.
struct Answered {};

// A request on its way whose answer may come at any time: one operation reads it all along, others write.
template <typename Stream>
class Upload {
 public:
  Upload(asio::io_context& io, Stream& stream, Socket& socket) : io_(io), stream_(stream), socket_(socket) {
    parser_.body_limit(kMostAnswerBytes);
    io_.restart();
    http::async_read(stream_, buffer_, parser_, [this](error_code ended, std::size_t) {
      unread_ = ended;
      is_answered_ = true;
    });
  }
  // No operation outlives what it works on.
  ~Upload() {
    if (is_answered_ && !is_writing_) return;
    error_code ignored;
    socket_.close(ignored);
    io_.restart();
    io_.run();
  }
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  void send_header(UploadHeader& header) {
    http::request_serializer<http::empty_body> serializer(header);
    write([&](auto handler) { http::async_write_header(stream_, serializer, handler); });
  }
  void send(std::string_view bytes) {
    pending_ += bytes;
    if (pending_.size() >= kChunkBytes) send_pending();
  }
  void finish() {
    if (!pending_.empty()) send_pending();
    write([&](auto handler) { asio::async_write(stream_, http::make_chunk_last(), handler); });
    is_whole_ = true;
  }

  // Waits for it. A connection whose request was not sent whole is of no further use.
  Response answer(error_code& failed) {
    while (!is_answered_) io_.run_one();
    failed = unread_ && unsent_ ? unsent_ : unread_;
    Response response = parser_.release();
    if (!is_whole_) response.keep_alive(false);
    return response;
  }

 private:
  void send_pending() {
    write([&](auto handler) { asio::async_write(stream_, http::make_chunk(asio::buffer(pending_)), handler); });
    pending_.clear();
  }

  template <typename Start>
  void write(const Start& start) {
    is_writing_ = true;
    start([this](error_code failed, std::size_t) {
      unsent_ = failed;
      is_writing_ = false;
    });
    while (is_writing_ && !is_answered_) io_.run_one();
    // What cannot be sent any more may have been answered.
    if (is_writing_ || unsent_ || is_answered_) throw Answered();
  }

  asio::io_context& io_;
  Stream& stream_;
  Socket& socket_;
  beast::flat_buffer buffer_;
  http::response_parser<http::string_body> parser_;
  std::string pending_;
  error_code unsent_, unread_;
  bool is_writing_ = false, is_whole_ = false, is_answered_ = false;
};

}  // namespace

struct HttpClient::Impl {
  Impl(const std::string& to, const std::string& with, Server about)
      : host(to), token(with), place(place_of(to)), server(std::move(about)) {
    context.set_default_verify_paths();
    context.set_verify_mode(ssl::verify_peer);
  }

  void check(const error_code& failed, const std::string& doing) const {
    if (!failed) return;
    throw Error(Errc::unavailable, "cannot " + doing + " " + server.name + " at " + host + ": " + failed.message());
  }

  void connect() {
    error_code failed;
    if (place.is_unix) {
      asio::local::stream_protocol::socket made(io);
      made.connect(asio::local::stream_protocol::endpoint(place.path), failed);
      check(failed, "reach");
      socket.emplace(std::move(made));
      return;
    }
    asio::ip::tcp::resolver resolver(io);
    const auto found = resolver.resolve(place.name, place.port, failed);
    check(failed, "find");
    asio::ip::tcp::socket made(io);
    asio::connect(made, found, failed);
    check(failed, "reach");
    made.set_option(asio::socket_base::keep_alive(true), failed);
    made.set_option(asio::ip::tcp::no_delay(true), failed);
    socket.emplace(std::move(made));
    if (!place.has_tls) return;
    tls.emplace(*socket, context);
    tls->set_verify_callback(ssl::host_name_verification(place.name));
    // Only names go into the greeting (RFC 6066, section 3).
    error_code is_name;
    asio::ip::make_address(place.name, is_name);
    if (is_name) ::SSL_set_tlsext_host_name(tls->native_handle(), place.name.c_str());
    tls->handshake(ssl::stream_base::client, failed);
    check(failed, "speak TLS with");
  }

  void disconnect() {
    tls.reset();
    socket.reset();
  }

  template <typename Stream>
  Response exchange(Stream& stream, const SentRequest& request) {
    beast::flat_buffer buffer;
    http::response_parser<http::string_body> parser;
    parser.body_limit(kMostAnswerBytes);
    error_code failed, unread;
    bool is_done = false;
    http::async_write(stream, request, [&](error_code unsent, std::size_t) {
      failed = unsent;
      // A server that refuses may answer before it has read everything: its answer counts.
      http::async_read(stream, buffer, parser, [&](error_code ended, std::size_t) {
        unread = ended;
        is_done = true;
      });
    });
    io.restart();
    server.patience ? io.run_for(*server.patience) : io.run();
    has_timed_out = !is_done;
    if (!is_done) {
      socket->close(unread);
      io.restart();
      io.run();
      failed = asio::error::timed_out;
    }
    if (unread) check(failed ? failed : unread, "get an answer from");
    return parser.release();
  }

  void set_header(http::request_header<>& header, const std::string& method, const std::string& target) const {
    header.method_string(method);
    header.target(target);
    header.version(11);
    header.set(http::field::host, place.is_unix ? "escrowd" : place.name);
    if (!token.empty()) header.set(http::field::authorization, "Bearer " + token);
    for (const auto& [name, value] : server.headers) header.set(name, value);
  }

  // Connects first; a connection that an exchange has left in some other state than it found is not used again. The
  // server may have closed the kept one meanwhile (it was restarted): what may be asked twice then is, over a new one.
  template <typename Exchange>
  Answer over_connection(const Exchange& exchange, bool may_ask_again) {
    const bool is_kept = socket.has_value();
    if (!socket) connect();
    Response response;
    has_timed_out = false;
    try {
      response = tls ? exchange(*tls) : exchange(*socket);
    } catch (...) {
      disconnect();
      if (!is_kept || !may_ask_again || has_timed_out) throw;
      return over_connection(exchange, false);
    }
    if (!response.keep_alive()) disconnect();
    const auto type = response[http::field::content_type], software = response[http::field::server];
    Answer answer;
    answer.status = response.result_int();
    answer.content_type = std::string(type.data(), type.size());
    answer.body = std::move(response.body());
    for (const auto& field : response) {
      const auto name = field.name_string(), value = field.value();
      answer.headers.emplace_back(std::string(name.data(), name.size()), std::string(value.data(), value.size()));
    }
    answer.software = std::string(software.data(), software.size());
    return answer;
  }

  const std::string host, token;  // constant, as the next two
  const Place place;
  const Server server;
  asio::io_context io;
  ssl::context context{ssl::context::tls_client};
  std::optional<Socket> socket;
  std::optional<ssl::stream<Socket&>> tls;
  bool has_timed_out = false;  // the last exchange
};

HttpClient::HttpClient(const std::string& host, const std::string& token) : HttpClient(host, token, Server()) {}
HttpClient::HttpClient(const std::string& host, const std::string& token, Server server)
    : impl_(std::make_unique<Impl>(host, token, std::move(server))) {}

HttpClient::~HttpClient() = default;

HttpClient::Answer HttpClient::ask(const std::string& method, const std::string& target, const std::string& json) {
  SentRequest request;
  impl_->set_header(request, method, target);
  if (!json.empty()) request.set(http::field::content_type, "application/json");
  request.body() = json;
  request.prepare_payload();
  return impl_->over_connection([&](auto& stream) { return impl_->exchange(stream, request); }, method == "GET");
}

HttpClient::Answer HttpClient::upload(const std::string& target, const std::string& content_type,
                                      const std::function<void(const Send& send)>& produce) {
  UploadHeader header;
  impl_->set_header(header, "POST", target);
  header.set(http::field::content_type, content_type);
  header.chunked(true);
  return impl_->over_connection([&](auto& stream) {
    Upload upload(impl_->io, stream, *impl_->socket);
    try {
      upload.send_header(header);
      produce([&](std::string_view bytes) { upload.send(bytes); });
      upload.finish();
    } catch (const Answered&) {
      // Its answer says why.
    }
    error_code failed;
    Response response = upload.answer(failed);
    impl_->check(failed, "get an answer from");
    return response;
  }, false);
}

}  // namespace escrow::api
