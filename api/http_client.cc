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
#include <cctype>
#include <optional>
#include <utility>

#include "api/tcp_address.h"
#include "session/error.h"

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
using Request = http::request<http::string_body>;
using Response = http::response<http::string_body>;

// Far above what any answer has, so that a server gone mad cannot fill the memory.
constexpr std::uint64_t kMaxAnswerBytes = std::uint64_t{1} << 30;

struct Place {
  bool is_unix = false, has_tls = false;
  std::string path;        // of a Unix socket
  std::string name, port;  // else
};

[[noreturn]] void refuse(const std::string& host, const std::string& why) {
  throw Error(Errc::bad_request, "'" + host + "' is no host: " + why +
                                     "; give unix:///PATH or https://NAME[:PORT]");
}

Place place_of(const std::string& host) {
  static constexpr std::string_view kUnix = "unix://", kTls = "https://", kPlain = "http://";
  if (host.starts_with(kUnix)) {
    Place place{.is_unix = true, .path = host.substr(kUnix.size())};
    if (!place.path.starts_with('/')) refuse(host, "the path of the socket is not absolute");
    return place;
  }
  Place place{.has_tls = host.starts_with(kTls)};
  if (!place.has_tls && !host.starts_with(kPlain)) refuse(host, "it begins with neither unix:// nor https://");
  std::string authority = host.substr(place.has_tls ? kTls.size() : kPlain.size());
  if (authority.ends_with('/')) authority.pop_back();
  if (!place.has_tls && kind_of_tcp_address(authority) != TcpAddressKind::loopback) {
    refuse(host, "without TLS a token could be read on its way");
  }
  const std::size_t bracket = authority.find(']');
  const std::size_t colon = authority.find(':', bracket == std::string::npos ? 0 : bracket);
  place.name = authority.substr(0, colon);
  place.port = colon == std::string::npos ? "443" : authority.substr(colon + 1);
  const bool is_bracketed = place.name.starts_with('[') && place.name.ends_with(']');
  if (is_bracketed) place.name = place.name.substr(1, place.name.size() - 2);
  if (place.name.empty() || place.port.empty() || authority.find('/') != std::string::npos) {
    refuse(host, "it is not a name with or without a port");
  }
  return place;
}

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
    ::SSL_set_tlsext_host_name(tls->native_handle(), place.name.c_str());
    tls->handshake(ssl::stream_base::client, failed);
    check(failed, "speak TLS with");
  }

  void disconnect() {
    tls.reset();
    socket.reset();
  }

  template <typename Stream>
  Response exchange(Stream& stream, const Request& request) {
    beast::flat_buffer buffer;
    http::response_parser<http::string_body> parser;
    parser.body_limit(kMaxAnswerBytes);
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
    if (!is_done) {
      socket->close(unread);
      io.restart();
      io.run();
      failed = asio::error::timed_out;
    }
    if (unread) check(failed ? failed : unread, "get an answer from");
    return parser.release();
  }

  const std::string host, token;  // constant, as the next two
  const Place place;
  const Server server;
  asio::io_context io;
  ssl::context context{ssl::context::tls_client};
  std::optional<Socket> socket;
  std::optional<ssl::stream<Socket&>> tls;
};

HttpClient::HttpClient(const std::string& host, const std::string& token) : HttpClient(host, token, Server()) {}
HttpClient::HttpClient(const std::string& host, const std::string& token, Server server)
    : impl_(std::make_unique<Impl>(host, token, std::move(server))) {}

HttpClient::~HttpClient() = default;

HttpClient::Answer HttpClient::ask(const std::string& method, const std::string& target, const std::string& json) {
  Request request;
  request.method_string(method);
  request.target(target);
  request.version(11);
  request.set(http::field::host, impl_->place.is_unix ? "escrowd" : impl_->place.name);
  if (!impl_->token.empty()) request.set(http::field::authorization, "Bearer " + impl_->token);
  if (!json.empty()) request.set(http::field::content_type, "application/json");
  request.body() = json;
  request.prepare_payload();
  if (!impl_->socket) impl_->connect();
  Response response;
  try {
    response = impl_->tls ? impl_->exchange(*impl_->tls, request) : impl_->exchange(*impl_->socket, request);
  } catch (...) {
    impl_->disconnect();
    throw;
  }
  if (!response.keep_alive()) impl_->disconnect();
  const auto type = response[http::field::content_type], software = response[http::field::server];
  return {.status = response.result_int(),
          .content_type = std::string(type.data(), type.size()),
          .body = std::move(response.body()),
          .software = std::string(software.data(), software.size())};
}

std::string percent_encoded(const std::string& bytes) {
  static constexpr std::string_view kDigits = "0123456789ABCDEF", kPlain = "-._~";
  std::string text;
  for (const char letter : bytes) {
    const auto byte = static_cast<unsigned char>(letter);
    if ((byte < 0x80 && std::isalnum(byte) != 0) || kPlain.find(letter) != std::string_view::npos) {
      text += letter;
      continue;
    }
    text += '%';
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace escrow::api
