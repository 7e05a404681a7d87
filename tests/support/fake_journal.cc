#include "tests/support/fake_journal.h"

#include <algorithm>
#include <iterator>
#include <map>

namespace escrow::support {

using session::BlockRow;
using session::EdgeRow;
using session::JournalBatch;
using session::JournalState;
using session::NodeId;
using session::NodeRow;

namespace {

// An empty row hides what the layers below say.
struct Layer {
  session::LayerId id = session::kFirstLayer;
  std::map<NodeId, std::optional<NodeRow>> nodes;
  std::map<std::pair<NodeId, std::string>, std::optional<EdgeRow>> edges;
  std::map<NodeId, BlockRow> blocks;  // by their first id: several may lie below one directory
  std::optional<session::Savepoint> sealed;
};

struct Layers {
  std::vector<Layer> all{Layer{}};
  NodeId next_node{2};
  session::StagingId next_staging{1};
};

template <typename Rows>
void merge(Rows& into, Rows& from) {
  into.merge(from);
}

void apply(Layers& layers, const JournalBatch& batch) {
  if (batch.next_node) layers.next_node = batch.next_node;
  if (batch.next_staging) layers.next_staging = batch.next_staging;
  Layer& top = layers.all.back();
  for (const NodeId dropped : batch.dropped_nodes) top.nodes[dropped].reset();
  for (const auto& dropped : batch.dropped_edges) top.edges[dropped].reset();
  for (const NodeRow& row : batch.nodes) top.nodes[row.node] = row;
  for (const EdgeRow& row : batch.edges) top.edges[{row.directory, row.name}] = row;
  for (const BlockRow& row : batch.blocks) top.blocks[row.first] = row;
  if (batch.seals) {
    top.sealed = batch.seals;
    top.sealed->layer = top.id;
    const session::LayerId next{top.id.value + 1};
    layers.all.emplace_back().id = next;
  }
  if (!batch.drops) return;
  const auto dropped = std::find_if(layers.all.begin(), layers.all.end(),
                                    [&](const Layer& layer) { return layer.id == batch.drops; });
  const auto above = std::next(dropped);
  merge(above->nodes, dropped->nodes);
  merge(above->edges, dropped->edges);
  merge(above->blocks, dropped->blocks);
  layers.all.erase(dropped);
}

}  // namespace

JournalState replay(const std::vector<JournalBatch>& batches, session::LayerId top) {
  Layers layers;
  for (const JournalBatch& batch : batches) apply(layers, batch);
  Layer shown;
  JournalState state;
  for (Layer& layer : layers.all) {
    if (layer.sealed) state.savepoints.push_back(*layer.sealed);
    if (top && layer.id > top) continue;
    merge(layer.nodes, shown.nodes);
    merge(layer.edges, shown.edges);
    merge(layer.blocks, shown.blocks);
    shown.nodes = std::move(layer.nodes);
    shown.edges = std::move(layer.edges);
    shown.blocks = std::move(layer.blocks);
  }
  state.next_node = layers.next_node;
  state.next_staging = layers.next_staging;
  for (auto& [id, row] : shown.nodes)
    if (row) state.nodes.push_back(std::move(*row));
  for (auto& [key, row] : shown.edges)
    if (row) state.edges.push_back(std::move(*row));
  for (auto& [id, row] : shown.blocks) state.blocks.push_back(row);
  return state;
}

JournalState FakeJournal::load(session::LayerId top) { return replay(state_.lock()->batches, top); }

std::vector<NodeRow> FakeJournal::all_nodes() {
  Layers layers;
  for (const JournalBatch& batch : batches()) apply(layers, batch);
  std::vector<NodeRow> rows;
  for (Layer& layer : layers.all)
    for (auto& [id, row] : layer.nodes)
      if (row) rows.push_back(std::move(*row));
  return rows;
}

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
