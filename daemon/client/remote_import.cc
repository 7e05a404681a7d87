#include "daemon/client/remote_import.h"

#include <utility>
#include <vector>

#include "api/http_message.h"
#include "api/remote_documents.h"
#include "daemon/import/tar_stream.h"

namespace escrow::daemon {

using api::HttpClient;

namespace {

std::string target_of(const std::string& repository, const SessionRequest& request) {
  std::string target = "/v1/repositories/" + api::percent_encoded(repository) + "/imports";
  char separator = '?';
  for (const auto& [name, text] : query_of(request))
    target += std::exchange(separator, '&') + name + "=" + api::percent_encoded(text);
  return target;
}

}  // namespace

Imported import_remotely(ServiceClient& client, const std::string& directory, const SessionRequest& request) {
  ShownWalk walk(directory);  // before the service waits for what it is sent
  WalkedDirectory walked;
  const auto produce = [&](const HttpClient::Send& send) {
    TarStream archive(send);
    walked = walk.run(archive, "");
    archive.finish();
  };
  const std::string target = target_of(client.repository(), request);
  const HttpClient::Answer answer = client.upload(target, std::string(api::kTarType), produce);
  std::vector<session::Conflict> conflicts;
  std::string document = answer.body;
  if (ServiceClient::is_refused(answer)) {
    api::RemoteProblem problem = ServiceClient::problem_of(answer);
    if (problem.conflicts.empty()) ServiceClient::refuse(problem);
    conflicts = std::move(problem.conflicts);
    document = client.get("/v1/sessions/" + problem.session);
  }
  api::RemoteSession session = api::session_from_json(document);
  Imported made{.answer = {}, .record = session.view.record, .walked = std::move(walked)};
  made.answer = api::commit_answer(std::move(session));
  if (!conflicts.empty()) made.answer.counts = {};
  made.answer.conflicts = std::move(conflicts);
  for (session::Omission& omission : made.answer.omitted) made.walked.omitted.push_back(std::move(omission));
  return made;
}

}  // namespace escrow::daemon
