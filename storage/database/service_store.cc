#include "storage/database/service_store.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "storage/database/schema.h"
#include "storage/database/sqlite.h"
#include "storage/disk/byte_sources.h"

namespace escrow::storage {

using session::Errc;
using session::Error;
using session::SessionId;

namespace {

// Lists of names and values are joined with a NUL after each.
constexpr std::array<const char*, 9> kServiceMigrations = {R"(
  CREATE TABLE repository (
    name TEXT PRIMARY KEY NOT NULL, path BLOB NOT NULL UNIQUE, registered_by TEXT NOT NULL
  ) WITHOUT ROWID;
  CREATE TABLE session (
    id TEXT PRIMARY KEY NOT NULL,
    repository TEXT NOT NULL, owner TEXT NOT NULL,
    external_id TEXT, request_key TEXT,
    message BLOB NOT NULL, mountpoint BLOB NOT NULL, labels BLOB NOT NULL,
    UNIQUE (owner, external_id), UNIQUE (owner, request_key)
  ) WITHOUT ROWID;
  CREATE TABLE terms (
    session TEXT PRIMARY KEY NOT NULL,
    lease_ms INTEGER NOT NULL, lease_until_ms INTEGER, deadline_ms INTEGER, opens TEXT NOT NULL, data TEXT NOT NULL
  ) WITHOUT ROWID;
  CREATE INDEX terms_by_lease ON terms (lease_until_ms) WHERE lease_until_ms IS NOT NULL;
  CREATE INDEX terms_by_deadline ON terms (deadline_ms) WHERE deadline_ms IS NOT NULL;
  CREATE TABLE request (
    principal TEXT NOT NULL, route TEXT NOT NULL, key TEXT NOT NULL,
    body_hash BLOB NOT NULL, created_s INTEGER NOT NULL,
    status INTEGER, content_type TEXT, body BLOB, headers BLOB,
    PRIMARY KEY (principal, route, key)
  ) WITHOUT ROWID;
)",
                                                           R"(
  ALTER TABLE terms ADD COLUMN mount_options TEXT NOT NULL DEFAULT '';
  UPDATE terms SET mount_options = trim(iif(opens <> '', 'opens=' || opens, '') || iif(data <> '', ',io=' || data, ''),
                                        ',');
  ALTER TABLE terms DROP COLUMN opens;
  ALTER TABLE terms DROP COLUMN data;
)",
                                                           R"(
  UPDATE session SET request_key = CASE
    WHEN request_key LIKE 'run %' THEN '/v1/runs ' || substr(request_key, length('run ') + 1)
    ELSE '/v1/sessions ' || request_key END
  WHERE request_key IS NOT NULL AND request_key NOT LIKE '/v1/repositories/% %';
)",
                                                           R"(
  CREATE INDEX request_by_age ON request (created_s);
  CREATE INDEX session_by_repository ON session (repository);
  CREATE INDEX session_by_mountpoint ON session (mountpoint) WHERE mountpoint <> x'';
)",
                                                           R"(
  CREATE TABLE time_mark (
    number INTEGER PRIMARY KEY CHECK (number = 1),
    boot TEXT NOT NULL, since_boot_ms INTEGER NOT NULL, time_ms INTEGER NOT NULL
  );
)",
                                                           R"(
  ALTER TABLE session ADD COLUMN settled INTEGER NOT NULL DEFAULT 0;
  CREATE INDEX session_unsettled ON session (id) WHERE settled = 0;
  CREATE INDEX session_by_external_id ON session (external_id) WHERE external_id IS NOT NULL;
)",
                                                           R"(
  CREATE TABLE upkeep (
    repository TEXT PRIMARY KEY NOT NULL, gc_ms INTEGER NOT NULL, done INTEGER NOT NULL
  ) WITHOUT ROWID;
)",
                                                           R"(
  ALTER TABLE session ADD COLUMN hand TEXT NOT NULL DEFAULT '';
)",
                                                           R"(
  ALTER TABLE session ADD COLUMN ended_s INTEGER NOT NULL DEFAULT 0;
)"};

