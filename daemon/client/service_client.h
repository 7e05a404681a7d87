// What the commands with --host share: one connection to an escrowd.
//
// One per command; not thread-safe. Everything throws what HttpClient throws; what the service refuses comes as the
// Problem that it says.
#pragma once

#include <string>

#include "api/http_client.h"
#include "api/json_document.h"
#include "api/remote_documents.h"
#include "api/session_calls.h"
#include "daemon/host/global_options.h"

namespace escrow::daemon {

class ServiceClient {
 public:
  // The token comes from ESCROW_TOKEN. --repo, else ESCROW_REPO, is the name of a registered repository. Throws
  // Error{bad_request} for a host that cannot be one, or a repository that is a path.
  ServiceClient(const std::string& host, const GlobalOptions& options);

  // The body of the answer.
  std::string get(const std::string& target);
  std::string post(const std::string& target, const api::JsonObject& body);
  // HttpClient::upload(), with what is refused, too.
  api::HttpClient::Answer upload(const std::string& target, const std::string& content_type,
                                 const std::function<void(const api::HttpClient::Send& send)>& produce);
  // With what is refused, too.
  api::HttpClient::Answer ask(const std::string& method, const std::string& target, const std::string& json = {});
  // A verb of a session (session_calls.h).
  api::Answer ask(const session::SessionId& id, const api::Request& request);

  const std::string& host() const { return host_; }
  // As it was named; may be empty.
  const std::string& named_repository() const { return repository_; }
  // The named one, else the only one there is. Throws Error{bad_request} where there are none or several.
  std::string repository();

 private:
  api::HttpClient client_;
  const std::string host_, repository_;
};

}  // namespace escrow::daemon
