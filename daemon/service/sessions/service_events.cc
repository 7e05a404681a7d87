#include "daemon/service/sessions/service_events.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "api/json_document.h"
#include "session/transaction/commit.h"
#include "session/trees/tree_changes.h"
#include "session/trees/tree_walk.h"

namespace escrow::daemon {

using api::JsonObject;
using session::ObjectId;
using session::SessionRecord;
using storage::EventLog;
using namespace std::chrono_literals;

namespace {

// What comes within this time is told together.
constexpr auto kEventsPause = 50ms;
// Also how long what the kernel did not tell may stay unnoticed.
constexpr auto kDenialsEvery = 1s;
constexpr std::size_t kRowsAtOnce = 1000;
constexpr std::size_t kMaxPaths = 200, kMaxPathBytes = 16384;
constexpr std::size_t kMaxDenialKinds = 10;

std::string source(const char* kind, const std::string& repository) { return std::string(kind) + ":" + repository; }
std::string head_source(const std::string& repository, const std::string& branch) {
  return "head:" + repository + ":" + branch;
}

std::vector<JsonObject> path_objects(const std::vector<std::string>& paths, bool& are_all) {
  std::vector<JsonObject> objects;
  std::size_t bytes = 0;
  for (const std::string& path : paths) {
    if (objects.size() == kMaxPaths || (bytes += path.size()) > kMaxPathBytes) {
      are_all = false;
      break;
    }
    objects.push_back(std::move(JsonObject().text("path", path)));
  }
  return objects;
}

EventLog::Event event_of(const char* type, const std::string& repository, const SessionRecord& record,
                         const JsonObject& document) {
  return {.number = 0,
          .type = type,
          .repository = repository,
          .session = record.id.text(),
          .issuer = record.options.audit.issuer,
          .document = document.text()};
}

JsonObject session_object(const std::string& repository, const SessionRecord& record, const session::Timestamp& time) {
  JsonObject object;
  object.time("time", time).text("repository", repository).text("session", record.id.text());
  object.text("branch", record.options.branch);
  return object;
}

std::optional<ObjectId> id_of(const std::string& hex) { return ObjectId::from_hex(hex); }

}  // namespace

ServiceEvents::ServiceEvents(EventLog& log, ServiceRepositories& repositories, session::Clock& clock,
                             session::Log& messages)
    : log_(log),
      repositories_(repositories),
      clock_(clock),
      messages_(messages),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  follow_repositories();
  thread_ = std::thread([this] { run(); });
}

ServiceEvents::~ServiceEvents() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof one);
  thread_.join();
}

void ServiceEvents::run() {
  auto next_denials = std::chrono::steady_clock::now();
  const int watched = shared_.lock()->watch.descriptor();
  while (true) {
    const auto left = next_denials - std::chrono::steady_clock::now();
    const auto wait = std::max(std::chrono::duration_cast<std::chrono::milliseconds>(left), 0ms);
    pollfd descriptors[] = {{stop_.get(), POLLIN, 0}, {watched, POLLIN, 0}};
    ::poll(descriptors, 2, static_cast<int>(wait.count()));
    pollfd stop{stop_.get(), POLLIN, 0};
    if (::poll(&stop, 1, static_cast<int>(kEventsPause.count())) > 0) return;
    const bool with_denials = std::chrono::steady_clock::now() >= next_denials;
    if (with_denials) next_denials = std::chrono::steady_clock::now() + kDenialsEvery;
    follow_repositories();
    const auto changed = shared_.lock()->watch.take();
    collect(changed, with_denials);
  }
}

