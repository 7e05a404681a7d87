#include "daemon/client/remote_sessions.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <utility>

#include "api/json_document.h"
#include "api/remote_documents.h"
#include "api/text_bytes.h"
#include "daemon/client/service_client.h"
#include "session/base/error.h"
#include "session/interfaces/session_catalog.h"

namespace escrow::daemon {

using api::HttpClient;
using session::Errc;
using session::Error;

namespace {

constexpr std::size_t kPage = 1000;
constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

class RemoteSessions final : public SessionSource {
 public:
  RemoteSessions(const std::string& host, const GlobalOptions& options) : client_(host, options) {}

  std::vector<api::SessionView> unended() override { return list("&ended=false", kNoLimit).views; }
  Ended ended(std::size_t most) override { return list("&ended=true&order=newest", most); }

  Id resolve(const std::string& text) override {
    if (std::optional<Id> whole = Id::parse(text)) return *std::move(whole);
    std::vector<api::SessionView> found;
    if (!text.empty() && text.find_first_not_of("0123456789abcdef") == std::string::npos && text.size() < Id::kSize) {
      found = list("&id_prefix=" + text, session::kMostByPrefix).views;
    }
    if (found.size() == 1) return found.front().record.id;
    if (found.empty()) {
      throw Error(Errc::no_session, "there is no session '" + text + "' that you may see at " + client_.host() +
                                        "; escrow sessions lists those there are");
    }
    std::string names;
    for (const api::SessionView& view : found) names += (names.empty() ? "" : ", ") + view.record.id.text();
    throw Error(Errc::ambiguous_session, "'" + text + "' is the beginning of several sessions: " + names +
                                             "; give more of the id");
  }

  api::SessionView status(const Id& id) override {
    return ask<api::SessionView>(id, api::StatusRequest{.with_changes = true});
  }

  api::CommitAnswer commit(const Id& id, const api::CommitRequest& request) override {
    return ask<api::CommitAnswer>(id, request);
  }

  api::RollbackAnswer rollback(const Id& id, bool keep_result) override {
    return ask<api::RollbackAnswer>(id, api::RollbackRequest{.keep_result = keep_result});
  }

  api::CommitAnswer approve(const Id& id, const session::Approval& approval) override {
    api::JsonObject body;
    body.text("result", whole_result(id, approval.result));
    if (!approval.review.comment.empty()) body.text("comment", approval.review.comment);
    if (!approval.message.empty()) body.text("message", approval.message);
    const HttpClient::Answer answer = client_.ask("POST", path_of(id) + "/approve", body.text());
    if (api::is_refused(answer)) return refused_approval(api::problem_of(answer));
    return api::commit_answer(api::session_from_json(answer.body));
  }

  api::RollbackAnswer reject(const Id& id, const std::string& comment) override {
    api::JsonObject body;
    if (!comment.empty()) body.text("comment", comment);
    api::RemoteSession session = api::session_from_json(client_.post(path_of(id) + "/reject", body));
    return {.state = session.view.record.state,
            .reason = session.view.record.reason,
            .warning = std::move(session.warning)};
  }

  api::UpdateAnswer update(const Id& id) override { return ask<api::UpdateAnswer>(id, api::UpdateRequest{}); }

  api::DiscardAnswer discard(const Id& id, const std::vector<std::string>& paths) override {
    return ask<api::DiscardAnswer>(id, api::DiscardRequest{.paths = paths});
  }

  std::vector<session::Omission> diff(const Id& id, const api::DiffRequest& request,
                                      const std::function<void(std::string_view)>& out) override {
    const api::SessionRequestLine line = api::call_of(id, request);
    const HttpClient::Answer answer = client_.ask(line.method, line.target);
    const auto end = std::get<api::DiffEnd>(api::answer_of(request, answer));
    out(answer.body);
    return end.unnamed == 0 ? std::vector<session::Omission>() : status(id).omitted;
  }

  std::string unmount(const Id& id) override {
    const auto before = ask<api::SessionView>(id, api::StatusRequest{});
    if (before.attachment == session::Attachment::none) {
      throw Error(Errc::wrong_state, "session " + id.text() + " is not mounted");
    }
    client_.ask(id, api::UnmountRequest{});
    return before.record.mountpoint;
  }

  api::ResolveAnswer settle(const Id& id, const std::vector<std::string>& paths, session::Settle how) override {
    return ask<api::ResolveAnswer>(id, api::ResolveRequest{.paths = paths, .how = how});
  }
  Resumed resume(const Id& id) override {
    std::vector<Id> earlier;
    if (const auto before = ask<api::SessionView>(id, api::StatusRequest{}).resumed_as) earlier.push_back(*before);
    const api::RemoteSession opened = api::session_from_json(client_.post(path_of(id) + "/resume", {}));
    const api::SessionView now = status(opened.view.record.id);
    return {.record = now.record,
            .counts = now.counts.value_or(session::ChangeCounts{}),
            .earlier = std::move(earlier)};
  }
  session::SessionRecord fork(const Id&) override { refuse_elsewhere("fork"); }
  std::vector<Id> forks_of(const Id&) override { return {}; }  // they cannot be made there
  void export_state(const Id&, const std::function<void(std::string_view)>&) override { refuse_elsewhere("export"); }
  session::SessionRecord import_state(
      const std::string&, const std::function<void(const std::function<void(std::string_view)>&)>&) override {
    refuse_elsewhere("import-session");
  }
  api::SavepointsAnswer savepoint(const Id& id, const api::SavepointRequest& request) override {
    return ask<api::SavepointsAnswer>(id, request);
  }
  api::MountsAnswer mounts(const Id& id, const api::MountsRequest& request) override {
    return ask<api::MountsAnswer>(id, request);
  }

