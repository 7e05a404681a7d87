#include "daemon/remote_import.h"

#include <chrono>
#include <utility>
#include <vector>

#include "api/http_message.h"
#include "api/remote_documents.h"
#include "daemon/tar_stream.h"
#include "session/duration.h"

namespace escrow::daemon {

using api::HttpClient;

namespace {

std::string target_of(const std::string& repository, const std::string& message, const SessionArguments& arguments) {
  std::string target = "/v1/repositories/" + api::percent_encoded(repository) + "/imports";
  char separator = '?';
  const auto add = [&](const char* name, const std::string& value) {
    if (value.empty()) return;
    target += std::exchange(separator, '&') + std::string(name) + "=" + api::percent_encoded(value);
  };
  add("branch", arguments.branch);
  add("path_prefix", arguments.path_prefix);
  add("message", message);
  add("run_as", arguments.committer);
  add("image", arguments.image);
  add("trigger", arguments.trigger);
  add("trigger_id", arguments.trigger_id);
  if (arguments.require_approval) add("require_approval", "true");
  if (!arguments.approval_expires.empty()) {
    const auto expires = session::parse_duration(arguments.approval_expires, "--approval-expires");
    add("approval_expires_s", std::to_string(std::chrono::ceil<std::chrono::seconds>(expires).count()));
  }
  return target;
}

}  // namespace

Imported import_remotely(ServiceClient& client, const std::string& directory, const std::string& message,
                         const SessionArguments& arguments) {
  ShownWalk walk(directory);  // before the service waits for what it is sent
  WalkedDirectory walked;
  const auto produce = [&](const HttpClient::Send& send) {
    TarStream archive(send);
    walked = walk.run(archive, "");
    archive.finish();
  };
  const std::string target = target_of(client.repository(), message, arguments);
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