constexpr std::int32_t kServiceId = 0x65736364;  // "escd"
constexpr std::size_t kChangedAtOnce = 256;      // sessions in one transaction
constexpr std::string_view kFacts =
    "SELECT id, repository, owner, external_id, request_key, message, mountpoint, labels, hand, ended_s, settled "
    "FROM session ";

Database open_service_database(const std::string& path) {
  static const Schema schema{"service database", kServiceId, kServiceMigrations};
  return open_durable(path, schema);
}

template <typename Pairs>
std::string join(const Pairs& pairs) {
  std::string joined;
  for (const auto& [name, value] : pairs) joined += name + '\0' + value + '\0';
  return joined;
}

std::vector<std::pair<std::string, std::string>> split(const std::string& joined) {
  std::vector<std::string> texts;
  for (std::size_t start = 0; start < joined.size();) {
    const std::size_t end = std::min(joined.find('\0', start), joined.size());
    texts.push_back(joined.substr(start, end - start));
    start = end + 1;
  }
  std::vector<std::pair<std::string, std::string>> pairs;
  for (std::size_t at = 0; at + 1 < texts.size(); at += 2) pairs.emplace_back(texts[at], texts[at + 1]);
  return pairs;
}

std::string sha256(const std::string& text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned size = 0;
  if (EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1) throw std::bad_alloc();
  return std::string(reinterpret_cast<const char*>(digest.data()), size);
}

std::string sha256(const session::ByteSource& content) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned size = 0;
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  bool is_fine = context && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  for_each_piece(content, [&](std::span<const std::byte> bytes) {
    is_fine = is_fine && EVP_DigestUpdate(context.get(), bytes.data(), bytes.size()) == 1;
  });
  if (!is_fine || EVP_DigestFinal_ex(context.get(), digest.data(), &size) != 1) throw std::bad_alloc();
  return std::string(reinterpret_cast<const char*>(digest.data()), size);
}

std::optional<std::string> null_when_empty(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional(text);
}

ServiceStore::SessionFacts facts_of(const Database& database, const Statement::Run& row) {
  const std::optional<SessionId> id = SessionId::parse(row.bytes(0));
  if (!id) {
    throw Error(Errc::damaged_repository,
                "the database " + database.path() + " is damaged: it has a session '" + row.bytes(0) + "'");
  }
  ServiceStore::SessionFacts facts{.id = *id,
                                   .repository = row.bytes(1),
                                   .owner = row.bytes(2),
                                   .external_id = row.bytes(3),
                                   .request_key = row.bytes(4),
                                   .message = row.bytes(5),
                                   .mountpoint = row.bytes(6),
                                   .hand = row.bytes(8),
                                   .labels = {},
                                   .ended_s = row.integer(9),
                                   .is_settled = row.integer(10) != 0};
  for (auto& [name, value] : split(row.bytes(7))) facts.labels.emplace(std::move(name), std::move(value));
  return facts;
}

}  // namespace

struct ServiceStore::Connection {
  explicit Connection(const std::string& path) : database(open_service_database(path)) {}

  std::vector<SessionFacts> read(Statement::Run run) const {
    std::vector<SessionFacts> found;
    while (run.next()) found.push_back(facts_of(database, run));
    return found;
  }