void ServiceEvents::follow_repositories() {
  auto shared = shared_.lock();
  const std::vector<Entry> repositories = repositories_.list();
  std::erase_if(shared->followed, [&](const auto& one) {
    const bool is_there =
        std::ranges::any_of(repositories, [&](const Entry& entry) { return entry.name == one.first; });
    if (!is_there) shared->watch.remove(one.first);
    return !is_there;
  });
  for (const Entry& repository : repositories) {
    if (!repository.context || shared->followed.contains(repository.name)) continue;
    try {
      // Watched before it is read: what happens in between is seen twice, and told once.
      shared->watch.add(repository.name, repository.context->repository().git_directory());
      adopt(repository, shared->followed);
      shared->unread.insert(repository.name);
    } catch (const std::exception& failure) {
      if (shared->complained.insert(repository.name).second) {
        messages_.write(session::LogLevel::error, "there are no events of the repository '" + repository.name +
                                                      "': " + failure.what());
      }
    }
  }
}

// Where the service before this one has left off; a repository that is new begins with what it is now.
void ServiceEvents::adopt(const Entry& repository, All& all) {
  Followed followed;
  const storage::CatalogNumbers numbers = repository.context->repository().numbers();
  const auto transition = log_.position(source("transition", repository.name));
  const auto denial = log_.position(source("denial", repository.name));
  if (transition && denial) {
    // A catalog that was made anew counts from the beginning.
    followed.transition = std::min<std::int64_t>(std::stoll(*transition), numbers.transition);
    followed.denial = std::min<std::int64_t>(std::stoll(*denial), numbers.denial);
    followed.heads = log_.positions(head_source(repository.name, ""));
    all.insert_or_assign(repository.name, std::move(followed));
    return;
  }
  Positions positions = {{source("transition", repository.name), std::to_string(numbers.transition)},
                         {source("denial", repository.name), std::to_string(numbers.denial)}};
  followed.transition = numbers.transition;
  followed.denial = numbers.denial;
  for (const auto& [branch, head] : repository.context->repository().branches()) {
    followed.heads[branch] = head.hex();
    positions[head_source(repository.name, branch)] = head.hex();
  }
  log_.append({}, positions);
  all.insert_or_assign(repository.name, std::move(followed));
}

void ServiceEvents::collect(const std::map<std::string, RepositoryWatch::Changed>& changed, bool with_denials) {
  auto shared = shared_.lock();
  for (const Entry& repository : repositories_.list()) {
    const auto followed = shared->followed.find(repository.name);
    if (!repository.context || followed == shared->followed.end()) continue;
    const auto found = changed.find(repository.name);
    if (found == changed.end() && !with_denials) continue;
    try {
      RepositoryWatch::Changed now = found == changed.end() ? RepositoryWatch::Changed() : found->second;
      now.all_branches = now.all_branches || shared->unread.contains(repository.name);
      // Until it has been read.
      shared->unread.insert(repository.name);
      collect_from(repository, followed->second, now, with_denials);
      shared->unread.erase(repository.name);
      shared->complained.erase(repository.name);
    } catch (const std::exception& failure) {
      if (shared->complained.insert(repository.name).second) {
        messages_.write(session::LogLevel::error, "events of the repository '" + repository.name +
                                                      "' are late: " + failure.what());
      }
    }
  }
}

void ServiceEvents::collect_from(const Entry& repository, Followed& followed, const RepositoryWatch::Changed& changed,
                                 bool with_denials) {
  Followed next = followed;
  Round round, moves;
  // Sessions are read first and told last: who is told that a session is committed knows of its branch already.
  read_transitions(repository, next, round);
  if (with_denials) read_denials(repository, next, round);
  read_branches(repository, next, changed, moves);
  moves.events.insert(moves.events.end(), std::make_move_iterator(round.events.begin()),
                      std::make_move_iterator(round.events.end()));
  moves.positions.merge(round.positions);
  if (moves.positions.empty()) return;
  log_.append(moves.events, moves.positions);
  followed = std::move(next);
}

