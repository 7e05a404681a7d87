// Asks an escrowd, or another server, over HTTP/1.1: on a Unix socket, or over TLS with a bearer token.
//
// One connection, kept while the server keeps it; a GET over one that the server has closed meanwhile is asked again
// over a new one. Not thread-safe; waits as long as the server works, or is told to. Throws
// Error{bad_request} for a host that cannot be one, Error{unavailable} naming the host when it cannot be reached, its
// certificate is not trusted, or it goes away before it has answered. Certificates are checked against the system's
// authorities, or those of $SSL_CERT_FILE (OpenSSL). Sources: RFC 9110, RFC 9112, RFC 6750.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/http_message.h"

namespace escrow::api {

class HttpClient {
 public:
  // `host`: unix:///PATH, https://NAME[:PORT], or http://ADDRESS:PORT of this machine alone. `token` may be empty.
  HttpClient(const std::string& host, const std::string& token);
  struct Server {
    std::string name = "escrowd";                     // in messages
    std::optional<std::chrono::milliseconds> patience{};  // for one answer; nullopt: endless
    std::vector<std::pair<std::string, std::string>> headers{};  // further ones, of each request
  };
  HttpClient(const std::string& host, const std::string& token, Server server);
  ~HttpClient();

  struct Answer : HttpResponse {
    std::string software;  // as the server calls itself ("Server"); empty: it does not
  };
  // `json` is the body; empty: none. `target` is percent-encoded.
  Answer ask(const std::string& method, const std::string& target, const std::string& json = {});
  // A POST whose body is sent in chunks (RFC 9112, section 7.1) while `produce` makes it, of any length: kept nowhere.
  // A server that answers before it has all of it (a refusal) ends that: `send` then throws through `produce`, which
  // lets it pass, and the answer is returned. What `produce` throws breaks the request off.
  using Send = std::function<void(std::string_view)>;
  Answer upload(const std::string& target, const std::string& content_type,
                const std::function<void(const Send& send)>& produce);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace escrow::api
