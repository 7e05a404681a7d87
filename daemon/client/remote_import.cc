#include "daemon/client/remote_import.h"

#include <functional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "api/http_message.h"
#include "api/remote_documents.h"
#include "api/text_bytes.h"
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

struct SentFile {
  std::string path;
  std::uint64_t bytes = 0;
};

// Notes what is sent: the service, which knows what the branch tracks, leaves some of it out.
class NotingVisitor final : public DirectoryVisitor {
 public:
  NotingVisitor(DirectoryVisitor& inner, std::vector<SentFile>& sent) : inner_(inner), sent_(sent) {}
  void leaf(const std::string& path, session::GitMode mode, const session::ByteSource& content) override {
    inner_.leaf(path, mode, content);
    sent_.push_back({path, mode == session::GitMode::symlink ? 0 : content.size()});
  }
  void enter(const std::string& path) override { inner_.enter(path); }
  void leave(const std::string& path) override { inner_.leave(path); }

 private:
  DirectoryVisitor& inner_;
  std::vector<SentFile>& sent_;
};

void take_off_left_out(DirectorySize& size, const std::vector<SentFile>& sent,
                       const std::vector<session::Omission>& omitted) {
  std::set<std::string, std::less<>> left_out;
  for (const session::Omission& one : omitted) left_out.insert(one.path);
  if (left_out.empty()) return;
  for (const SentFile& file : sent) {
    const std::string_view path = file.path;
    bool is_left_out = left_out.contains(path);
    for (std::size_t slash = path.find('/'); !is_left_out && slash != path.npos; slash = path.find('/', slash + 1))
      is_left_out = left_out.contains(path.substr(0, slash));
    if (!is_left_out) continue;
    size.files -= 1;
    size.bytes -= file.bytes;
  }
}

}  // namespace

Imported import_remotely(ServiceClient& client, const std::string& directory, const SessionRequest& request) {
  ShownWalk walk(directory);  // before the service waits for what it is sent
  WalkedDirectory walked;
  std::vector<SentFile> sent;
  const auto produce = [&](const HttpClient::Send& send) {
    TarStream archive(send);
    NotingVisitor noting(archive, sent);
    walked = walk.run(noting, "");
    archive.finish();
  };
  const std::string target = target_of(client.repository(), request);
  const HttpClient::Answer answer = client.upload(target, std::string(api::kTarType), produce);
  std::vector<session::Conflict> conflicts;
  std::string document = answer.body;
  if (api::is_refused(answer)) {
    const api::Problem problem = api::problem_of(answer);
    if (problem.conflicts().empty()) throw api::Problem(problem);
    conflicts = problem.conflicts();
    document = client.get("/v1/sessions/" + problem.member("session"));
  }
  api::RemoteSession session = api::session_from_json(document);
  Imported made{.answer = {}, .record = session.view.record, .walked = std::move(walked)};
  made.answer = api::commit_answer(std::move(session));
  if (!conflicts.empty()) made.answer.counts = {};
  made.answer.conflicts = std::move(conflicts);
  take_off_left_out(made.walked.size, sent, made.answer.omitted);
  for (session::Omission& omission : made.answer.omitted) made.walked.omitted.push_back(std::move(omission));
  return made;
}

}  // namespace escrow::daemon
