#include "daemon/client/service_client.h"

#include <cstdlib>
#include <utility>
#include <vector>

#include "session/base/error.h"

namespace escrow::daemon {

using api::HttpClient;
using session::Errc;
using session::Error;

namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

ServiceClient::ServiceClient(const std::string& host, const GlobalOptions& options)
    : client_(host, environment("ESCROW_TOKEN")),
      host_(host),
      repository_(options.repository.empty() ? environment("ESCROW_REPO") : options.repository) {
  if (repository_.find('/') != std::string::npos) {
    throw Error(Errc::bad_request, "with --host, --repo (or ESCROW_REPO) is the name under which the repository is "
                                   "registered there, not a path: '" + repository_ + "'");
  }
}

HttpClient::Answer ServiceClient::ask(const std::string& method, const std::string& target, const std::string& json) {
  return client_.ask(method, target, json);
}

api::Answer ServiceClient::ask(const session::SessionId& id, const api::Request& request) {
  const api::SessionRequestLine line = api::call_of(id, request);
  return api::answer_of(request, client_.ask(line.method, line.target, line.json));
}

std::string ServiceClient::get(const std::string& target) {
  HttpClient::Answer answer = client_.ask("GET", target);
  if (api::is_refused(answer)) throw api::Problem(api::problem_of(answer));
  return std::move(answer.body);
}

std::string ServiceClient::post(const std::string& target, const api::JsonObject& body) {
  HttpClient::Answer answer = client_.ask("POST", target, body.text());
  if (api::is_refused(answer)) throw api::Problem(api::problem_of(answer));
  return std::move(answer.body);
}

HttpClient::Answer ServiceClient::upload(const std::string& target, const std::string& content_type,
                                         const std::function<void(const HttpClient::Send& send)>& produce) {
  return client_.upload(target, content_type, produce);
}

std::string ServiceClient::repository() {
  if (!repository_.empty()) return repository_;
  const std::vector<std::string> names = api::repositories_from_json(get("/v1/repositories"));
  if (names.size() == 1) return names.front();
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  throw Error(Errc::bad_request, names.empty() ? "no repository is registered at " + host_
                                               : "several repositories are registered at " + host_ + ": " + all +
                                                     "; name one with --repo");
}

}  // namespace escrow::daemon
