// What every SessionCatalog does: the fake in memory and SQLite's.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "session/base/error.h"
#include "storage/database/sqlite_session_catalog.h"
#include "tests/support/fake_catalog.h"
#include "tests/support/sample_record.h"
#include "tests/support/temporary_directory.h"

namespace escrow {
namespace {

using session::DenialCount;
using session::Errc;
using session::Error;
using session::SessionId;
using session::SessionRecord;
using session::State;
using support::describe;
using support::sample_record;

struct CatalogImplementation {
  const char* name;
  std::unique_ptr<session::SessionCatalog> (*make)(const std::string& directory);
};

const CatalogImplementation kCatalogs[] = {
    {"Fake",
     [](const std::string&) -> std::unique_ptr<session::SessionCatalog> {
       return std::make_unique<support::FakeCatalog>();
     }},
    {"Sqlite",
     [](const std::string& directory) -> std::unique_ptr<session::SessionCatalog> {
       return std::make_unique<storage::SqliteSessionCatalog>(directory + "/catalog.db");
     }},
};

SessionId id(const char* text) { return *SessionId::parse(text); }

template <typename Action>
std::optional<Errc> refusal(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  return std::nullopt;
}

class CatalogContract : public testing::TestWithParam<CatalogImplementation> {
 protected:
  session::SessionCatalog& catalog() { return *catalog_; }

  const SessionId a_ = id("aaaa000000000000");
  const SessionId b_ = id("aaab000000000000");

