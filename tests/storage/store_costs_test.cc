// What a call of escrowd's stores costs does not depend on how many rows there are: everybody waits for the one
// connection of a store meanwhile. Counted are the steps of SQLite's virtual machine (sqlite3_stmt_status), of every
// statement that the stores run, with a thousand rows and with a hundred thousand.
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <functional>
#include <string>

#include "storage/database/event_log.h"
#include "storage/database/run_store.h"
#include "storage/database/service_store.h"
#include "storage/database/sqlite.h"
#include "storage/database/token_store.h"
#include "storage/database/volume_store.h"
#include "tests/support/temporary_directory.h"

namespace escrow::storage {
namespace {

using session::SessionId;

constexpr int kFew = 1'000, kMany = 30'000;
constexpr std::int64_t kDay_s = 24 * 60 * 60, kNow_s = 2'000'000'000;
// More than the rows of one batch take; a look at every row of the larger tables takes more.
constexpr std::int64_t kMostSteps = 40'000;

std::int64_t steps = 0;

int count_steps(unsigned, void*, void* statement, void*) {
  steps += sqlite3_stmt_status(static_cast<sqlite3_stmt*>(statement), SQLITE_STMTSTATUS_VM_STEP, 1);
  return 0;
}

int watch(sqlite3* database, const char**, const sqlite3_api_routines*) {
  return sqlite3_trace_v2(database, SQLITE_TRACE_PROFILE, count_steps, nullptr);
}

class StoreCosts : public testing::Test {
 protected:
  StoreCosts() { sqlite3_auto_extension(reinterpret_cast<void (*)()>(watch)); }
  ~StoreCosts() override { sqlite3_reset_auto_extension(); }

  static std::int64_t steps_of(const std::function<void()>& work) {
    steps = 0;
    work();
    return steps;
  }
  std::string path(const std::string& name, int rows) const {
    return directory_.path() + "/" + name + std::to_string(rows);
  }

