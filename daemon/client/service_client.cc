#include "daemon/client/service_client.h"

#include <cstdlib>
#include <utility>
#include <vector>

#include "daemon/process/exit_status.h"
#include "session/base/error.h"

namespace escrow::daemon {

using api::HttpClient;
using session::Errc;
using session::Error;

namespace {

constexpr unsigned kFirstRefusal = 300;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Errc errc_of(const api::RemoteProblem& problem) {
  switch (problem.exit_code) {
    case kExitRefused:
      return Errc::wrong_state;
    case kExitUsage:
      return Errc::bad_request;
    case kExitConflict:
      return Errc::conflict;
    default:
      return Errc::unavailable;
  }
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

bool ServiceClient::is_refused(const HttpClient::Answer& answer) { return answer.status >= kFirstRefusal; }

api::RemoteProblem ServiceClient::problem_of(const HttpClient::Answer& answer) {
  if (answer.content_type == "application/problem+json") return api::problem_from_json(answer.body);
  throw Error(Errc::unavailable, "what answers there is no escrowd: it said " + std::to_string(answer.status));
}

void ServiceClient::refuse(const api::RemoteProblem& problem) { throw Error(errc_of(problem), problem.detail); }

std::string ServiceClient::get(const std::string& target) {
  HttpClient::Answer answer = client_.ask("GET", target);
  if (is_refused(answer)) refuse(problem_of(answer));
  return std::move(answer.body);
}

std::string ServiceClient::post(const std::string& target, const api::JsonObject& body) {
  HttpClient::Answer answer = client_.ask("POST", target, body.text());
  if (is_refused(answer)) refuse(problem_of(answer));
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
