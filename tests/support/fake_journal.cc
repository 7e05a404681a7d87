#include "tests/support/fake_journal.h"

#include <algorithm>
#include <map>

namespace escrow::support {

using session::BlockRow;
using session::EdgeRow;
using session::JournalBatch;
using session::JournalState;
using session::NodeId;
using session::NodeRow;

JournalState replay(const std::vector<JournalBatch>& batches, session::LayerId layer) {
  std::map<NodeId, NodeRow> nodes;
  std::map<std::pair<NodeId, std::string>, EdgeRow> edges;
  std::map<NodeId, BlockRow> blocks;  // by their first id: several may lie below one directory
  JournalState state;
  for (const JournalBatch& batch : batches) {
    if (batch.next_node) state.next_node = batch.next_node;
    if (batch.next_staging) state.next_staging = batch.next_staging;
    if (batch.layer != layer) continue;
    for (const NodeId dropped : batch.dropped_nodes) nodes.erase(dropped);
    for (const auto& dropped : batch.dropped_edges) edges.erase(dropped);
    for (const NodeRow& row : batch.nodes) nodes[row.node] = row;
    for (const EdgeRow& row : batch.edges) edges[{row.directory, row.name}] = row;
    for (const BlockRow& row : batch.blocks) blocks[row.first] = row;
  }
  for (auto& [id, row] : nodes) state.nodes.push_back(std::move(row));
  for (auto& [key, row] : edges) state.edges.push_back(std::move(row));
  for (auto& [id, row] : blocks) state.blocks.push_back(row);
  return state;
}

JournalState FakeJournal::load() { return replay(state_.lock()->batches); }

void FakeJournal::append(const JournalBatch& batch) {
  if (before_write) before_write();
  auto state = state_.lock();
  if (state->failure) throw *state->failure;
  if (power_) power_->use();
  state->batches.push_back(batch);
}

void FakeJournal::barrier() {
  if (before_write) before_write();
  auto state = state_.lock();
  if (state->failure) throw *state->failure;
  if (power_) power_->use();
  state->durable = state->batches.size();
  ++state->barriers;
}

std::size_t FakeJournal::batch_count() const { return state_.lock()->batches.size(); }
std::size_t FakeJournal::durable_count() const { return state_.lock()->durable; }
std::size_t FakeJournal::barrier_count() const { return state_.lock()->barriers; }
std::vector<JournalBatch> FakeJournal::batches() const { return state_.lock()->batches; }

void FakeJournal::drop_unbarriered() {
  auto state = state_.lock();
  state->batches.resize(state->durable);
}

void FakeJournal::keep_first(std::size_t count) {
  auto state = state_.lock();
  state->batches.resize(std::min(count, state->batches.size()));
  state->durable = std::min(state->durable, state->batches.size());
}

void FakeJournal::lose_power(std::size_t kept) {
  auto state = state_.lock();
  state->batches.resize(std::clamp(kept, state->durable, state->batches.size()));
  state->durable = state->batches.size();
}

void FakeJournal::fail_with(std::optional<session::Error> error) { state_.lock()->failure = std::move(error); }

}  // namespace escrow::support
