// The bytes of one accepted connection: a Unix or TCP socket, bare or under TLS, behind one type, as Beast and Asio
// take it (AsyncReadStream, AsyncWriteStream). Only for the .cc files of api/.
//
// Used on one thread. The socket and the TLS context outlive every operation. Errors are error codes.
#pragma once

#include <poll.h>

#include <array>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <optional>
#include <utility>

namespace escrow::api {

class ByteStream {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;
  using executor_type = Socket::executor_type;
  using error_code = boost::system::error_code;

  // Without TLS `tls` is null.
  ByteStream(Socket socket, boost::asio::ssl::context* tls) : socket_(std::move(socket)) {
    if (tls != nullptr) tls_.emplace(socket_, *tls);
  }

  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  executor_type get_executor() { return socket_.get_executor(); }
  int native_handle() { return socket_.native_handle(); }
  bool has_tls() const { return tls_.has_value(); }

  // Only with TLS, and before anything else.
  template <typename Handler>
  void async_handshake(Handler&& handler) {
    tls_->async_handshake(boost::asio::ssl::stream_base::server, std::forward<Handler>(handler));
  }
  template <typename Buffers, typename Handler>
  void async_read_some(const Buffers& buffers, Handler&& handler) {
    if (tls_) return tls_->async_read_some(buffers, std::forward<Handler>(handler));
    socket_.async_read_some(buffers, std::forward<Handler>(handler));
  }
  template <typename Buffers, typename Handler>
  void async_write_some(const Buffers& buffers, Handler&& handler) {
    if (tls_) return tls_->async_write_some(buffers, std::forward<Handler>(handler));
    socket_.async_write_some(buffers, std::forward<Handler>(handler));
  }

  // Tells the peer that nothing more comes; `handler` is called without arguments, and what the peer still sends can be
  // thrown away with async_discard_some().
  template <typename Handler>
  void async_end_output(Handler handler) {
    const auto end = [this, handler = std::move(handler)](const error_code&) {
      error_code ignored;
      socket_.shutdown(Socket::shutdown_send, ignored);
      handler();
    };
    if (tls_) return tls_->async_shutdown(end);
    boost::asio::post(socket_.get_executor(), [end] { end(error_code()); });
  }
  template <typename Handler>
  void async_discard_some(Handler&& handler) {
    socket_.async_read_some(boost::asio::buffer(scrap_), std::forward<Handler>(handler));
  }

  // Whether the peer has closed its end, read or not.
  bool peer_is_gone() {
    pollfd watched{socket_.native_handle(), POLLRDHUP, 0};
    return ::poll(&watched, 1, 0) > 0;
  }
  // Whether the peer can take no answer any more; one that only sends no more can. On any thread, while no operation is
  // under way. Of a peer over TCP that has closed its end this is not known before something is sent to it.
  bool takes_no_answer() {
    pollfd watched{socket_.native_handle(), 0, 0};
    return ::poll(&watched, 1, 0) > 0;
  }
  // Whether there is something to read now.
  bool has_bytes() {
    error_code failed;
    return socket_.available(failed) > 0;
  }
  void cancel() {
    error_code ignored;
    socket_.cancel(ignored);
  }
  void close() {
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  Socket socket_;
  std::optional<boost::asio::ssl::stream<Socket&>> tls_;
  std::array<char, 1024> scrap_;
};

using Acceptor = boost::asio::basic_socket_acceptor<boost::asio::generic::stream_protocol>;

}  // namespace escrow::api