  Database database;
  Statement read_repositories{database, "SELECT name, path FROM repository ORDER BY name"};
  Statement add_repository{database, "INSERT INTO repository (name, path, registered_by) VALUES (?, ?, ?)"};
  Statement remove_repository{database, "DELETE FROM repository WHERE name = ?"};
  Statement add_session{database,
                        "INSERT INTO session (id, repository, owner, external_id, request_key, message, mountpoint, "
                        "labels, hand) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"};
  Statement read_session{database, std::string(kFacts) + "WHERE id = ?"};
  Statement read_by_request{database, std::string(kFacts) + "WHERE owner = ? AND request_key = ?"};
  Statement read_by_external{database, std::string(kFacts) + "WHERE owner = ? AND external_id = ?"};
  Statement read_mounted{database, std::string(kFacts) +
                                       "INDEXED BY session_by_mountpoint WHERE mountpoint <> x'' ORDER BY id"};
  Statement read_of_anybody{database, std::string(kFacts) + "INDEXED BY session_by_external_id WHERE external_id = ?"};
  Statement read_unsettled{database, std::string(kFacts) + "INDEXED BY session_unsettled WHERE settled = 0 AND id > ? "
                                                           "ORDER BY id LIMIT ?"};
  Statement read_settled{database, std::string(kFacts) + "WHERE id > ? AND settled = 1 ORDER BY id LIMIT ?"};
  Statement settle{database, "UPDATE session SET settled = 1 WHERE id = ?"};
  Statement note_end{database, "UPDATE session SET ended_s = ?2 WHERE id = ?1"};
  Statement set_mountpoint{database,
                           "UPDATE session SET mountpoint = ?2, hand = ?3 "
                           "WHERE id = ?1 AND (mountpoint IS NOT ?2 OR hand <> ?3)"};
  Statement forget_session{database, "DELETE FROM session WHERE id = ?"};
  Statement set_terms{database,
                      "INSERT INTO terms (session, lease_ms, lease_until_ms, deadline_ms, mount_options) "
                      "VALUES (?, ?, nullif(?, 0), nullif(?, 0), ?)"};
  Statement read_terms{database,
                       "SELECT lease_ms, coalesce(lease_until_ms, 0), coalesce(deadline_ms, 0), mount_options FROM "
                       "terms WHERE session = ?"};
  Statement renew_lease{database,
                        "UPDATE terms SET lease_ms = iif(?2 > 0, ?2, lease_ms), "
                        "lease_until_ms = ?3 + iif(?2 > 0, ?2, lease_ms) WHERE session = ?1 AND lease_until_ms > ?3"};
  Statement renew_leases{database,
                         "UPDATE terms SET lease_until_ms = max(lease_until_ms, ?1 + lease_ms) "
                         "WHERE lease_until_ms IS NOT NULL"};
  Statement read_overdue{database,
                         "SELECT session, 1 FROM terms WHERE lease_until_ms <= ?1 UNION ALL "
                         "SELECT session, 0 FROM terms WHERE deadline_ms <= ?2"};
  Statement end_terms{database,
                      "UPDATE terms SET lease_until_ms = NULL, deadline_ms = NULL WHERE session = ?"};
  Statement set_mount_options{database,
                              "INSERT INTO terms (session, lease_ms, mount_options) VALUES (?, 0, ?) "
                              "ON CONFLICT (session) DO UPDATE SET mount_options = excluded.mount_options"};
  Statement read_time_mark{database, "SELECT boot, since_boot_ms, time_ms FROM time_mark"};
  Statement keep_time_mark{database, "REPLACE INTO time_mark VALUES (1, ?, ?, ?)"};
  Statement read_gc_marks{database, "SELECT repository, gc_ms, done FROM upkeep"};
  Statement keep_gc_mark{database, "REPLACE INTO upkeep (repository, gc_ms, done) VALUES (?, ?, ?)"};
  Statement forget_terms{database, "DELETE FROM terms WHERE session = ?"};
  Statement read_request{database,
                         "SELECT body_hash, status, content_type, body, headers FROM request "
                         "WHERE principal = ? AND route = ? AND key = ?"};
  Statement add_request{database,
                        "INSERT INTO request (principal, route, key, body_hash, created_s) VALUES (?, ?, ?, ?, ?)"};
  Statement answer_request{database,
                           "UPDATE request SET status = ?4, content_type = ?5, body = ?6, headers = ?7 "
                           "WHERE principal = ?1 AND route = ?2 AND key = ?3"};
  Statement release_request{database, "DELETE FROM request WHERE principal = ? AND route = ? AND key = ?"};
  Statement read_old_requests{database,
                              "SELECT principal, route, key FROM request WHERE created_s < ? "
                              "ORDER BY created_s LIMIT ?"};
  Statement forget_key{database,
                       "UPDATE session SET request_key = NULL WHERE owner = ?1 AND "
                       "request_key = substr(?2, length('POST ') + 1) || ' ' || ?3"};
};