  void log(const std::string& branch, const std::string& path,
           const std::function<bool(const storage::LogEntry&)>& visit) override {
    const std::string base = repository_path() + "/log?limit=100";
    std::string cursor;
    do {
      std::string target = base + (branch.empty() ? "" : "&branch=" + api::percent_encoded(branch)) +
                           (path.empty() ? "" : "&path=" + api::percent_encoded(path));
      if (!cursor.empty()) target += "&cursor=" + api::percent_encoded(cursor);
      api::RemoteCommits page = api::commits_from_json(client_.get(target));
      for (api::CommitResource& one : page.commits) {
        if (!visit({.id = one.id,
                    .commit = std::move(one.commit),
                    .trailers = std::move(one.trailers),
                    .is_claimed = one.is_claimed}))
          return;
      }
      cursor = std::move(page.next);
    } while (!cursor.empty());
  }

  std::vector<api::AuditResource> audit(const AuditFilter& filter) override {
    std::string target = repository_path() + "/audit?limit=" + std::to_string(kPage);
    if (filter.session) target += "&session=" + filter.session->text();
    if (!filter.branch.empty()) target += "&branch=" + api::percent_encoded(filter.branch);
    if (filter.since) target += "&since_ms=" + std::to_string(filter.since->count());
    std::string states;
    for (const session::State one : filter.states) states += (states.empty() ? "" : ",") + std::string(name_of(one));
    if (!states.empty()) target += "&states=" + states;
    std::vector<api::AuditResource> entries;
    api::RemoteAudit page;
    do {
      page = api::audit_from_json(
          client_.get(target + (page.next.empty() ? "" : "&cursor=" + api::percent_encoded(page.next))));
      std::move(page.entries.begin(), page.entries.end(), std::back_inserter(entries));
    } while (!page.next.empty());
    return entries;
  }

  api::GcResource gc() override { return api::gc_from_json(client_.post(repository_path() + "/gc", {})); }

  std::vector<api::Finding> verify(const std::function<void(std::uint64_t, std::uint64_t)>&) override {
    return api::findings_from_json(client_.post(repository_path() + "/verify", {}));
  }

  // The service does it by itself.
  void tidy() noexcept override {}

 private:
  [[noreturn]] static void refuse_elsewhere(const char* command) {
    throw Error(Errc::bad_request, std::string("escrow ") + command +
                                       " works on the machine of the repository only: run it there, without --host");
  }

  // At most `most`, as the query has it.
  Ended list(const std::string& query, std::size_t most) {
    Ended listed;
    std::string cursor;
    do {
      const std::size_t left = most - listed.views.size();
      std::string target = "/v1/sessions?limit=" + std::to_string(std::min(kPage, left)) + query;
      if (const std::string& name = client_.named_repository(); !name.empty())
        target += "&repository=" + api::percent_encoded(name);
      if (!cursor.empty()) target += "&cursor=" + api::percent_encoded(cursor);
      api::RemoteSessions page = api::sessions_from_json(client_.get(target));
      for (api::RemoteSession& one : page.sessions) {
        one.view.denials.reset();  // a list here does not count them, nor ask each host how its mount works
        one.view.io.reset();
        listed.views.push_back(std::move(one.view));
      }
      cursor = std::move(page.next);
    } while (!cursor.empty() && listed.views.size() < most);
    listed.are_all = cursor.empty();
    return listed;
  }
  std::string repository_path() { return "/v1/repositories/" + api::percent_encoded(client_.repository()); }
  static std::string path_of(const Id& id) { return "/v1/sessions/" + id.text(); }

  template <typename Answer>
  Answer ask(const Id& id, const api::Request& request) {
    return std::get<Answer>(client_.ask(id, request));
  }
  // A conflict, or a result that has another id now, is an answer; everything else is thrown.
  static api::CommitAnswer refused_approval(const api::Problem& problem) {
    const std::optional<session::ObjectId> result = session::ObjectId::from_hex(problem.member("result"));
    if (problem.conflicts().empty() && !result) throw api::Problem(problem);
    api::CommitAnswer answer;
    answer.state = session::State::awaiting_approval;
    answer.result = result;
    answer.conflicts = problem.conflicts();
    return answer;
  }

  // What a reviewer approves they have named, there as here; the service takes whole ids alone.
  std::string whole_result(const Id& id, const std::string& named) {
    if (named.empty()) {
      throw Error(Errc::bad_request, "with --host, say what you have looked at: --result ID, as `escrow status " +
                                         id.text() + "` shows it");
    }
    if (session::ObjectId::from_hex(named)) return named;
    const std::optional<session::ObjectId> result = ask<api::SessionView>(id, api::StatusRequest{}).record.result;
    if (named.size() >= session::kShortestResultId && result && result->hex().starts_with(named)) return result->hex();
    throw Error(Errc::wrong_state, "cannot approve " + named + ": the result of session " + id.text() + " is " +
                                       (result ? result->hex() : "none"));
  }

  ServiceClient client_;
};

}  // namespace

std::string service_host(const GlobalOptions& options) {
  if (!options.host.empty()) return options.host;
  const char* value = std::getenv("ESCROW_HOST");
  return value == nullptr ? "" : value;
}

std::unique_ptr<SessionSource> remote_sessions(const std::string& host, const GlobalOptions& options) {
  return std::make_unique<RemoteSessions>(host, options);
}

}  // namespace escrow::daemon
