// What every SessionJournal does: the fake in memory and SQLite's.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "storage/staging/sqlite_session_journal.h"
#include "tests/support/fake_journal.h"
#include "tests/support/journal_rows.h"
#include "tests/support/temporary_directory.h"

namespace escrow {
namespace {

using session::JournalBatch;
using session::JournalState;
using session::NodeId;
using session::StagingId;
using support::sample_node;

struct JournalImplementation {
  const char* name;
  std::unique_ptr<session::SessionJournal> (*make)(const std::string& directory);
};

const JournalImplementation kJournals[] = {
    {"Fake",
     [](const std::string&) -> std::unique_ptr<session::SessionJournal> {
       return std::make_unique<support::FakeJournal>();
     }},
    {"Sqlite",
     [](const std::string& directory) -> std::unique_ptr<session::SessionJournal> {
       return std::make_unique<storage::SqliteSessionJournal>(directory);
     }},
};

class JournalContract : public testing::TestWithParam<JournalImplementation> {
 protected:
  session::SessionJournal& journal() { return *journal_; }

 private:
  support::TemporaryDirectory directory_;
  std::unique_ptr<session::SessionJournal> journal_ = GetParam().make(directory_.path());
};

TEST_P(JournalContract, AnEmptyJournalHasNoRowsAndTheFirstIds) {
  EXPECT_NO_THROW(journal().barrier());
  const JournalState state = journal().load();
  EXPECT_TRUE(state.nodes.empty());
  EXPECT_TRUE(state.edges.empty());
  EXPECT_TRUE(state.blocks.empty());
  EXPECT_EQ(state.next_node, NodeId{2});
  EXPECT_EQ(state.next_staging, StagingId{1});
}

TEST_P(JournalContract, EveryFieldComesBack) {
  JournalBatch batch;
  batch.nodes = {sample_node(5), {}};
  batch.nodes[1].node = NodeId{6};
  batch.edges = {{NodeId{1}, std::string("na\0me\xff", 6), NodeId{5}, 77}, {NodeId{1}, "gone", NodeId{}, 0}};
  batch.blocks = {{NodeId{1}, NodeId{1000}, 3, support::sample_id(9)}, {NodeId{5}, NodeId{~0ull}, 1, {}}};
  batch.next_node = NodeId{1003};
  batch.next_staging = StagingId{12};
  journal().append(batch);
  journal().barrier();

  const JournalState state = journal().load();
  ASSERT_EQ(state.nodes.size(), 2u);
  EXPECT_EQ(support::describe(state.nodes[0]), support::describe(batch.nodes[0]));
  EXPECT_EQ(support::describe(state.nodes[1]), support::describe(batch.nodes[1]));
  ASSERT_EQ(state.edges.size(), 2u);
  EXPECT_EQ(support::describe(state.edges[0]), support::describe(batch.edges[1]));
  EXPECT_EQ(support::describe(state.edges[1]), support::describe(batch.edges[0]));
  ASSERT_EQ(state.blocks.size(), 2u);
  EXPECT_EQ(state.next_node, NodeId{1003});
  EXPECT_EQ(state.next_staging, StagingId{12});
}

TEST_P(JournalContract, RowsAreReplacedByTheirKeysAndDropped) {
  JournalBatch first;
  first.nodes = {sample_node(5), sample_node(6)};
  first.edges = {{NodeId{1}, "a", NodeId{5}, 1}, {NodeId{1}, "b", NodeId{6}, 2}};
  journal().append(first);
  JournalBatch second;
  second.nodes = {sample_node(5)};
  second.nodes[0].mode = 0100600;
  second.dropped_nodes = {NodeId{6}, NodeId{99}};
  second.edges = {{NodeId{1}, "a", NodeId{}, 0}};
  second.dropped_edges = {{NodeId{1}, "b"}, {NodeId{2}, "never there"}};
  journal().append(second);

  const JournalState state = journal().load();
  ASSERT_EQ(state.nodes.size(), 1u);
  EXPECT_EQ(state.nodes[0].mode, 0100600u);
  ASSERT_EQ(state.edges.size(), 1u);
  EXPECT_EQ(state.edges[0].name, "a");
  EXPECT_FALSE(state.edges[0].node);
  EXPECT_EQ(state.next_node, NodeId{2});
}

TEST_P(JournalContract, WhatABatchDropsAndPutsIsThereAfterwards) {
  JournalBatch batch;
  batch.nodes = {sample_node(5)};
  batch.edges = {{NodeId{1}, "a", NodeId{5}, 1}};
  journal().append(batch);
  batch.dropped_nodes = {NodeId{5}};
  batch.dropped_edges = {{NodeId{1}, "a"}};
  journal().append(batch);
  EXPECT_EQ(journal().load().nodes.size(), 1u);
  EXPECT_EQ(journal().load().edges.size(), 1u);
}

session::Savepoint savepoint(const std::string& name, std::uint64_t next_staging) {
  return {{}, name, {1'700'000'000, 0}, StagingId{next_staging}, std::string("over\0it", 7)};
}

std::vector<std::string> edges_of(const JournalState& state) {
  std::vector<std::string> texts;
  for (const session::EdgeRow& row : state.edges) texts.push_back(support::describe(row));
  return texts;
}

std::vector<std::uint64_t> nodes_of(const JournalState& state) {
  std::vector<std::uint64_t> ids;
  for (const session::NodeRow& row : state.nodes) ids.push_back(row.node.value);
  return ids;
}

// Layer 1 has nodes 5 and 6, "a" and "b"; layer 2 drops 5 and "a", changes 6, makes 7 and "c", and 8 comes and goes.
void append_two_layers(session::SessionJournal& journal) {
  JournalBatch first;
  first.nodes = {sample_node(5), sample_node(6)};
  first.edges = {{NodeId{1}, "a", NodeId{5}, 3}, {NodeId{1}, "b", NodeId{6}, 4}};
  first.blocks = {{NodeId{1}, NodeId{1000}, 3, support::sample_id(9)}};
  first.seals = savepoint("one", 17);
  journal.append(first);
  JournalBatch second;
  second.nodes = {sample_node(6), sample_node(7), sample_node(8)};
  second.nodes[0].mode = 0100600;
  second.edges = {{NodeId{1}, "c", NodeId{7}, 5}, {NodeId{1}, "d", NodeId{8}, 6}};
  second.dropped_nodes = {NodeId{5}};
  second.dropped_edges = {{NodeId{1}, "a"}};
  second.blocks = {{NodeId{6}, NodeId{2000}, 1, support::sample_id(8)}};
  journal.append(second);
  JournalBatch third;
  third.dropped_nodes = {NodeId{8}};
  third.dropped_edges = {{NodeId{1}, "d"}};
  journal.append(third);
}

TEST_P(JournalContract, ASealedLayerStaysAsItWasUnderTheOneThatIsWritten) {
  append_two_layers(journal());
  const JournalState now = journal().load();
  EXPECT_EQ(nodes_of(now), (std::vector<std::uint64_t>{6, 7}));
  EXPECT_EQ(now.nodes.at(0).mode, 0100600u);
  EXPECT_EQ(edges_of(now), (std::vector<std::string>{"1/'b' -> 6 cookie 4", "1/'c' -> 7 cookie 5"}));
  EXPECT_EQ(now.blocks.size(), 2u);
  ASSERT_EQ(now.savepoints.size(), 1u);
  EXPECT_EQ(now.savepoints[0].name, "one");
  EXPECT_EQ(now.savepoints[0].created.seconds, 1'700'000'000);
  EXPECT_EQ(now.savepoints[0].next_staging, StagingId{17});
  EXPECT_EQ(now.savepoints[0].context, std::string("over\0it", 7));

  const JournalState then = journal().load(now.savepoints[0].layer);
  EXPECT_EQ(nodes_of(then), (std::vector<std::uint64_t>{5, 6}));
  EXPECT_EQ(then.nodes.at(1).mode, sample_node(6).mode);
  EXPECT_EQ(edges_of(then), (std::vector<std::string>{"1/'a' -> 5 cookie 3", "1/'b' -> 6 cookie 4"}));
  EXPECT_EQ(then.blocks.size(), 1u);
  EXPECT_EQ(journal().all_nodes().size(), 4u) << "what came and went within one layer leaves nothing";
}

TEST_P(JournalContract, ALayerThatIsDroppedLeavesWhatTheOthersShow) {
  append_two_layers(journal());
  JournalBatch second;
  second.nodes = {sample_node(9)};
  second.edges = {{NodeId{1}, "a", NodeId{9}, 7}};
  second.seals = savepoint("two", 20);
  journal().append(second);
  JournalBatch third;
  third.dropped_nodes = {NodeId{7}};
  third.dropped_edges = {{NodeId{1}, "c"}};
  journal().append(third);
  const std::vector<session::Savepoint> before = journal().savepoints();
  ASSERT_EQ(before.size(), 2u);
  const auto two = edges_of(journal().load(before[1].layer)), now = edges_of(journal().load());

  JournalBatch drop;
  drop.drops = before[0].layer;
  journal().append(drop);
  ASSERT_EQ(journal().savepoints().size(), 1u);
  EXPECT_EQ(edges_of(journal().load(journal().savepoints()[0].layer)), two);
  EXPECT_EQ(edges_of(journal().load()), now);
  drop.drops = journal().savepoints()[0].layer;
  journal().append(drop);
  EXPECT_EQ(edges_of(journal().load()), now);
  EXPECT_EQ(nodes_of(journal().load()), (std::vector<std::uint64_t>{6, 9}));
  EXPECT_EQ(journal().all_nodes().size(), 2u) << "rows that nothing shows any more are gone";
  EXPECT_TRUE(journal().savepoints().empty());
}

INSTANTIATE_TEST_SUITE_P(, JournalContract, testing::ValuesIn(kJournals),
                         [](const auto& chosen) { return std::string(chosen.param.name); });

}  // namespace
}  // namespace escrow
