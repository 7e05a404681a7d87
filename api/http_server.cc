#include "api/http_server.h"

#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <map>
#include <memory>
#include <vector>

#include "api/http_server_impl.h"
#include "api/listening.h"

namespace escrow::api {

namespace asio = boost::asio;
using boost::system::error_code;
using namespace std::chrono_literals;

HttpServer::Impl::Impl(const Options& given, Handler to, session::Log& log_to)
    : options(given),
      handler(std::move(to)),
      log(log_to),
      content_room(options.content_directory),
      workers(options.threads) {
  if (!options.tcp.certificate.empty()) tls = tls_context(options.tcp.certificate, options.tcp.key);
  if (!options.tcp.address.empty()) {
    doors.push_back({listen_on_tcp(io, options.tcp.address), asio::steady_timer(io), true});
  }
  doors.push_back({options.given_socket >= 0
                       ? listen_on_given(io, options.given_socket, options.socket, options.group)
                       : listen_on_unix(io, options.socket, options.group),
                   asio::steady_timer(io)});
  for (std::size_t group = 0; group < options.apart.size(); ++group) apart.emplace_back(1);
  for (Door& door : doors) accept(door);
  thread = std::thread([this] { io.run(); });
}

HttpServer::Impl::~Impl() {
  asio::post(io, [this] { drain(); });
  {
    auto held = open.lock();
    all_closed.wait(held.lock(), [&] { return held->draining && held->count == 0; });
  }
  workers.join();
  for (Workers& group : apart) group.join();
  io.stop();
  thread.join();
  if (options.given_socket < 0) ::unlink(options.socket.c_str());
}

HttpServer::Impl::Workers& HttpServer::Impl::workers_for(std::string_view target) {
  const std::string_view path = target.substr(0, target.find('?'));
  auto group = apart.begin();
  for (const std::vector<std::string>& paths : options.apart) {
    if (std::ranges::find(paths, path) != paths.end()) return *group;
    ++group;
  }
  return workers;
}

void HttpServer::Impl::closed(Connection* connection) {
  connections.erase(connection);
  auto held = open.lock();
  --held->count;
  all_closed.notify_all();
}

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
    const bool is_full = door.connections >= options.max_connections && !make_room(door);
    const auto connection = std::make_shared<Connection>(*this, door, std::move(socket));
    is_full ? connection->refuse_full() : connection->start();
    if (!draining) accept(door);
  });
}

// Of those that nobody is known to need, whoever has the most of them loses the one that waits longest: many that say
// nothing keep nobody out, also where they come faster than they time out.
bool HttpServer::Impl::make_room(const Door& door) {
  std::map<std::string, std::vector<Connection*>> strangers, others;  // by peer
  for (Connection* connection : connections) {
    if (&connection->door() != &door || !connection->is_unused()) continue;
    (connection->is_known() ? others : strangers)[connection->peer()].push_back(connection);
  }
  const auto& candidates = strangers.empty() ? others : strangers;
  if (candidates.empty()) return false;
  const auto& [peer, held] = *std::max_element(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    return a.second.size() < b.second.size();
  });
  (*std::min_element(held.begin(), held.end(), [](const Connection* a, const Connection* b) {
    return a->unused_since() < b->unused_since();
  }))->close();
  return true;
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

void HttpServer::change(const Options& options) {
  std::shared_ptr<asio::ssl::context> renewed;
  if (impl_->options.tcp.certificate.empty() == options.tcp.certificate.empty() && !options.tcp.certificate.empty()) {
    renewed = std::make_shared<asio::ssl::context>(tls_context(options.tcp.certificate, options.tcp.key));
  }
  asio::post(impl_->io, [impl = impl_.get(), options, renewed = std::move(renewed)] {
    impl->options.max_body_bytes = options.max_body_bytes;
    impl->options.max_content_bytes = options.max_content_bytes;
    impl->options.max_connections = options.max_connections;
    impl->options.idle_timeout = options.idle_timeout;
    impl->options.request_timeout = options.request_timeout;
    // A connection holds what it needs of the one it came with (SSL_new(3)).
    if (renewed) impl->tls.emplace(std::move(*renewed));
  });
}

}  // namespace escrow::api