ServiceStore::ServiceStore(const std::string& database_path)
    : connection_(std::make_unique<Connection>(database_path)) {}

ServiceStore::~ServiceStore() = default;

std::vector<ServiceStore::Registration> ServiceStore::repositories() const {
  auto guard = connection_.lock();
  auto run = (*guard)->read_repositories.run();
  std::vector<Registration> found;
  while (run.next()) found.push_back({run.bytes(0), run.bytes(1)});
  return found;
}

namespace {

// True: it is known as it is.
bool is_known(const std::vector<ServiceStore::Registration>& all, const ServiceStore::Registration& repository) {
  for (const auto& [name, path] : all) {
    if (name == repository.name && path == repository.path) return true;
    if (name == repository.name) {
      throw Error(Errc::exists, "the repository '" + name + "' is another one, at " + path + "; choose another name");
    }
    if (path == repository.path) {
      throw Error(Errc::exists, "the repository at " + path + " is registered already, as '" + name + "'");
    }
  }
  return false;
}

}  // namespace

void ServiceStore::check_repositories(const std::vector<Registration>& given) const {
  std::vector<Registration> known = repositories();
  for (const Registration& repository : given) {
    if (!is_known(known, repository)) known.push_back(repository);
  }
}

bool ServiceStore::add_repository(const Registration& repository, const std::string& who) {
  if (is_known(repositories(), repository)) return false;
  writes_.run(connection_, [&](Connection& connection) {
    connection.add_repository.execute(repository.name, Bytes{repository.path}, who);
  });
  return true;
}

void ServiceStore::remove_repository(const std::string& name) {
  writes_.run(connection_, [&](Connection& connection) { connection.remove_repository.execute(name); });
}

void ServiceStore::add_session(const SessionFacts& facts, const std::optional<Terms>& terms) {
  writes_.run(connection_, [&](Connection& connection) {
    if (!facts.external_id.empty()) {
      const auto known = connection.read(connection.read_by_external.run(facts.owner, facts.external_id));
      if (!known.empty()) {
        throw Error(Errc::exists, "the external id '" + facts.external_id + "' is that of session " +
                                      known.front().id.text() + " already");
      }
    }
    connection.add_session.execute(facts.id.text(), facts.repository, facts.owner, null_when_empty(facts.external_id),
                                   null_when_empty(facts.request_key), Bytes{facts.message}, Bytes{facts.mountpoint},
                                   Bytes{join(facts.labels)}, facts.hand);
    if (!terms) return;
    connection.set_terms.execute(facts.id.text(), terms->lease_ms, terms->lease_until_ms, terms->deadline_ms,
                                 terms->mount_options);
  });
}

std::optional<ServiceStore::SessionFacts> ServiceStore::session(const SessionId& id) const {
  auto guard = connection_.lock();
  std::vector<SessionFacts> found = (*guard)->read((*guard)->read_session.run(id.text()));
  return found.empty() ? std::nullopt : std::optional(std::move(found.front()));
}

std::optional<ServiceStore::SessionFacts> ServiceStore::session_by_request(const std::string& owner,
                                                                           const std::string& request_key) const {
  auto guard = connection_.lock();
  std::vector<SessionFacts> found = (*guard)->read((*guard)->read_by_request.run(owner, request_key));
  return found.empty() ? std::nullopt : std::optional(std::move(found.front()));
}

std::vector<ServiceStore::SessionFacts> ServiceStore::mounted() const {
  auto guard = connection_.lock();
  return (*guard)->read((*guard)->read_mounted.run());
}

std::vector<ServiceStore::SessionFacts> ServiceStore::sessions_by_external_id(const std::string& external_id) const {
  auto guard = connection_.lock();
  return (*guard)->read((*guard)->read_of_anybody.run(external_id));
}

std::vector<ServiceStore::SessionFacts> ServiceStore::unsettled(const std::string& after, std::size_t most) const {
  auto guard = connection_.lock();
  return (*guard)->read((*guard)->read_unsettled.run(after, static_cast<std::int64_t>(most)));
}

