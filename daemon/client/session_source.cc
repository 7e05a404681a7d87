#include "daemon/client/session_source.h"

#include <algorithm>
#include <utility>

#include "daemon/client/remote_sessions.h"
#include "daemon/host/config.h"
#include "daemon/host/fork_parents.h"
#include "daemon/host/policy_files.h"
#include "daemon/host/repository_context.h"
#include "daemon/host/session_access.h"
#include "daemon/host/session_git.h"
#include "session/base/error.h"
#include "session/base/repo_path.h"
#include "storage/staging/staged_state_file.h"

namespace escrow::daemon {
namespace {

constexpr std::size_t kSessionsAtOnce = 1000;

class LocalSessions final : public SessionSource {
 public:
  explicit LocalSessions(const GlobalOptions& options) : context_(options), place_(options.repository) {}

  std::vector<api::SessionView> unended() override {
    std::vector<api::SessionView> views;
    visit({.has_ended = false, .limit = kSessionsAtOnce}, [&](session::SessionRecord& record) {
      views.push_back(view(record));
      return true;
    });
    return views;
  }
  Ended ended(std::size_t most) override {
    Ended ended;
    const storage::SessionQuery newest{.order = storage::SessionOrder::newest_first,
                                       .has_ended = true,
                                       .limit = std::min(most, kSessionsAtOnce)};
    visit(newest, [&](session::SessionRecord& record) {
      ended.are_all = ended.views.size() < most;
      if (ended.are_all) ended.views.push_back(view(record));
      return ended.are_all;
    });
    return ended;
  }
  Id resolve(const std::string& text) override { return recovered().sessions().resolve(text); }
  api::SessionView status(const Id& id) override { return access(id).status(true); }
  api::CommitAnswer commit(const Id& id, const api::CommitRequest& request) override {
    return access(id).commit(request);
  }
  api::RollbackAnswer rollback(const Id& id, bool keep_result) override { return access(id).rollback(keep_result); }
  api::CommitAnswer approve(const Id& id, const session::Approval& approval) override {
    session::Approval own = approval;
    own.review.reviewer = current_principal();
    return access(id).approve(own);
  }
  api::RollbackAnswer reject(const Id& id, const std::string& comment) override {
    return access(id).reject({.reviewer = current_principal(), .comment = comment}, session::Reason::rejected);
  }
  api::UpdateAnswer update(const Id& id) override { return access(id).update(); }
  api::DiscardAnswer discard(const Id& id, const std::vector<std::string>& paths) override {
    return access(id).discard(paths);
  }
  api::ResolveAnswer settle(const Id& id, const std::vector<std::string>& paths, session::Settle how) override {
    return access(id).settle(paths, how);
  }
  Resumed resume(const Id& id) override {
    std::vector<Id> earlier = recovered().repository().catalog().resumed_as(id);
    const std::unique_ptr<session::Session> made =
        context_.sessions().resume(id, current_principal(), {.prepare = with_git_inside()});
    return {.record = made->record(),
            .counts = session::count_changes(made->preview().changes),
            .earlier = std::move(earlier)};
  }
  session::SessionRecord fork(const Id& id) override {
    recovered();
    return open_fork(context_, id, {}, current_principal())->record();
  }
  std::vector<Id> forks_of(const Id& id) override { return context_.repository().catalog().forks_of(id); }
  api::SavepointsAnswer savepoint(const Id& id, const api::SavepointRequest& request) override {
    return access(id).savepoint(request);
  }
  api::MountsAnswer mounts(const Id& id, const api::MountsRequest& request) override {
    return access(id).mounts(request);
  }
  std::vector<session::Omission> diff(const Id& id, const api::DiffRequest& request,
                                      const std::function<void(std::string_view)>& out) override {
    SessionAccess session = access(id);
    return session.omitted(session.diff(request, out));
  }
  void export_state(const Id& id, const std::function<void(std::string_view)>& out) override {
    access(id).export_state(out);
  }
  session::SessionRecord import_state(
      const std::string& branch,
      const std::function<void(const std::function<void(std::string_view)>&)>& feed) override {
    return recovered()
        .sessions()
        .open_from_staged_state(branch, current_principal(),
                                [&](session::StagedParts& to) {
                                  storage::StagedStateReader reader(to);
                                  feed([&](std::string_view bytes) { reader.feed(bytes); });
                                  reader.finish();
                                },
                                [git_inside = with_git_inside()](const auto& directory, const auto& options) {
                                  compile_policies(options.policies);  // throws for what is none
                                  git_inside(directory, options);
                                })
        ->record();
  }
  std::string unmount(const Id& id) override { return access(id).unmount(); }