 private:
  support::TemporaryDirectory directory_;
  std::unique_ptr<session::SessionCatalog> catalog_ = GetParam().make(directory_.path());
};

TEST_P(CatalogContract, EveryFieldOfARecordComesBack) {
  SessionRecord record = sample_record(a_);
  catalog().insert(record);
  ASSERT_TRUE(catalog().find(a_));
  EXPECT_EQ(describe(*catalog().find(a_)), describe(record));

  record.state = State::committing;
  record.reason = session::Reason::success;
  record.commit = record.swap_from = record.base;
  record.base.reset();
  record.exit_code.reset();
  record.swap_to = session::ObjectId();
  record.mountpoint = record.message = "";
  record.conflicts = {};
  catalog().transition(State::open, record, "user:alice", "exit status 0");
  EXPECT_EQ(describe(*catalog().find(a_)), describe(record));
}

TEST_P(CatalogContract, AnUpdateThatKeepsConflictsIsKnownWhileItIsUnderWay) {
  SessionRecord record = sample_record(a_);
  record.updating_to = record.base;
  catalog().insert(record);
  EXPECT_EQ(catalog().find(a_)->updating_to, record.base);
  EXPECT_TRUE(catalog().find(a_)->updating_keeps);
  record.updating_to.reset();
  record.updating_keeps = false;
  catalog().transition(State::open, record, "update", "onto the new head");
  EXPECT_FALSE(catalog().find(a_)->updating_to);
  EXPECT_FALSE(catalog().find(a_)->updating_keeps);
}

TEST_P(CatalogContract, TheSessionsThatResumeOneAreFound) {
  SessionRecord older = sample_record(a_), newer = sample_record(b_);
  older.resumes.reset();
  catalog().insert(older);
  EXPECT_TRUE(catalog().resumed_as(a_).empty());
  newer.resumes = a_;
  catalog().insert(newer);
  EXPECT_EQ(catalog().resumed_as(a_), std::vector{b_});
  EXPECT_TRUE(catalog().resumed_as(b_).empty());
  EXPECT_EQ(describe(*catalog().find(a_)), describe(older)) << "the older one's row stays as it is";
}

TEST_P(CatalogContract, ANoteChangesARowWithinItsState) {
  SessionRecord record = sample_record(a_);
  catalog().insert(record);
  record.mountpoint = "/elsewhere";
  catalog().note(record, "host", "mounted");
  EXPECT_EQ(describe(*catalog().find(a_)), describe(record));
  record.state = State::committed;
  EXPECT_EQ(refusal([&] { catalog().note(record, "host", "mounted"); }), Errc::wrong_state);
  EXPECT_EQ(catalog().find(a_)->state, State::open);
}

TEST_P(CatalogContract, ARemarkChangesNoRowWhateverItsStateIs) {
  SessionRecord record = sample_record(a_);
  EXPECT_EQ(refusal([&] { catalog().remark(a_, {7, 8}, "user:alice", "looked"); }), Errc::no_session);
  catalog().insert(record);
  catalog().remark(a_, {7, 8}, "user:alice", "looked");
  record.state = State::committed;
  catalog().transition(State::open, record, "user:alice", "committed");
  catalog().remark(a_, {9, 0}, "user:bob", "looked");
  EXPECT_EQ(describe(*catalog().find(a_)), describe(record));
}

TEST_P(CatalogContract, AnUnknownSessionIsNotFound) {
  EXPECT_FALSE(catalog().find(a_));
  EXPECT_TRUE(catalog().list().empty());
  EXPECT_EQ(refusal([&] { catalog().transition(State::open, sample_record(a_), "who", "why"); }), Errc::no_session);
}

TEST_P(CatalogContract, ASessionIsInsertedOnce) {
  catalog().insert(sample_record(a_));
  EXPECT_EQ(refusal([&] { catalog().insert(sample_record(a_)); }), Errc::exists);
}

TEST_P(CatalogContract, SessionsAreFoundByAPrefix) {
  catalog().insert(sample_record(a_));
  catalog().insert(sample_record(b_));
  EXPECT_EQ(catalog().find_by_prefix("aaa").size(), 2u);
  EXPECT_EQ(catalog().find_by_prefix("aaab"), std::vector{b_});
  EXPECT_EQ(catalog().find_by_prefix(b_.text()), std::vector{b_});
  EXPECT_EQ(catalog().find_by_prefix("").size(), 2u);
  for (const char* none : {"b", "AAA", "aaa%", "a*", "aaab0000000000000", "zz"})
    EXPECT_TRUE(catalog().find_by_prefix(none).empty()) << none;
}

TEST_P(CatalogContract, TheListIsOldestFirst) {
  SessionRecord young = sample_record(a_), old = sample_record(b_);
  young.created = {50, 1};
  old.created = {50, 0};
  catalog().insert(young);
  catalog().insert(old);
  ASSERT_EQ(catalog().list().size(), 2u);
  EXPECT_EQ(catalog().list()[0].id, b_);
}

TEST_P(CatalogContract, ATransitionFromAnotherStateIsRefusedAndChangesNothing) {
  SessionRecord record = sample_record(a_);
  catalog().insert(record);
  record.state = State::committed;
  EXPECT_EQ(refusal([&] { catalog().transition(State::committing, record, "who", "why"); }), Errc::wrong_state);
  EXPECT_EQ(catalog().find(a_)->state, State::open);
}

TEST_P(CatalogContract, AFinalStateIsNeverLeft) {
  SessionRecord record = sample_record(a_);
  catalog().insert(record);
  record.state = State::rolled_back;
  catalog().transition(State::open, record, "who", "why");
  record.state = State::open;
  EXPECT_EQ(refusal([&] { catalog().transition(State::rolled_back, record, "who", "why"); }), Errc::wrong_state);
  EXPECT_EQ(catalog().find(a_)->state, State::rolled_back);
}

TEST_P(CatalogContract, PruningForgetsOldFinalSessionsOnly) {
  SessionRecord record = sample_record(a_);
  record.changed = {200, 0};
  catalog().insert(record);
  record.id = b_;
  catalog().insert(record);
  record.state = State::committed;
  catalog().transition(State::open, record, "who", "why");
  catalog().prune({200, 0});
  EXPECT_EQ(catalog().list().size(), 2u);
  catalog().prune({200, 1});
  ASSERT_EQ(catalog().list().size(), 1u);
  EXPECT_EQ(catalog().list()[0].id, a_);
}

TEST_P(CatalogContract, DenialsAreCountedByKindAndKeptWithinBounds) {
  catalog().insert(sample_record(a_));
  EXPECT_TRUE(catalog().denials(a_).empty());
  const DenialCount one{"open", "x\xff/y", "policy 1, rule 1: deny x", 2, {10, 1}, {20, 0}};
  const DenialCount two{"unlink", "x", "policy 1, default: deny", 1, {5, 0}, {5, 0}};
  catalog().add_denials(a_, {one, two});
  EXPECT_EQ(catalog().denials(a_), (std::vector{two, one})) << "in the order in which they came";
  catalog().add_denials(a_, {{one.operation, one.path, one.rule, 3, {30, 0}, {40, 0}}});
  EXPECT_EQ(catalog().denials(a_)[1], (DenialCount{one.operation, one.path, one.rule, 5, {10, 1}, {40, 0}}));
  EXPECT_TRUE(catalog().denials(b_).empty());

  std::vector<DenialCount> storm;
  for (int i = 0; i < 1500; ++i) storm.push_back({"open", std::to_string(i), "rule", 1, {50, 0}, {60, 0}});
  catalog().add_denials(a_, storm);
  catalog().add_denials(a_, {{"", "", "", 7, {70, 0}, {80, 0}}, one});
  const std::vector<DenialCount> kept = catalog().denials(a_);
  ASSERT_EQ(kept.size(), session::kMaxDenials + 1);
  std::uint64_t total = 0;
  for (const DenialCount& row : kept) {
    total += row.count;
    if (row.operation.empty()) { EXPECT_EQ(row.count, 502u + 7u); }
  }
  EXPECT_EQ(total, 6u + 1500u + 7u + 2u);
}

TEST_P(CatalogContract, DenialsGoWithTheirSession) {
  SessionRecord record = sample_record(a_);
  catalog().insert(record);
  catalog().add_denials(a_, {{"open", "x", "rule", 1, {1, 0}, {1, 0}}});
  record.state = State::rolled_back;
  catalog().transition(State::open, record, "who", "why");
  EXPECT_EQ(catalog().denials(a_).size(), 1u) << "an audit asks for them";
  catalog().prune({1'000'000'000'000, 0});
  EXPECT_TRUE(catalog().denials(a_).empty());
}

INSTANTIATE_TEST_SUITE_P(, CatalogContract, testing::ValuesIn(kCatalogs),
                         [](const auto& chosen) { return std::string(chosen.param.name); });

}  // namespace
}  // namespace escrow
