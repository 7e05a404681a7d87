#include "daemon/host/repository_upkeep.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/process/program_output.h"

namespace escrow::daemon {

namespace {

constexpr std::size_t kAuditedAtOnce = 1000;

session::Timestamp end_of_retention(RepositoryContext& context, std::optional<std::uint64_t> keep_s) {
  session::Timestamp time = context.clock().now();
  time.seconds -= keep_s ? static_cast<std::int64_t>(*keep_s) : context.repository().audit_retention().count();
  return time;
}

std::int64_t milliseconds_between(const session::Timestamp& earlier, const session::Timestamp& later) {
  return (later.seconds - earlier.seconds) * 1000 +
         (static_cast<std::int64_t>(later.nanoseconds) - static_cast<std::int64_t>(earlier.nanoseconds)) / 1'000'000;
}

// The repository was opened, so it is trusted, but for the programs that its configuration has git run to fetch an
// object that is missing. main() has dropped the caller's GIT_OBJECT_DIRECTORY and its kin.
storage::GitProgram git_on(const std::string& git_directory) {
  std::vector<std::string> command = {"env", "LC_ALL=C", "GIT_ALLOW_PROTOCOL=", "GIT_NO_LAZY_FETCH=1", "git",
                                      "--git-dir=" + git_directory, "-c", "safe.directory=" + git_directory};
  return [command = std::move(command)](const std::vector<std::string>& arguments) {
    std::vector<std::string> whole = command;
    whole.insert(whole.end(), arguments.begin(), arguments.end());
    ProgramOutput output = run_program(whole);
    return storage::GitOutput{output.status, std::move(output.out), std::move(output.err)};
  };
}

}  // namespace

api::GcResource collect_garbage(RepositoryContext& context, std::optional<std::uint64_t> keep_sessions_s) {
  storage::Repository& repository = context.repository();
  const session::Timestamp oldest = end_of_retention(context, keep_sessions_s);
  const std::uint64_t forgotten = repository.catalog().prune(oldest);
  const storage::GcReport report = repository.gc(git_on(repository.git_directory()), oldest);
  std::optional<api::GcResource::Holder> held_back;
  if (const auto& holder = report.held_back) held_back = {holder->session, {holder->since_s, 0}, holder->is_aside};
  return {.objects_before = report.objects_before,
          .objects_after = report.objects_after,
          .packs_before = report.packs_before,
          .packs_after = report.packs_after,
          .bytes_before = report.bytes_before,
          .bytes_after = report.bytes_after,
          .sessions_forgotten = forgotten,
          .held_back = held_back};
}

std::vector<api::Finding> verify(const storage::Repository& repository,
                                 const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  std::vector<api::Finding> findings;
  for (storage::Problem& problem : repository.verify(progress)) {
    findings.push_back({.where = std::move(problem.where), .what = std::move(problem.what)});
  }
  return findings;
}

bool AuditFilter::accepts(const session::SessionRecord& record, const session::Timestamp& now) const {
  if (!session::is_final(record.state) && record.state != session::State::awaiting_approval) return false;
  if (session && record.id != *session) return false;
  if (!branch.empty() && record.options.branch != branch) return false;
  if (since && milliseconds_between(record.changed, now) > since->count()) return false;
  return states.empty() || states.contains(record.state);
}

storage::SessionQuery AuditFilter::query(const session::Timestamp& now) const {
  storage::SessionQuery query{.limit = kAuditedAtOnce};
  if (states.size() == 1) query.state = *states.begin();
  if (since) {
    // A second more, so that accepts() decides about the last one.
    const auto whole = std::chrono::duration_cast<std::chrono::seconds>(*since).count();
    query.changed_since = session::Timestamp{now.seconds - whole - 1, 0};
  }
  return query;
}

api::AuditResource audit_resource(storage::AuditEntry entry) {
  api::AuditResource resource{.view = {.record = std::move(entry.record),
                                       .attachment = session::Attachment::none,
                                       .head = std::nullopt,
                                       .counts = std::nullopt,
                                       .usage = std::nullopt,
                                       .omitted = {}},
                              .history = {},
                              .denied_calls = entry.denied_calls};
  resource.view.counts = resource.view.record.counts;
  for (storage::Transition& step : entry.history) {
    resource.history.push_back({.time = step.time,
                                .from = step.from,
                                .to = step.to,
                                .who = std::move(step.who),
                                .why = std::move(step.why)});
  }
  return resource;
}

}  // namespace escrow::daemon