std::vector<ServiceStore::SessionFacts> ServiceStore::settled(const std::string& after, std::size_t most) const {
  auto guard = connection_.lock();
  return (*guard)->read((*guard)->read_settled.run(after, static_cast<std::int64_t>(most)));
}

void ServiceStore::settle(const std::vector<SessionId>& ids) {
  if (ids.empty()) return;
  writes_.run(connection_, [&](Connection& connection) {
    for (const SessionId& id : ids) connection.settle.execute(id.text());
  });
}

void ServiceStore::note_ends(const std::vector<std::pair<SessionId, std::int64_t>>& ends_s) {
  for (std::size_t first = 0; first < ends_s.size(); first += kChangedAtOnce) {
    writes_.run(connection_, [&](Connection& connection) {
      for (std::size_t at = first; at < std::min(ends_s.size(), first + kChangedAtOnce); ++at)
        connection.note_end.execute(ends_s[at].first.text(), ends_s[at].second);
    });
  }
}

void ServiceStore::set_mountpoint(const SessionId& id, const std::string& mountpoint, const std::string& hand) {
  writes_.run(connection_, [&](Connection& connection) {
    connection.set_mountpoint.execute(id.text(), Bytes{mountpoint}, hand);
  });
}

void ServiceStore::clear_mountpoints(const std::vector<SessionId>& ids) {
  writes_.run(connection_, [&](Connection& connection) {
    for (const SessionId& id : ids) connection.set_mountpoint.execute(id.text(), Bytes{""}, "");
  });
}

void ServiceStore::forget_session(const SessionId& id) { forget_sessions({id}); }

void ServiceStore::forget_sessions(const std::vector<SessionId>& ids) {
  for (std::size_t first = 0; first < ids.size(); first += kChangedAtOnce) {
    writes_.run(connection_, [&](Connection& connection) {
      for (std::size_t at = first; at < std::min(ids.size(), first + kChangedAtOnce); ++at) {
        connection.forget_session.execute(ids[at].text());
        connection.forget_terms.execute(ids[at].text());
      }
    });
  }
}

ServiceStore::Terms ServiceStore::terms(const SessionId& id) const {
  auto guard = connection_.lock();
  auto run = (*guard)->read_terms.run(id.text());
  if (!run.next()) return {};
  return {.lease_ms = static_cast<std::uint64_t>(run.integer(0)),
          .lease_until_ms = run.integer(1),
          .deadline_ms = run.integer(2),
          .mount_options = run.bytes(3)};
}

bool ServiceStore::renew_lease(const SessionId& id, std::uint64_t lease_ms, std::int64_t now_ms) {
  auto guard = connection_.lock();
  (*guard)->renew_lease.execute(id.text(), lease_ms, now_ms);
  return (*guard)->database.changes() > 0;
}

void ServiceStore::renew_all_leases(std::int64_t now_ms) { (*connection_.lock())->renew_leases.execute(now_ms); }

std::vector<ServiceStore::Overdue> ServiceStore::overdue(std::int64_t lease_now_ms, std::int64_t now_ms) const {
  auto guard = connection_.lock();
  auto run = (*guard)->read_overdue.run(lease_now_ms, now_ms);
  std::vector<Overdue> found;
  while (run.next()) {
    if (const auto id = SessionId::parse(run.bytes(0))) found.push_back({.id = *id, .is_lease = run.integer(1) != 0});
  }
  return found;
}

void ServiceStore::end_terms(const SessionId& id) { (*connection_.lock())->end_terms.execute(id.text()); }

void ServiceStore::set_mount_options(const SessionId& id, const std::string& options) {
  writes_.run(connection_, [&](Connection& connection) {
    connection.set_mount_options.execute(id.text(), options);
  });
}

std::optional<ServiceStore::TimeMark> ServiceStore::time_mark() const {
  auto guard = connection_.lock();
  auto run = (*guard)->read_time_mark.run();
  if (!run.next()) return std::nullopt;
  return TimeMark{.boot = run.bytes(0), .since_boot_ms = run.integer(1), .time_ms = run.integer(2)};
}

