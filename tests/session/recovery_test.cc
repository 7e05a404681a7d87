// What recovery does with what a dead process left, beyond the commit steps (commit_test.cc): with fakes.
#include "session/transaction/recovery.h"

#include <gtest/gtest.h>

#include "session/base/error.h"
#include "session/transaction/session_manager.h"
#include "session/trees/tree_walk.h"
#include "tests/session/fake_services.h"
#include "tests/support/journal_rows.h"

namespace escrow::session {
namespace {

class RecoveryOf : public testing::Test {
 protected:
  SessionRecord row(State state, bool ephemeral) {
    SessionRecord record{SessionId::generate()};
    record.options.branch = "main";
    record.options.audit.committer = "user:alice";
    record.options.ephemeral = ephemeral;
    record.state = state;
    return record;
  }
  std::vector<std::string> recover() {
    return recover_sessions(world_.services(), [](const SessionRecord&, SessionDirectory&) -> SessionResult {
      throw Error(Errc::input_output, "nobody keeps a result here");
    });
  }
  SessionRecord now(const SessionRecord& record) { return *world_.catalog.find(record.id); }

  support::FakeWorld world_;
};

TEST_F(RecoveryOf, AnOpeningThatWasCutShortRemovesItsDirectoryAndPin) {
  const SessionId id = SessionId::generate();
  const ObjectId base = world_.push("main", {{"a", "1"}});
  auto held = world_.directories.create(id);
  EXPECT_TRUE(recover().empty()) << "while it is locked its row may still come";
  world_.references.pin_base(id, base);
  EXPECT_TRUE(recover().empty());
  held.reset();
  EXPECT_EQ(recover().size(), 1u);
  EXPECT_TRUE(world_.directories.list().empty());
  EXPECT_FALSE(world_.references.is_pinned(id));
  EXPECT_TRUE(recover().empty());
}

TEST_F(RecoveryOf, AnOpeningThatWasCutShortBehindItsRowLeavesAnOpenSession) {
  SessionRecord record = row(State::open, false);
  record.base = world_.push("main", {{"a", "1"}});
  world_.references.pin_base(record.id, *record.base);
  world_.directories.create(record.id);
  world_.catalog.insert(record);
  EXPECT_TRUE(recover().empty());
  SessionManager(world_.services()).attach(record.id);
  EXPECT_TRUE(world_.directories.was_opened(record.id)) << "what is staged from now on would go with the catalog";
}

TEST_F(RecoveryOf, AnOpeningThatIsNotRecordedLeavesNothing) {
  world_.push("main", {{"a", "1"}});
  SessionManager manager(world_.services());
  SessionRecord record = row(State::open, false);
  record.options.audit.issuer = "user:alice";
  bool was_marked = true;
  world_.catalog.before_write = [&] {
    was_marked = world_.directories.was_opened(record.id);
    throw Error(Errc::no_space, "the disk is full");
  };
  EXPECT_THROW(manager.open(record.options, false, record.id), Error);
  EXPECT_FALSE(was_marked) << "killed here, it would be set aside and hold back gc";
  EXPECT_TRUE(world_.directories.list().empty());
}

// With a new catalog, or an older copy of it.
TEST_F(RecoveryOf, ASessionWithoutARowIsSetAsideAndComesBackWithItsRow) {
  SessionRecord record = row(State::open, false);
  record.base = world_.push("main", {{"a", "1"}});
  world_.references.pin_base(record.id, *record.base);
  {
    const auto held = world_.directories.create(record.id);
    JournalBatch batch;
    batch.nodes = {support::sample_node(5)};
    held->journal().append(batch);
    held->opened();
  }
  recover();
  recover();
  ASSERT_EQ(world_.log.lines().size(), 1u) << "it is said once";
  EXPECT_TRUE(world_.directories.list().empty());
  EXPECT_EQ(world_.directories.list_aside(), std::vector{record.id});
  EXPECT_TRUE(world_.references.is_pinned(record.id, *record.base));
  world_.catalog.insert(record);
  recover();
  recover();
  EXPECT_EQ(world_.log.lines().size(), 2u);
  EXPECT_TRUE(world_.directories.list_aside().empty());
  EXPECT_EQ(world_.directories.try_open(record.id)->journal().load().nodes.size(), 1u);
  EXPECT_EQ(now(record).state, State::open);
}

TEST_F(RecoveryOf, AnEndedSessionIsNotBroughtBack) {
  SessionRecord record = row(State::open, false);
  {
    const auto held = world_.directories.create(record.id);
    held->opened();
    world_.references.keep_result(record.id, world_.push("main", {{"a", "1"}}));
  }
  recover();
  ASSERT_EQ(world_.log.lines().size(), 1u) << "its result waits for an approval, or for a person";
  record.state = State::rolled_back;
  world_.catalog.insert(record);
  EXPECT_TRUE(recover().empty());
  EXPECT_EQ(world_.directories.list_aside(), std::vector{record.id});
  EXPECT_TRUE(world_.references.result(record.id));
}

// Its files are another session's, which still has them.
TEST_F(RecoveryOf, AForkThatWasCutShortIsRemovedWithItsCopies) {
  {
    const auto held = world_.directories.create(SessionId::generate());
    JournalBatch batch;
    batch.nodes = {support::sample_node(5)};
    held->journal().append(batch);
  }
  EXPECT_EQ(recover().size(), 1u);
  EXPECT_TRUE(world_.directories.list().empty());
  EXPECT_TRUE(world_.directories.list_aside().empty());
}

TEST_F(RecoveryOf, AFinalSessionWhoseCleanUpWasCutShortIsCleaned) {
  const ObjectId base = world_.push("main", {{"a", "1"}});
  for (const State state : {State::committed, State::commit_failed, State::rolled_back}) {
    const SessionRecord record = row(state, false);
    world_.directories.create(record.id);
    world_.references.pin_base(record.id, base);
    if (state != State::rolled_back) world_.references.keep_result(record.id, base);
    world_.catalog.insert(record);
    recover();
    EXPECT_TRUE(world_.directories.list().empty());
    EXPECT_FALSE(world_.references.is_pinned(record.id));
    EXPECT_EQ(world_.references.result(record.id).has_value(), state == State::commit_failed)
        << "the result of a failed commit is what is left of it";
  }
}

TEST_F(RecoveryOf, ACommittingRowWhoseObjectsAreGoneIsOpenAgain) {
  SessionRecord record = row(State::committing, true);
  record.base = record.swap_from = world_.push("main", {{"a", "1"}});
  record.swap_to = ObjectId::from_hex("1234567890123456789012345678901234567890");
  world_.references.pin_base(record.id, *record.base);
  world_.directories.create(record.id);
  world_.catalog.insert(record);
  EXPECT_EQ(recover().size(), 1u);
  EXPECT_EQ(now(record).state, State::open);
  EXPECT_FALSE(now(record).last_error.empty());
  EXPECT_EQ(world_.references.head("main"), record.swap_from);
  EXPECT_TRUE(recover().empty()) << "an orphan with an error keeps its work";
}

TEST_F(RecoveryOf, ACommitDeepBelowTheHeadIsFound) {
  SessionRecord record = row(State::committing, true);
  record.base = record.swap_from = world_.push("main", {{"a", "1"}});
  record.swap_to = world_.push("main", {{"a", "2"}});
  for (int i = 0; i < 50; ++i) world_.push("main", {{"a", "2"}, {"n", std::to_string(i)}});
  world_.references.expire_reflogs();
  const auto head = world_.references.head("main");
  world_.directories.create(record.id);
  world_.catalog.insert(record);
  recover();
  EXPECT_EQ(now(record).state, State::committed);
  EXPECT_EQ(now(record).commit, record.swap_to);
  EXPECT_EQ(world_.references.head("main"), head);
}

TEST_F(RecoveryOf, TheWalkEndsAtTheHeadTheCommitWasMadeOn) {
  for (int i = 0; i < 100; ++i) world_.push("main", {{"a", std::to_string(i)}});
  SessionRecord record = row(State::committing, false);
  record.base = record.swap_from = world_.references.head("main");
  record.swap_to = ObjectId::from_hex("1234567890123456789012345678901234567890");
  world_.push("main", {{"a", "other"}});
  const auto before = world_.objects.reads().commits;
  EXPECT_FALSE(swap_landed(world_.services(), record));
  EXPECT_EQ(world_.objects.reads().commits - before, 1u);
}

TEST_F(RecoveryOf, AHeldSessionIsNotTouched) {
  SessionRecord record = row(State::committing, true);
  record.base = record.swap_from = world_.push("main", {{"a", "1"}});
  record.swap_to = record.base;
  const auto held = world_.directories.create(record.id);
  world_.catalog.insert(record);
  EXPECT_TRUE(recover().empty());
  EXPECT_EQ(now(record).state, State::committing);
}

TEST_F(RecoveryOf, ASessionWhoseDirectoryIsMissingIsGivenUp) {
  world_.push("main", {{"a", "1"}});
  const SessionRecord record = row(State::open, true);
  world_.catalog.insert(record);
  EXPECT_EQ(recover().size(), 1u);
  EXPECT_EQ(now(record).state, State::rolled_back);
  EXPECT_EQ(now(record).last_error, "its directory is missing");
}

TEST_F(RecoveryOf, OneThatCannotBeBroughtBackIsNotTakenForMissing) {
  SessionRecord record = row(State::committing, true);
  record.base = record.swap_from = world_.push("main", {{"a", "1"}});
  world_.directories.create(record.id)->set_aside();
  world_.catalog.insert(record);
  world_.directories.cannot_bring_back = true;
  EXPECT_EQ(recover().size(), 1u) << "that it cannot";
  EXPECT_EQ(now(record).state, State::committing);
  world_.directories.cannot_bring_back = false;
  recover();
  EXPECT_EQ(now(record).state, State::open);
}

// The pin of a fresh session is not on disk by its name when the session is open.
TEST_F(RecoveryOf, AnOpenSessionWhosePinThePowerTookIsPinnedAgain) {
  SessionRecord record = row(State::open, false);
  record.base = world_.push("main", {{"a", "1"}});
  auto held = world_.directories.create(record.id);
  world_.catalog.insert(record);
  EXPECT_TRUE(recover().empty()) << "who holds it pins for it";
  EXPECT_FALSE(world_.references.is_pinned(record.id));
  held.reset();
  EXPECT_EQ(recover().size(), 1u);
  EXPECT_TRUE(world_.references.is_pinned(record.id, *record.base));
  EXPECT_EQ(now(record).state, State::open);
  EXPECT_TRUE(recover().empty());
}

TEST_F(RecoveryOf, ADamagedPinDoesNotKeepTheOthersFromBeingRecovered) {
  SessionRecord broken = row(State::open, false);
  broken.base = world_.push("main", {{"a", "1"}});
  const SessionRecord fine = row(State::open, true);
  for (const SessionRecord& record : {broken, fine}) {
    world_.directories.create(record.id);
    world_.catalog.insert(record);
  }
  world_.references.unreadable_pin = broken.id;
  EXPECT_EQ(recover().size(), 2u);
  EXPECT_EQ(now(fine).state, State::rolled_back);
  EXPECT_EQ(now(broken).state, State::open);
}

TEST_F(RecoveryOf, ADamagedSessionDoesNotKeepTheOthersFromBeingRecovered) {
  SessionRecord broken = row(State::open, true);
  broken.options.keep_on_failure = true;  // whose result cannot be made
  const SessionRecord fine = row(State::open, true);
  for (const SessionRecord& record : {broken, fine}) {
    world_.directories.create(record.id);
    world_.catalog.insert(record);
  }
  const auto done = recover();
  EXPECT_EQ(done.size(), 2u);
  EXPECT_EQ(now(fine).state, State::rolled_back);
  EXPECT_EQ(now(broken).state, State::open);
  EXPECT_FALSE(world_.log.lines().empty());
}

}  // namespace
}  // namespace escrow::session