  void log(const std::string& branch, const std::string& path,
           const std::function<bool(const storage::LogEntry&)>& visit) override {
    storage::Repository& repository = context_.repository();
    const std::string name = branch.empty() ? context_.references().default_branch() : branch;
    if (!repository.references().head(name)) {
      throw session::Error(session::Errc::no_branch,
                           "there is no branch " + session::quote_path(name) + ", or it has no commit yet");
    }
    repository.log(name, path, visit);
  }

  std::vector<api::AuditResource> audit(const AuditFilter& filter) override {
    std::vector<api::AuditResource> resources;
    const session::Timestamp now = context_.clock().now();
    const auto add = [&](session::SessionRecord& record) {
      if (filter.accepts(record, now)) {
        resources.push_back(audit_resource(context_.repository().audit(std::move(record))));
      }
      return true;
    };
    if (!filter.session) {
      visit(filter.query(now), add);
    } else if (auto record = recovered().repository().catalog().find(*filter.session)) {
      add(*record);
    }
    return resources;
  }
  api::GcResource gc() override { return collect_garbage(recovered()); }
  // Of what is there: nothing is recovered first.
  std::vector<api::Finding> verify(const std::function<void(std::uint64_t, std::uint64_t)>& progress) override {
    return daemon::verify(context_.repository(), progress);
  }

  void tidy() noexcept override { context_.tidy(); }

 private:
  // Page by page, until `take` returns false.
  void visit(storage::SessionQuery query, const std::function<bool(session::SessionRecord&)>& take) {
    for (std::size_t found = query.limit; found == query.limit;) {
      std::vector<session::SessionRecord> page = recovered().repository().sessions(query);
      found = page.size();
      if (found > 0) query.after = {page.back().created, page.back().id.text()};
      for (session::SessionRecord& record : page) {
        if (!take(record)) return;
      }
    }
  }
  api::SessionView view(const session::SessionRecord& record) {
    return {.record = record,
            .attachment = context_.sessions().attachment(record),
            .head = context_.repository().references().head(record.options.branch),
            .counts = record.counts,
            .usage = std::nullopt,
            .omitted = {}};
  }
  RepositoryContext& recovered() {
    if (!is_recovered_) context_.recover();
    is_recovered_ = true;
    return context_;
  }
  SessionAccess access(const Id& id) { return SessionAccess(recovered(), id.text()); }

  // As a session has it that is opened to be mounted.
  session::PrepareFor with_git_inside() {
    return [this](const std::string& directory, const session::SessionOptions& options) {
      if (const auto git = git_terms("", true, options, context_.repository(), place_)) note_git_terms(directory, *git);
    };
  }

  RepositoryContext context_;
  const std::string place_;  // of the repository, as it was named
  bool is_recovered_ = false;
};

}  // namespace

void discard_forks(SessionSource& sessions, const session::SessionId& id) {
  for (const session::SessionId& fork : sessions.forks_of(id)) {
    discard_forks(sessions, fork);
    sessions.rollback(fork, false);
  }
}

std::unique_ptr<SessionSource> session_source(const GlobalOptions& options) {
  const std::string host = service_host(options);
  if (!host.empty()) return remote_sessions(host, options);
  return std::make_unique<LocalSessions>(options);
}

}  // namespace escrow::daemon
