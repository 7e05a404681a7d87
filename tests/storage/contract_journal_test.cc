// What every SessionJournal does: the fake in memory and SQLite's.
#include <gtest/gtest.h>

#include <memory>
#include <string>

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

struct Implementation {
  const char* name;
  std::unique_ptr<session::SessionJournal> (*make)(const std::string& directory);
};

const Implementation kImplementations[] = {
    {"Fake", [](const std::string&) -> std::unique_ptr<session::SessionJournal> {
       return std::make_unique<support::FakeJournal>();
     }},
    {"Sqlite", [](const std::string& directory) -> std::unique_ptr<session::SessionJournal> {
       return std::make_unique<storage::SqliteSessionJournal>(directory);
     }},
};

class JournalContract : public testing::TestWithParam<Implementation> {
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

TEST_P(JournalContract, RowsOfOtherLayersAreKeptApart) {
  JournalBatch batch;
  batch.layer = session::LayerId{2};
  batch.nodes = {sample_node(5)};
  journal().append(batch);
  EXPECT_TRUE(journal().load().nodes.empty());
}

INSTANTIATE_TEST_SUITE_P(, JournalContract, testing::ValuesIn(kImplementations),
                         [](const auto& chosen) { return std::string(chosen.param.name); });

}  // namespace
}  // namespace escrow