std::map<std::string, ServiceStore::GcMark> ServiceStore::gc_marks() const {
  auto guard = connection_.lock();
  auto run = (*guard)->read_gc_marks.run();
  std::map<std::string, GcMark> marks;
  while (run.next()) marks.emplace(run.bytes(0), GcMark{.time_ms = run.integer(1), .is_done = run.integer(2) != 0});
  return marks;
}

void ServiceStore::keep_gc_mark(const std::string& repository, const GcMark& mark) {
  writes_.run(connection_, [&](Connection& connection) {
    connection.keep_gc_mark.execute(repository, mark.time_ms, mark.is_done);
  });
}

void ServiceStore::keep_time_mark(const TimeMark& mark) {
  writes_.run(connection_, [&](Connection& connection) {
    connection.keep_time_mark.execute(mark.boot, mark.since_boot_ms, mark.time_ms);
  });
}

// As long as it lives, or until it is kept, a request is claimed by this process.
class ServiceStore::Answering {
 public:
  Answering(session::Synchronized<Claimed>& claimed, const Request& request)
      : claimed_(claimed), name_{request.principal, request.route, request.key} {}
  ~Answering() {
    if (is_mine_) claimed_.lock()->erase(name_);
  }
  Answering(const Answering&) = delete;
  Answering& operator=(const Answering&) = delete;

  // False: another thread has it.
  bool begin() { return is_mine_ = claimed_.lock()->insert(name_).second; }
  void go_on() { is_mine_ = true; }  // begun by an earlier call
  void keep() { is_mine_ = false; }

 private:
  session::Synchronized<Claimed>& claimed_;
  const std::array<std::string, 3> name_;
  bool is_mine_ = false;
};

ServiceStore::Claim ServiceStore::claim(const Request& request, std::int64_t now_s, Answer& answer) {
  const std::string hash = request.content ? sha256(*request.content) : sha256(request.body);
  Answering answering(claimed_, request);
  const bool is_mine = answering.begin();
  Claim claim = is_mine ? Claim::granted : Claim::in_flight;
  writes_.run(connection_, [&](Connection& connection) {
    auto run = connection.read_request.run(request.principal, request.route, request.key);
    if (!run.next()) {
      if (is_mine) connection.add_request.execute(request.principal, request.route, request.key, Bytes{hash}, now_s);
      return;
    }
    if (run.bytes(0) != hash) {
      claim = Claim::other_body;
      return;
    }
    if (run.is_null(1)) return;
    claim = Claim::answered;
    answer = {.status = static_cast<unsigned>(run.integer(1)),
              .content_type = run.bytes(2),
              .body = run.bytes(3),
              .headers = split(run.bytes(4))};
    if (!answer.is_final()) connection.release_request.execute(request.principal, request.route, request.key);
  });
  if (claim == Claim::granted) answering.keep();
  return claim;
}

void ServiceStore::record(const Request& request, const Answer& answer) {
  Answering answering(claimed_, request);
  answering.go_on();
  writes_.run(connection_, [&](Connection& connection) {
    connection.answer_request.execute(request.principal, request.route, request.key, static_cast<int>(answer.status),
                                      answer.content_type, Bytes{answer.body}, Bytes{join(answer.headers)});
  });
}

void ServiceStore::release(const Request& request) {
  Answering answering(claimed_, request);
  answering.go_on();
  writes_.run(connection_, [&](Connection& connection) {
    connection.release_request.execute(request.principal, request.route, request.key);
  });
}

bool ServiceStore::forget_requests(std::int64_t before_s, std::size_t most) {
  std::vector<std::array<std::string, 3>> old;
  writes_.run(connection_, [&](Connection& connection) {
    {
      auto run = connection.read_old_requests.run(before_s, static_cast<std::int64_t>(most));
      while (run.next()) old.push_back({run.bytes(0), run.bytes(1), run.bytes(2)});
    }
    for (const auto& [principal, route, key] : old) {
      connection.forget_key.execute(principal, route, key);
      connection.release_request.execute(principal, route, key);
    }
  });
  return old.size() == most;
}

}  // namespace escrow::storage
