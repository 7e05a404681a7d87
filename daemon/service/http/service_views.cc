// The part of ServiceSessions that looks and changes nothing: lists, changes, diffs, counts.
#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "daemon/host/file_verbs.h"
#include "daemon/host/session_access.h"
#include "daemon/service/grants.h"
#include "daemon/service/sessions/service_sessions.h"
#include "daemon/service/sessions/session_walk.h"
#include "session/transaction/commit.h"

namespace escrow::daemon {

using api::SessionResource;
using session::Errc;
using session::Error;
using session::SessionRecord;
using session::State;

namespace {

constexpr std::size_t kMaxDiffBytes = std::size_t{64} << 20;
constexpr std::size_t kMostAtOnce = 256;  // of a repository's sessions in memory

// Those with the name; without one all.
std::vector<ServiceRepositories::Entry> chosen(std::vector<ServiceRepositories::Entry> repositories,
                                               const std::optional<std::string>& name) {
  if (name) std::erase_if(repositories, [&](const auto& repository) { return repository.name != *name; });
  return repositories;
}

storage::SessionQuery query_of(const Caller& caller, const ServiceSessions::Filter& filter) {
  storage::SessionQuery query{.issuer = filter.principal, .state = filter.state, .has_ended = filter.has_ended,
                              .id_prefix = filter.id_prefix};
  if (!filter.id_prefix.empty()) {
    query.order = storage::SessionOrder::by_id;
  } else if (filter.newest_first) {
    query.order = storage::SessionOrder::newest_first;
  }
  if (!filter.after.empty()) query.after = list_position_from(filter.after, !filter.id_prefix.empty());
  if (!caller.is_operator && !caller.is_reviewer) query.issuer = caller.principal;
  // One more shows whether there is another page; what labels leave out comes in addition.
  query.limit = filter.labels.empty() ? std::min(filter.limit + 1, kMostAtOnce) : kMostAtOnce;
  return query;
}

std::string position_of(const ServiceSessions::Filter& filter, const SessionRecord& record) {
  return filter.id_prefix.empty() ? list_position(record.created, record.id) : record.id.text();
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

bool ServiceSessions::is_wanted(const Filter& filter, const SessionRecord& record) const {
  if (filter.labels.empty()) return true;
  const auto facts = store_.session(record.id);
  return facts &&
         std::includes(facts->labels.begin(), facts->labels.end(), filter.labels.begin(), filter.labels.end());
}

// An owner has at most one, so these are few.
std::vector<ServiceSessions::Found> ServiceSessions::with_external_id(const Caller& caller, const Filter& filter) {
  std::vector<Found> found;
  for (const storage::ServiceStore::SessionFacts& facts : store_.sessions_by_external_id(*filter.external_id)) {
    std::optional<Found> one = repositories_.find_session(facts.id.text());
    if (!one || !may_see(caller, *one)) continue;
    const SessionRecord& record = one->record;
    const bool is_chosen = (!filter.repository || *filter.repository == one->repository.name) &&
                           (!filter.state || record.state == *filter.state) &&
                           (!filter.has_ended || session::is_final(record.state) == *filter.has_ended) &&
                           (!filter.principal || record.options.audit.issuer == *filter.principal) &&
                           record.id.text().starts_with(filter.id_prefix) && is_wanted(filter, record);
    if (is_chosen) found.push_back(*std::move(one));
  }
  std::ranges::sort(found, {}, [&](const Found& one) { return position_of(filter, one.record); });
  if (filter.newest_first) std::ranges::reverse(found);
  std::erase_if(found, [&](const Found& one) {
    const std::string position = position_of(filter, one.record);
    return !filter.after.empty() && (filter.newest_first ? position >= filter.after : position <= filter.after);
  });
  return found;
}

ServiceSessions::Page ServiceSessions::list(const Caller& caller, const Filter& filter) {
  const storage::SessionQuery query = query_of(caller, filter);
  Page page;
  if (filter.principal && query.issuer != filter.principal) return page;  // others' sessions are not theirs to see
  std::string last;
  // False: the page is full.
  const auto add = [&](const Found& found) {
    if (page.sessions.size() == filter.limit) {
      page.next = last;
      return false;
    }
    last = position_of(filter, found.record);
    page.sessions.push_back(resource(found));
    return true;
  };
  if (filter.external_id) {
    for (const Found& found : with_external_id(caller, filter)) {
      if (!add(found)) break;
    }
    return page;
  }
  SessionWalk walk(chosen(repositories_.list(), filter.repository), query);
  for (std::size_t looked_at = 0; const std::optional<Found> found = walk.next(); ++looked_at) {
    if (looked_at == kMostLookedAt) {
      page.next = last;
      break;
    }
    if (!may_see(caller, *found) || !is_wanted(filter, found->record)) {
      last = position_of(filter, found->record);
    } else if (!add(*found)) {
      break;
    }
  }
  return page;
}

ServiceSessions::AuditPage ServiceSessions::audit(const Caller& caller, const std::string& name,
                                                  const AuditWanted& wanted) {
  check_repository(*config_.now(), caller, name);
  const ServiceRepositories::Entry repository = repositories_.find(name);
  const storage::Repository& stored = repository.context->repository();
  const session::Timestamp now = clock_.now();
  AuditPage page;
  const auto is_wanted = [&](const SessionRecord& record) {
    return may_see(caller, {.repository = repository, .record = record}) && wanted.filter.accepts(record, now);
  };
  const auto add = [&](SessionRecord record) {
    page.entries.push_back(audit_resource(stored.audit(std::move(record))));
  };
  if (wanted.filter.session) {
    auto record = repository.context->repository().catalog().find(*wanted.filter.session);
    if (record && wanted.after.empty() && is_wanted(*record)) add(*std::move(record));
    return page;
  }
  storage::SessionQuery query = wanted.filter.query(now);
  query.limit = kMostAtOnce;
  if (!wanted.after.empty()) query.after = list_position_from(wanted.after);
  if (!caller.is_operator && !caller.is_reviewer) query.issuer = caller.principal;
  std::string last;
  SessionWalk walk({repository}, query);
  for (std::size_t looked_at = 0; std::optional<Found> found = walk.next(); ++looked_at) {
    const bool is_on_page = is_wanted(found->record);
    if (looked_at == kMostLookedAt || (is_on_page && page.entries.size() == wanted.limit)) {
      page.next = last;
      break;
    }
    last = list_position(found->record.created, found->record.id);
    if (is_on_page) add(std::move(found->record));
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

ServiceSessions::Diff ServiceSessions::diff(const Caller& caller, const std::string& id,
                                            const api::DiffRequest& request) {
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
  const api::DiffEnd end = SessionAccess(*found.repository.context, id, caller.principal).diff(request, add);
  return {.text = std::move(text), .omitted = end.omitted.size() + end.unnamed};
}

api::HttpResponse ServiceSessions::metrics() {
  api::Metrics::Now now;
  for (int state = 0; state <= static_cast<int>(State::rolled_back); ++state) {
    now.sessions_by_state[name_of(static_cast<State>(state))] = 0;
  }
  for (const ServiceRepositories::Entry& repository : repositories_.list()) {
    if (!repository.context) continue;
    const storage::SessionCounts counts = repository.context->repository().counts();
    for (const auto& [state, count] : counts.by_state) now.sessions_by_state[name_of(state)] += count;
    now.denied_calls += counts.denied_calls;
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