void ServiceEvents::read_transitions(const Entry& repository, Followed& next, Round& round) const {
  storage::Repository& stored = repository.context->repository();
  const auto rows = stored.transitions_after(next.transition, kRowsAtOnce);
  if (rows.empty()) return;
  for (const auto& [number, id, transition] : rows) {
    next.transition = number;
    const std::optional<SessionRecord> record = stored.catalog().find(id);
    if (!record) continue;  // it was forgotten meanwhile
    const auto object = [&] { return session_object(repository.name, *record, transition.time); };
    if (transition.why.starts_with(session::kMetConflicts)) {
      bool are_all = true;
      JsonObject document = object();
      document.text("state", session::name_of(transition.to)).text("who", transition.who);
      document.objects("paths", path_objects(record->conflicts, are_all)).flag("more_paths", !are_all);
      round.events.push_back(event_of("session.conflict", repository.name, *record, document));
    }
    if (transition.from == transition.to) continue;
    JsonObject document = object();
    if (transition.from) document.text("from", session::name_of(*transition.from));
    document.text("state", session::name_of(transition.to));
    // The record may have gone on since.
    if (record->state == transition.to) {
      document.text("reason", session::name_of(record->reason)).id("commit", record->commit);
    }
    document.text("who", transition.who);
    round.events.push_back(event_of("session.state", repository.name, *record, document));
  }
  round.positions[source("transition", repository.name)] = std::to_string(next.transition);
}

// One event for each session, whatever its command tries.
void ServiceEvents::read_denials(const Entry& repository, Followed& next, Round& round) const {
  storage::Repository& stored = repository.context->repository();
  std::map<session::SessionId, std::vector<session::DenialCount>> denied;
  const auto rows = stored.denials_after(next.denial, kRowsAtOnce);
  if (rows.empty()) return;
  for (const auto& [number, id, denial] : rows) {
    next.denial = number;
    denied[id].push_back(denial);
  }
  for (const auto& [id, kinds] : denied) {
    const std::optional<SessionRecord> record = stored.catalog().find(id);
    if (!record) continue;
    JsonObject document = session_object(repository.name, *record, kinds.back().last);
    std::vector<JsonObject> objects;
    for (const session::DenialCount& kind : kinds) {
      if (kind.operation.empty() || objects.size() == kMaxDenialKinds) continue;
      JsonObject one;
      one.text("operation", kind.operation).text("path", kind.path).text("rule", kind.rule).number("count", kind.count);
      objects.push_back(std::move(one));
    }
    document.flag("more_denials", objects.size() < kinds.size()).objects("denials", std::move(objects));
    round.events.push_back(event_of("session.denied", repository.name, *record, document));
  }
  round.positions[source("denial", repository.name)] = std::to_string(next.denial);
}

void ServiceEvents::read_branches(const Entry& repository, Followed& next, const RepositoryWatch::Changed& changed,
                                  Round& round) const {
  storage::Repository& stored = repository.context->repository();
  std::map<std::string, std::optional<ObjectId>> now;
  if (changed.all_branches) {
    for (const auto& [branch, head] : next.heads) now[branch] = std::nullopt;
    for (const auto& [branch, head] : stored.branches()) now[branch] = head;
  } else {
    for (const std::string& branch : changed.branches) now[branch] = stored.references().head(branch);
  }
  for (const auto& [branch, head] : now) {
    const auto known = next.heads.find(branch);
    const std::optional<ObjectId> before = known == next.heads.end() ? std::nullopt : id_of(known->second);
    if (before == head) continue;
    const session::ObjectReader& objects = stored.objects();
    std::vector<std::string> paths;
    bool are_all = true;
    try {
      are_all = session::first_changed_paths(objects, session::tree_of_commit(objects, before),
                                             session::tree_of_commit(objects, head), kMaxPaths, paths);
    } catch (const session::Error&) {
      are_all = false;  // a commit that git has pruned since
    }
    JsonObject document;
    document.time("time", clock_.now()).text("repository", repository.name).text("branch", branch);
    document.id("old", before).id("new", head);
    document.objects("paths", path_objects(paths, are_all)).flag("more_paths", !are_all);
    round.events.push_back({.number = 0, .type = "branch.updated", .repository = repository.name, .session = {},
                            .issuer = {}, .document = document.text()});
    round.positions[head_source(repository.name, branch)] = head ? head->hex() : "";
    if (head) {
      next.heads[branch] = head->hex();
    } else {
      next.heads.erase(branch);
    }
  }
}

}  // namespace escrow::daemon
