#include "api/listening.h"

#include <grp.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "api/tcp_address.h"
#include "session/base/error.h"

namespace escrow::api {

namespace asio = boost::asio;
namespace ssl = asio::ssl;
using asio::generic::stream_protocol;
using UnixEndpoint = asio::local::stream_protocol::endpoint;
using TcpEndpoint = asio::ip::tcp::endpoint;
using boost::system::error_code;
using session::Errc;
using session::Error;

namespace {

[[noreturn]] void cannot_listen(const std::string& where, const std::string& why) {
  throw Error(Errc::unavailable, "cannot listen on " + where + ": " + why);
}

bool somebody_listens(const std::string& path) {
  asio::io_context context;
  asio::local::stream_protocol::socket probe(context);
  error_code failed;
  probe.connect(UnixEndpoint(path), failed);
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

void let_in(const std::string& path, const std::string& group) {
  if (!group.empty()) give_to_group(path, group);
  if (::chmod(path.c_str(), 0660) != 0) cannot_listen(path, std::strerror(errno));
}

bool listens_at(int socket, const std::string& path) {
  sockaddr_un address{};
  socklen_t size = sizeof address;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return false;
  int listens = 0;
  socklen_t length = sizeof listens;
  if (::getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens == 0) return false;
  const std::string there(address.sun_path, ::strnlen(address.sun_path, sizeof address.sun_path));
  return address.sun_family == AF_UNIX && there == path;
}

// nullopt: it is no ADDRESS:PORT.
std::optional<TcpEndpoint> parse_address(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  std::string host = text.substr(0, colon);
  const bool is_bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (is_bracketed) host = host.substr(1, host.size() - 2);
  const char* const end = text.data() + text.size();
  unsigned short port = 0;
  const auto [stopped, wrong] = std::from_chars(text.data() + colon + 1, end, port);
  error_code failed;
  const asio::ip::address address = asio::ip::make_address(host, failed);
  if (failed || wrong != std::errc() || stopped != end || port == 0 || address.is_v6() != is_bracketed) {
    return std::nullopt;
  }
  return TcpEndpoint(address, port);
}

}  // namespace

TcpAddressKind kind_of_tcp_address(const std::string& text) {
  const std::optional<TcpEndpoint> endpoint = parse_address(text);
  if (!endpoint) return TcpAddressKind::none;
  return endpoint->address().is_loopback() ? TcpAddressKind::loopback : TcpAddressKind::network;
}

Acceptor listen_on_unix(asio::io_context& io, const std::string& path, const std::string& group) {
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    cannot_listen(path, "the path is too long for a socket (unix(7)); choose one of at most " +
                            std::to_string(sizeof(sockaddr_un::sun_path) - 1) + " bytes");
  }
  remove_stale(path);
  Acceptor acceptor(io);
  error_code failed;
  acceptor.open(stream_protocol(AF_UNIX, 0), failed);
  if (failed) cannot_listen(path, failed.message());
  // Nobody but this user until it listens and the group is set: the file has the mode of the socket that is bound.
  if (::fchmod(acceptor.native_handle(), 0600) != 0) cannot_listen(path, std::strerror(errno));
  acceptor.bind(stream_protocol::endpoint(UnixEndpoint(path)), failed);
  if (!failed) acceptor.listen(asio::socket_base::max_listen_connections, failed);
  if (failed) cannot_listen(path, failed.message());
  let_in(path, group);
  return acceptor;
}

Acceptor listen_on_given(asio::io_context& io, int socket, const std::string& path, const std::string& group) {
  if (!listens_at(socket, path)) {
    cannot_listen(path, "the service manager listens elsewhere; give ListenStream= of escrowd.socket and \"socket\" of "
                        "the configuration the same path");
  }
  let_in(path, group);
  Acceptor acceptor(io);
  error_code failed;
  acceptor.assign(stream_protocol(AF_UNIX, 0), socket, failed);
  if (failed) cannot_listen(path, failed.message());
  return acceptor;
}

Acceptor listen_on_tcp(asio::io_context& io, const std::string& address) {
  const std::optional<TcpEndpoint> endpoint = parse_address(address);
  if (!endpoint) throw Error(Errc::bad_request, "'" + address + "' is not a numeric ADDRESS:PORT");
  Acceptor acceptor(io);
  error_code failed;
  acceptor.open(stream_protocol(endpoint->protocol().family(), IPPROTO_TCP), failed);
  if (!failed) acceptor.set_option(asio::socket_base::reuse_address(true), failed);
  if (!failed) acceptor.bind(stream_protocol::endpoint(*endpoint), failed);
  if (!failed) acceptor.listen(asio::socket_base::max_listen_connections, failed);
  if (failed) cannot_listen(address, failed.message());
  return acceptor;
}

ssl::context tls_context(const std::string& certificate, const std::string& key) {
  ssl::context context(ssl::context::tls_server);
  ::SSL_CTX_set_min_proto_version(context.native_handle(), TLS1_2_VERSION);
  ::SSL_CTX_set_options(context.native_handle(), SSL_OP_NO_RENEGOTIATION);
  const auto check = [](const error_code& failed, const std::string& what) {
    if (failed) throw Error(Errc::bad_request, "cannot use " + what + ": " + failed.message());
  };
  error_code failed;
  context.use_certificate_chain_file(certificate, failed);
  check(failed, "the certificate " + certificate);
  context.use_private_key_file(key, ssl::context::pem, failed);
  // Also one of another kind, which OpenSSL takes for another certificate's.
  if (!failed && ::SSL_CTX_check_private_key(context.native_handle()) != 1) {
    throw Error(Errc::bad_request, "cannot use the key " + key + ": it is not that of the certificate " + certificate);
  }
  check(failed, "the key " + key + " with the certificate " + certificate);
  return context;
}

std::string remote_network_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return {};
  if (address.ss_family == AF_INET) {
    const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(address).sin_addr;
    return {reinterpret_cast<const char*>(&ipv4), sizeof ipv4};
  }
  const auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  static constexpr std::size_t kNetwork = 8, kMapped = 12;  // of IPv6, and where a mapped IPv4 address begins
  const auto* bytes = reinterpret_cast<const char*>(&ipv6);
  if (IN6_IS_ADDR_V4MAPPED(&ipv6)) return {bytes + kMapped, sizeof ipv6 - kMapped};
  return {bytes, kNetwork};
}

void check_tls_files(const std::string& certificate, const std::string& key) { tls_context(certificate, key); }

}  // namespace escrow::api
