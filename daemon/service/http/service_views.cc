// The part of ServiceSessions that looks and changes nothing: lists, changes, diffs, counts.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <utility>

#include "daemon/host/file_verbs.h"
#include "daemon/host/session_access.h"
#include "daemon/service/sessions/service_sessions.h"
#include "session/commit.h"

namespace escrow::daemon {

using api::SessionResource;
using session::Errc;
using session::Error;
using session::SessionRecord;
using session::State;

namespace {

constexpr std::size_t kMaxDiffBytes = std::size_t{64} << 20;

// A position in the list of sessions: fixed-width, so that it sorts as text.
std::string position_of(const SessionRecord& record) {
  char text[48];
  std::snprintf(text, sizeof text, "%020lld.%09u.", static_cast<long long>(record.created.seconds),
                static_cast<unsigned>(record.created.nanoseconds));
  return text + record.id.text();
}

}  // namespace

SessionResource ServiceSessions::get(const Caller& caller, const std::string& id) { return resource(see(caller, id)); }

SessionResource ServiceSessions::status(const Caller& caller, const std::string& id) {
  const Found found = see(caller, id);
  SessionResource made = resource(found);
  if (made.view.record.state != State::open) return made;
  const SessionTryLock turn(*this, found.record.id);
  made.view = SessionAccess(*found.repository.context, id, caller.principal).status(true);
  return made;
}

ServiceSessions::Page ServiceSessions::list(const Caller& caller, const Filter& filter) {
  std::map<std::string, Found> found;  // by position
  for (const ServiceRepositories::Entry& repository : repositories_.list()) {
    if (!repository.context || (filter.repository && *filter.repository != repository.name)) continue;
    for (SessionRecord& record : repository.context->repository().catalog().list()) {
      const std::string position = position_of(record);
      const std::string& issuer = record.options.audit.issuer;
      if (position <= filter.after || !caller.may_see(record) || (filter.state && record.state != *filter.state) ||
          (filter.principal && issuer != *filter.principal)) {
        continue;
      }
      found.emplace(position, Found{.repository = repository, .record = std::move(record)});
    }
  }
  Page page;
  std::string last;
  for (const auto& [position, session] : found) {
    if (filter.external_id || !filter.labels.empty()) {
      const auto facts = store_.session(session.record.id);
      if (!facts || (filter.external_id && facts->external_id != *filter.external_id)) continue;
      if (!std::includes(facts->labels.begin(), facts->labels.end(), filter.labels.begin(), filter.labels.end())) {
        continue;
      }
    }
    if (page.sessions.size() == filter.limit) {
      page.next = last;
      break;
    }
    page.sessions.push_back(resource(session));
    last = position;
  }
  return page;
}

ServiceSessions::AuditPage ServiceSessions::audit(const Caller& caller, const std::string& name,
                                                  const AuditWanted& wanted) {
  const ServiceRepositories::Entry found = repositories_.find(name);
  const session::Timestamp now = clock_.now();
  AuditPage page;
  std::string last;
  std::size_t taken = 0;
  // Sees them oldest first, as the positions are.
  const auto is_on_page = [&](const SessionRecord& record) {
    const std::string position = position_of(record);
    if (position <= wanted.after || !caller.may_see(record) || !wanted.filter.accepts(record, now)) return false;
    if (taken == wanted.limit) {
      page.next = last;
      return false;
    }
    ++taken;
    last = position;
    return true;
  };
  for (storage::AuditEntry& entry : found.context->repository().audit(is_on_page)) {
    page.entries.push_back(audit_resource(std::move(entry)));
  }
  return page;
}

api::ChangesAnswer ServiceSessions::changes(const Caller& caller, const std::string& id) {
  const Found found = see(caller, id);
  const SessionRecord record = settled(found);
  if (session::is_final(record.state)) refuse_finished(record, "look into");
  if (record.state == State::awaiting_approval) {
    const session::ObjectReader& objects = found.repository.context->repository().objects();
    const session::SessionResult sealed = session::sealed_result(objects, record);
    return with_sizes(objects, session::tree_changes(objects, sealed.base_tree, sealed.tree));
  }
  const SessionTryLock turn(*this, found.record.id);
  return SessionAccess(*found.repository.context, id, caller.principal).changes();
}

std::string ServiceSessions::diff(const Caller& caller, const std::string& id, const api::DiffRequest& request) {
  const Found found = see(caller, id);
  const SessionRecord record = settled(found);
  if (session::is_final(record.state)) refuse_finished(record, "look into");
  // It would wait for the commit, whatever that takes, and then find nothing.
  if (record.state == State::open && busy_.lock()->contains(record.id)) refuse_busy(record.id);
  std::string text;
  const auto add = [&](std::string_view part) {
    if (text.size() + part.size() > kMaxDiffBytes) {
      throw Error(Errc::result_too_large, "the diff is larger than 64 MiB; ask for the changes, or for its summary");
    }
    text += part;
  };
  SessionAccess(*found.repository.context, id, caller.principal).diff(request, add);
  return text;
}

api::HttpResponse ServiceSessions::metrics() {
  api::Metrics::Now now;
  for (int state = 0; state <= static_cast<int>(State::rolled_back); ++state) {
    now.sessions_by_state[name_of(static_cast<State>(state))] = 0;
  }
  for (const ServiceRepositories::Entry& repository : repositories_.list()) {
    if (!repository.context) continue;
    for (const SessionRecord& record : repository.context->repository().catalog().list()) {
      ++now.sessions_by_state[name_of(record.state)];
    }
    now.denied_calls += repository.context->repository().denied_calls();
    const storage::CacheCounts cache = repository.context->repository().cache_counts();
    now.cache_hits += cache.hits;
    now.cache_misses += cache.misses;
  }
  const SessionHosts::Traffic traffic = hosts_.traffic();
  now.cache_hits += traffic.cache_hits;
  now.cache_misses += traffic.cache_misses;
  now.mounts = traffic.mounts;
  now.staged_bytes = traffic.staged_bytes;
  for (const auto& bound : fuse::kTimeBounds) now.time_bounds.push_back(std::chrono::duration<double>(bound).count());
  for (const auto& [kind, count] : traffic.operations) {
    now.operations[kind] = {count.count, {count.within.begin(), count.within.end()}, count.seconds};
  }
  return metrics_.answer(now);
}

}  // namespace escrow::daemon