  support::TemporaryDirectory directory_;
};

std::string text_of(int number) {
  std::string text = std::to_string(number);
  return std::string(16 - text.size(), '0') + text;
}

SessionId id_of(int number) { return *SessionId::parse(text_of(number)); }

// As many keyed openings by one principal as `rows`, a second apart; those of the first half are older than a day.
void fill_service_store(const std::string& path, int rows) {
  ServiceStore{path};
  Database database(path, {});
  Transaction transaction(database);
  Statement add_request{database,
                        "INSERT INTO request (principal, route, key, body_hash, created_s, status, content_type, "
                        "body, headers) "
                        "VALUES ('user:mallory', 'POST /v1/sessions', ?, x'00', ?, 201, 'json', ?, x'')"};
  Statement add_session{database,
                        "INSERT INTO session (id, repository, owner, external_id, request_key, message, mountpoint, "
                        "labels) VALUES (?, 'data', 'user:mallory', ?, ?, x'', ?, x'')"};
  Statement add_terms{database,
                      "INSERT INTO terms (session, lease_ms, lease_until_ms, deadline_ms, mount_options) "
                      "VALUES (?, 0, ?, ?, '')"};
  const std::string body(500, 'x');
  for (int number = 0; number < rows; ++number) {
    const std::string key = "key-" + std::to_string(number);
    add_request.execute(key, kNow_s - kDay_s + number - rows / 2, Bytes{body});
    const bool is_open = number < 10;
    add_session.execute(text_of(number), "external-" + std::to_string(number), "/v1/sessions " + key,
                        Bytes{is_open ? "/mnt/" + key : ""});
    const auto due = is_open ? std::optional(kNow_s * 1000 + number) : std::nullopt;
    add_terms.execute(text_of(number), due, due);
  }
  transaction.commit();
}

TEST_F(StoreCosts, ForgettingOldKeysTakesTheSameShortTransactionsHoweverManyThereAre) {
  for (const int rows : {kFew, kMany}) {
    const std::string file = path("service", rows);
    fill_service_store(file, rows);
    ServiceStore store(file);
    const int old = rows / 2;
    const std::size_t at_once = 250;
    int batches = 0;
    for (bool has_more = true; has_more; ++batches) {
      const std::int64_t taken =
          steps_of([&] { has_more = store.forget_requests(kNow_s - kDay_s, at_once); });
      ASSERT_LT(taken, kMostSteps) << "batch " << batches << " with " << rows << " keys";
    }
    EXPECT_EQ(batches, old / static_cast<int>(at_once) + 1);
    // Exactly the old ones are forgotten, and their sessions are not.
    EXPECT_FALSE(store.session_by_request("user:mallory", "/v1/sessions key-" + std::to_string(old - 1)));
    EXPECT_TRUE(store.session_by_request("user:mallory", "/v1/sessions key-" + std::to_string(old)));
    EXPECT_TRUE(store.session(id_of(old - 1)));
    Database database(file, {});
    EXPECT_EQ(database.integer("SELECT count(*) FROM request"), rows - old);
    EXPECT_EQ(database.integer("SELECT count(*) FROM session WHERE request_key IS NOT NULL"), rows - old);
  }
}

TEST_F(StoreCosts, NoCallOfTheServiceStoreLooksAtAllItsRows) {
  for (const int rows : {kFew, kMany}) {
    const std::string file = path("service", rows);
    fill_service_store(file, rows);
    ServiceStore store(file);
    const auto costs_little = [&](const char* what, const std::function<void()>& work) {
      const std::int64_t taken = steps_of(work);
      EXPECT_GT(taken, 0) << what;
      EXPECT_LT(taken, 1'000) << what << " with " << rows << " rows";
    };
    const ServiceStore::Request request{.principal = "user:mallory", .route = "POST /v1/sessions", .key = "new",
                                        .body = "{}"};
    ServiceStore::Answer answer;
    costs_little("claim", [&] { store.claim(request, kNow_s, answer); });
    const ServiceStore::Answer made{.status = 201, .content_type = {}, .body = {}, .headers = {}};
    costs_little("record", [&] { store.record(request, made); });
    costs_little("claim again", [&] { store.claim(request, kNow_s, answer); });
    costs_little("release", [&] { store.release(request); });
    costs_little("add_session", [&] {
      store.add_session({.id = id_of(rows), .repository = "data", .owner = "user:mallory", .external_id = "new",
                         .request_key = "/v1/sessions new", .message = {}, .mountpoint = {}, .labels = {}},
                        ServiceStore::Terms{.lease_ms = 1000, .lease_until_ms = kNow_s * 1000, .deadline_ms = 0,
                                            .mount_options = {}});
    });
    costs_little("session", [&] { store.session(id_of(rows / 2)); });
    costs_little("session_by_request", [&] { store.session_by_request("user:mallory", "/v1/sessions key-7"); });
    costs_little("mounted", [&] { EXPECT_EQ(store.mounted().size(), 10u); });
    costs_little("set_mountpoint", [&] { store.set_mountpoint(id_of(rows / 2), "/mnt/x", "user:x"); });
    costs_little("clear_mountpoints", [&] { store.clear_mountpoints({id_of(rows / 2)}); });
    costs_little("terms", [&] { store.terms(id_of(3)); });
    costs_little("renew_lease", [&] { store.renew_lease(id_of(3), 1000, kNow_s * 1000 - 1); });
    costs_little("renew_all_leases", [&] { store.renew_all_leases(kNow_s * 1000); });
    costs_little("overdue", [&] { EXPECT_EQ(store.overdue(kNow_s * 1000 + 10, kNow_s * 1000 + 10).size(), 19u); });
    costs_little("end_terms", [&] { store.end_terms(id_of(3)); });
    costs_little("set_mount_options", [&] { store.set_mount_options(id_of(4), "io=cached"); });
    costs_little("forget_session", [&] { store.forget_session(id_of(rows)); });
    costs_little("sessions_by_external_id", [&] {
      EXPECT_EQ(store.sessions_by_external_id("external-7").size(), 1u);
    });
    costs_little("unsettled", [&] { EXPECT_EQ(store.unsettled("", 5).size(), 5u); });
    costs_little("settle", [&] { store.settle({id_of(0), id_of(1), id_of(2)}); });
    costs_little("note_ends", [&] { store.note_ends({{id_of(0), kNow_s}}); });
    EXPECT_EQ(store.session(id_of(0))->ended_s, kNow_s);
    costs_little("unsettled after some", [&] { EXPECT_EQ(store.unsettled("", 1).front().id, id_of(3)); });
    costs_little("keep_gc_mark", [&] { store.keep_gc_mark("data", {.time_ms = 1, .is_done = true}); });
    costs_little("gc_marks", [&] { EXPECT_EQ(store.gc_marks().size(), 1u); });
    costs_little("settled", [&] { EXPECT_EQ(store.settled("", 2).size(), 2u); });
  }
}

TEST_F(StoreCosts, APrefixOfTheEventLogIsReadWithoutTheOthersPositions) {
  for (const int rows : {kFew, kMany}) {
    EventLog log(path("events", rows));
    std::map<std::string, std::string> positions;
    for (int number = 0; number < rows; ++number) positions["head:other:branch-" + std::to_string(number)] = "1";
    positions["head:data:main"] = "2";
    log.append({}, positions);
    EXPECT_LT(steps_of([&] { EXPECT_EQ(log.positions("head:data:").size(), 1u); }), 1'000);
    EXPECT_LT(steps_of([&] { log.position("head:data:main"); }), 1'000);
    EXPECT_LT(steps_of([&] { log.append({}, {{"head:data:main", "3"}}); }), 1'000);
    EXPECT_LT(steps_of([&] { log.after(0, 10); }), 1'000);
  }
}

TEST_F(StoreCosts, OldEventsAreForgottenAFewAtATime) {
  for (const int rows : {kFew, kMany}) {
    EventLog log(path("old-events", rows));
    log.keep(rows);
    log.append(std::vector<EventLog::Event>(rows, {.number = 0, .type = "x", .repository = "", .session = "",
                                                   .issuer = "", .document = "{}"}), {});
    EXPECT_LT(steps_of([&] { EXPECT_FALSE(log.forget(kNow_s / 2, 100)); }), 5'000);
    bool has_more = false;
    EXPECT_LT(steps_of([&] { has_more = log.forget(kNow_s * 2, 100); }), 5'000);
    EXPECT_TRUE(has_more);
    EXPECT_EQ(log.after(0, 1).front().number, 101);
  }
}

TEST_F(StoreCosts, TheTokensThatCountAreReadWithoutTheOthers) {
  for (const int rows : {kFew, kMany}) {
    const std::string file = path("tokens", rows);
    TokenStore{file};
    {
      Database database(file, {});
      Transaction transaction(database);
      Statement add{database,
                    "INSERT INTO token (id, hash, principal, note, created_by, created_s, expires_s, ended_s) "
                    "VALUES (?, ?1, ?, '', '', 0, 2000, ?)"};
      // Every tenth is alice's; the last ten count.
      for (int number = 0; number < rows; ++number) {
        const auto ended = number < rows - 10 ? std::optional<std::int64_t>(1000 + number) : std::nullopt;
        add.execute(text_of(number), number % 10 == 0 ? "agent:alice" : "agent:bob", ended);
      }
      transaction.commit();
    }
    TokenStore store(file);
    EXPECT_LT(steps_of([&] { EXPECT_EQ(store.valid().size(), 10u); }), 1'000);
    EXPECT_LT(steps_of([&] { EXPECT_EQ(store.list_after(0, "agent:alice", false, 10).size(), 1u); }), 1'000);
    EXPECT_LT(steps_of([&] { EXPECT_EQ(store.list_after(5, "agent:alice", true, 10).size(), 10u); }), 1'000);
    EXPECT_LT(steps_of([&] { EXPECT_EQ(store.list_after(0, std::nullopt, false, 10).size(), 10u); }), 1'000);
    EXPECT_LT(steps_of([&] { EXPECT_FALSE(store.expire(1999, 10)); }), 1'000);
    EXPECT_LT(steps_of([&] { EXPECT_TRUE(store.expire(2000, 5)); }), 1'000);
    EXPECT_LT(steps_of([&] { EXPECT_TRUE(store.revoke(text_of(rows - 1), "user:root", 2000)); }), 1'000);
    EXPECT_LT(steps_of([&] { EXPECT_TRUE(store.forget(1100, 10)); }), 1'000);
    EXPECT_LT(steps_of([&] { EXPECT_EQ(store.changes_after(0, 10).size(), 6u); }), 1'000);
  }
}

TEST_F(StoreCosts, TheRunsOfAnOwnerAreReadWithoutTheOthersAndThoseThatHaveEnded) {
  for (const int rows : {kFew, kMany}) {
    const std::string file = path("runs", rows);
    RunStore{file};
    {
      Database database(file, {});
      Transaction transaction(database);
      Statement add{database,
                    "INSERT INTO run (id, repository, owner, user, uid, gid, command, mountpoint, output_bytes, "
                    "confined, network, created_s, created_ns, ended) "
                    "VALUES (?, 'data', ?, '', 0, 0, x'', x'', 0, 1, 0, ?, 0, ?)"};
      // Every tenth is alice's, of which the last three run.
      for (int number = 0; number < rows; ++number) {
        add.execute(text_of(number), number % 10 == 0 ? "user:alice" : "user:bob", number, number < rows - 30);
      }
      transaction.commit();
    }
    RunStore store(file);
    EXPECT_LT(steps_of([&] { EXPECT_EQ(store.unended_of("user:alice").size(), 3u); }), 1'000);
    EXPECT_LT(steps_of([&] { EXPECT_EQ(store.list_after({}, "user:alice", false, 10).size(), 10u); }), 1'000);
    const RunStore::Position middle{{rows / 2, 0}, ""};
    EXPECT_LT(steps_of([&] { EXPECT_EQ(store.list_after(middle, std::nullopt, false, 10).size(), 10u); }), 1'000);
    EXPECT_LT(steps_of([&] { EXPECT_EQ(store.list_after({}, "user:alice", true, 10).size(), 3u); }), 1'000);
    EXPECT_LT(steps_of([&] { EXPECT_EQ(store.list_after({}, std::nullopt, true, 10).size(), 10u); }), 1'000);
    EXPECT_LT(steps_of([&] { EXPECT_EQ(store.unended().size(), 30u); }), 2'000);
    EXPECT_LT(steps_of([&] { store.note_ended(id_of(rows - 10)); }), 1'000);
    EXPECT_LT(steps_of([&] { EXPECT_TRUE(store.ended_of("user:carol", 10).empty()); }), 1'000);
    EXPECT_LT(steps_of([&] { EXPECT_TRUE(store.find(id_of(rows - 10))->has_ended); }), 1'000);
    EXPECT_LT(steps_of([&] { store.forget(id_of(7)); }), 1'000);
    // The oldest of those that have ended, but for the ten newest.
    const std::vector<SessionId> oldest = store.ended_of("user:alice", 10);
    ASSERT_EQ(oldest.size(), static_cast<std::size_t>(rows / 10 - 2 - 10));
    EXPECT_EQ(oldest.front(), id_of(0));
  }
}

TEST_F(StoreCosts, TheMountsOfAVolumeAreReadWithoutTheOthers) {
  for (const int rows : {kFew, kMany}) {
    const std::string file = path("volumes", rows);
    VolumeStore{file};
    {
      Database database(file, {});
      Transaction transaction(database);
      Statement add{database,
                    "INSERT INTO mount VALUES (?, 'other', 'data', '', x'', 0, x'', '', '', '', 1, 0, 0, 0, 0, 0, "
                    "'none', NULL, 0, 0)"};
      for (int number = 0; number < rows; ++number) add.execute(text_of(number));
      transaction.commit();
    }
    VolumeStore store(file);
    EXPECT_LT(steps_of([&] { EXPECT_TRUE(store.mounts_of("mine").empty()); }), 1'000);
    EXPECT_LT(steps_of([&] { store.forget(id_of(7)); }), 1'000);
  }
}

}  // namespace
}  // namespace escrow::storage
