// How the overlay's memory gets into the journal and back: consistent batches written behind, shared barriers.
#include <algorithm>
#include <chrono>
#include <iterator>

#include "session/overlay/overlay_impl.h"

namespace escrow::session {
namespace {

using namespace std::chrono_literals;

constexpr auto kWriteBehind = 100ms;
// Ids given out in the last moments before a kill were not recorded; skipping ahead keeps them from coming back.
constexpr std::uint64_t kIdsSkippedAtLoad = 1 << 20;

// How much later than the session's clock a file system may stamp the same moment: a tick of the kernel's coarse clock.
constexpr std::uint32_t kClockStep_ns = 10'000'000;

Timestamp later(Timestamp time, std::uint32_t step_ns) {
  time.nanoseconds += step_ns;
  if (time.nanoseconds >= 1'000'000'000) time = {time.seconds + 1, time.nanoseconds - 1'000'000'000};
  return time;
}

NodeRow row_of(const Node& node) {
  NodeRow row;
  row.node = node.id;
  row.mode = node.mode;
  row.uid = node.uid;
  row.gid = node.gid;
  row.rdev = node.rdev;
  row.accessed = node.accessed;
  row.modified = node.modified;
  row.changed = node.changed;
  row.base = node.base;
  row.base_mode = static_cast<std::uint32_t>(node.base_mode);
  row.target = node.target;
  row.xattrs.assign(node.xattrs.begin(), node.xattrs.end());
  if (node.is_directory() && !node.directory->base_tree.is_null()) row.times = node.directory->times;
  return row;
}

std::string map_of(const Content::Form& form) {
  return form.has_base() && form.staging ? form.map.bytes() : std::string();
}

// Of a NodeRow or its durable part.
Content::Form form_of(const auto& row) {
  Content::Form form{row.base, row.base_length, row.staging, {}, decode_sealed(row.sealed)};
  if (row.staging && form.has_base()) form.map = BlockMap(BlockMap::blocks_of(row.base_length), row.block_map);
  return form;
}

void add_files_of(std::unordered_set<StagingId>& files, const Content::Form& form) {
  const std::vector<StagingId> more = form.staging_files();
  files.insert(more.begin(), more.end());
}

}  // namespace

// One batch on its way to the journal, with what is needed to give it back should the journal refuse it.
struct Overlay::Impl::Taken {
  JournalBatch batch;
  std::vector<std::pair<std::size_t, std::shared_ptr<Content>>> contents;  // of batch.nodes, by index
  std::vector<std::shared_ptr<Content>> unnamed, unwritten;
  std::uint64_t change = 0;
};

Overlay::Impl::Taken Overlay::Impl::take(OverlayState& now) {
  Taken taken;
  taken.change = now.change;
  for (const NodeId id : now.dirty_nodes) {
    const auto found = now.nodes.find(id);
    if (found == now.nodes.end() || !found->second->dirty) continue;
    Node& node = *found->second;
    node.dirty = false;
    node.recorded = node.ever_recorded = true;
    if (node.content) taken.contents.emplace_back(taken.batch.nodes.size(), node.content);
    taken.batch.nodes.push_back(row_of(node));
  }
  for (const auto& [edge, unused] : now.dirty_edges) {
    const auto directory = now.nodes.find(edge.first);
    const Override* shown = nullptr;
    if (directory != now.nodes.end() && directory->second->is_directory()) {
      const auto& overrides = directory->second->directory->overrides;
      if (const auto found = overrides.find(edge.second); found != overrides.end()) shown = &found->second;
    }
    if (shown)
      taken.batch.edges.push_back({edge.first, edge.second, shown->node, shown->cookie});
    else
      taken.batch.dropped_edges.push_back(edge);
  }
  taken.batch.dropped_nodes.assign(now.dropped_nodes.begin(), now.dropped_nodes.end());
  taken.batch.blocks = std::move(now.new_blocks);
  taken.batch.next_node = now.next_node;
  taken.batch.next_staging = {next_staging.load()};
  taken.unnamed = std::move(now.unnamed);
  taken.unwritten = std::move(now.unwritten);
  now.dirty_nodes.clear();
  now.dirty_edges.clear();
  now.dropped_nodes.clear();
  now.new_blocks.clear();
  now.unnamed.clear();
  now.unwritten.clear();
  return taken;
}

void Overlay::Impl::give_back(OverlayState& now, Taken& taken) {
  for (const NodeRow& row : taken.batch.nodes)
    if (const auto node = now.nodes.find(row.node); node != now.nodes.end() && node->second->staged) {
      if (!node->second->dirty) now.dirty_nodes.push_back(row.node);
      node->second->dirty = true;
    }
  for (const EdgeRow& edge : taken.batch.edges) now.dirty_edges[{edge.directory, edge.name}] = true;
  for (const auto& edge : taken.batch.dropped_edges) now.dirty_edges[edge] = true;
  now.dropped_nodes.insert(taken.batch.dropped_nodes.begin(), taken.batch.dropped_nodes.end());
  now.new_blocks.insert(now.new_blocks.end(), taken.batch.blocks.begin(), taken.batch.blocks.end());
  std::move(taken.unnamed.begin(), taken.unnamed.end(), std::back_inserter(now.unnamed));
  std::move(taken.unwritten.begin(), taken.unwritten.end(), std::back_inserter(now.unwritten));
  now.change += 1;
}

void Overlay::Impl::sync_if_many(const std::vector<Content*>& contents,
                                 const std::function<void(std::size_t)>& form_became_durable) {
  if (contents.size() <= kSyncAllThreshold) return;
  std::vector<Content::SyncedUpTo> reached;
  for (const Content* content : contents) reached.push_back(content->begin_sync());
  try {
    staging.sync_all();
    for (std::size_t at = 0; at < contents.size(); ++at)
      if (!contents[at]->is_damaged() && contents[at]->end_sync(std::move(reached[at])) && form_became_durable)
        form_became_durable(at);
  } catch (const std::exception& error) {
    log.write(LogLevel::error, error.what());
  }
}

// Contents that take the place of others are on disk before their rows are written, so that a power loss never leaves a
// name with neither the old bytes nor the new.
void Overlay::Impl::sync_replacing(const Taken& taken) {
  std::vector<Content*> replacing;
  for (const auto& [index, content] : taken.contents)
    if (content->is_staged() && content->take_replaces_others()) replacing.push_back(content.get());
  try {
    sync_if_many(replacing);
    for (Content* content : replacing) {
      try {
        content->sync();
      } catch (const Error& error) {
        // Its fsync and the commit say so; the other files' rows do not wait for it.
        if (!content->is_damaged()) throw;
        log.write(LogLevel::error, error.what());
      }
    }
  } catch (...) {
    for (Content* content : replacing) content->set_replaces_others();
    throw;
  }
}

// What the rows name of the contents: each bit of a block map with what a power loss leaves of it.
void Overlay::Impl::fill_contents(Taken& taken) {
  sync_replacing(taken);
  for (const auto& [index, content] : taken.contents) {
    const Content::Recorded recorded = content->recorded();
    NodeRow& row = taken.batch.nodes[index];
    row.base = recorded.form.base;
    row.base_length = recorded.form.base_length;
    row.staging = recorded.form.staging;
    row.sealed = encode_sealed(recorded.form);
    row.block_map = map_of(recorded.form);
    if (content->has_lost()) row.xattrs.emplace_back(kLostBytesName, content->lost().text());
    if (recorded.is_durable) continue;
    row.era = staging.era();
    const Content::Form& durable = recorded.durable;
    row.durable = {durable.base, durable.base_length, durable.staging, map_of(durable), encode_sealed(durable)};
    if (!durable.is_nothing()) sync_later(row.node, content);
  }
}

// A call under way (status and diff ask while writers run) may still read what was removed: its file waits. Nobody can
// come by a content whose node is gone, so one that is only held here stays so.
void Overlay::Impl::remove_unused(std::vector<std::shared_ptr<Content>>& removed) {
  for (std::size_t i = 0; i < removed.size();) {
    if (removed[i].use_count() > 1) {
      ++i;
      continue;
    }
    // What a savepoint may have goes when that is dropped.
    if (const StagingId id = removed[i]->form().staging; id.value >= sealed_below) staging.remove(id);
    removed[i] = std::move(removed.back());
    removed.pop_back();
  }
}

void Overlay::Impl::flush(bool durable) {
  if (abandoned) return;
  const std::uint64_t wanted = guarded.lock_shared()->change;
  auto now_writing = writer.lock();
  if (abandoned) return;
  const bool done = (durable ? now_writing->durable : now_writing->appended) >= wanted;
  if (done && (!durable || now_writing->unnamed.empty())) return;
  if (now_writing->appended < wanted) append_changes(*now_writing, {}, {});
  if (!durable) return;
  make_durable(*now_writing);
  remove_unused(now_writing->unnamed);
}

// One batch of all that changed, and what else it is to do.
void Overlay::Impl::append_changes(Writer& now_writing, std::optional<Savepoint> seals, LayerId drops) {
  Taken taken;
  {
    auto now = guarded.lock();
    if (seals || drops) now->change += 1;  // a change of its own, for who waits for a barrier
    taken = take(*now);
  }
  taken.batch.seals = std::move(seals);
  taken.batch.drops = drops;
  try {
    remove_unused(taken.unwritten);
    std::move(taken.unwritten.begin(), taken.unwritten.end(), std::back_inserter(taken.unnamed));
    taken.unwritten.clear();
    staging.write_behind();
    fill_contents(taken);
    now_writing.journal.append(taken.batch);
  } catch (...) {
    give_back(*guarded.lock(), taken);
    throw;
  }
  now_writing.appended = taken.change;
  settle_later(taken.contents);
  std::move(taken.unnamed.begin(), taken.unnamed.end(), std::back_inserter(now_writing.unnamed));
}

void Overlay::Impl::make_durable(Writer& now_writing) {
  if (now_writing.durable >= now_writing.appended) return;
  staging.sync_directory();
  now_writing.journal.barrier();
  now_writing.durable = now_writing.appended;
}

void Overlay::Impl::wake(bool full) {
  {
    auto now = signal.lock();
    // The flusher waits for the first change of a batch, and then for a full one or for the time: not for each.
    if (now->pending && (now->full || !full)) return;
    now->pending = true;
    now->full = now->full || full;
  }
  signalled.notify_one();
}

void Overlay::Impl::run_flusher() {
  auto last_barrier = std::chrono::steady_clock::now();
  bool removals_wait = false;
  for (;;) {
    {
      auto now = signal.lock();
      const auto wake_up = [&] { return now->stop || now->pending; };
      if (removals_wait)
        signalled.wait_for(now.lock(), 1s, wake_up);
      else
        signalled.wait(now.lock(), wake_up);
      signalled.wait_for(now.lock(), kWriteBehind, [&] { return now->stop || now->full; });
      if (now->stop) return;
      now->pending = now->full = false;
    }
    try {
      flush(false);
      removals_wait = !writer.lock()->unnamed.empty();
      if (removals_wait && std::chrono::steady_clock::now() - last_barrier > 1s) {
        flush(true);
        last_barrier = std::chrono::steady_clock::now();
        removals_wait = !writer.lock()->unnamed.empty();
      }
    } catch (const std::exception& error) {
      log.write(LogLevel::error, std::string("recording a session's edits, to be tried again: ") + error.what());
      std::this_thread::sleep_for(1s);
      wake(false);
    }
  }
}

// ---- loading ----

BaseTimes::Directory Overlay::Impl::times_of_root() const {
  try {
    if (options.times) return options.times->directory(options.base_path);
  } catch (const Error& error) {
    log.write(LogLevel::warning, std::string("the times of files: ") + error.what());
  }
  return {options.base_time, {options.base_time, std::nullopt}};
}

std::vector<Overlay::Impl::Unsynced::Item> Overlay::Impl::load() {
  auto now_writing = writer.lock();
  const JournalState saved = now_writing->journal.load();
  auto now = guarded.lock();
  auto root = std::make_unique<Node>();
  root->id = kRootNode;
  root->mode = kDirectoryType | base_permissions(GitMode::tree);
  root->uid = options.uid;
  root->gid = options.gid;
  const BaseTimes::Directory times = times_of_root();
  root->accessed = root->modified = root->changed = times.modified;
  root->staged = true;
  root->directory = std::make_unique<DirectoryBody>();
  root->directory->times = times.below;
  root->directory->next_cookie = kFirstBaseCookie;
  if (options.base_tree) root->directory->base_tree = *options.base_tree;
  now->nodes.emplace(kRootNode, std::move(root));

  // What the root was opened over, which an update of the session's base does not change: its edits are over that.
  const bool was_edited = std::any_of(saved.nodes.begin(), saved.nodes.end(),
                                      [](const NodeRow& row) { return row.node == kRootNode; });
  if (was_edited) now->nodes.at(kRootNode)->directory->base_tree = {};
  for (const BlockRow& row : saved.blocks) {
    if (row.directory == kRootNode) now->nodes.at(kRootNode)->directory->base_tree = row.tree;
    now->blocks[row.first.value] = {row.directory, row.count, row.tree};
    now->block_of_directory[row.directory] = row.first;
  }
  StagingId next{saved.next_staging};
  std::unordered_set<StagingId> present;
  for (const StagingId id : staging.list()) {
    present.insert(id);
    next.value = std::max(next.value, id.value + 1);
  }
  // What a savepoint has sealed was handed to nobody then, nor has it been since.
  const StagingId first_handed_out = saved.savepoints.empty() ? StagingId{} : saved.savepoints.back().next_staging;
  std::vector<std::pair<NodeId, std::shared_ptr<Content>>> unsynced_rows;
  std::vector<Unsynced::Item> cut_short;
  for (const NodeRow& row : saved.nodes) {
    auto& slot = now->nodes[row.node];
    if (!slot) slot = std::make_unique<Node>();
    Node& node = *slot;
    node.id = row.node;
    node.mode = row.mode;
    node.uid = row.uid;
    node.gid = row.gid;
    node.rdev = row.rdev;
    node.accessed = row.accessed;
    node.modified = row.modified;
    node.changed = row.changed;
    node.base = row.base;
    node.base_mode = static_cast<GitMode>(row.base_mode);
    node.target = row.target;
    node.xattrs.insert(row.xattrs.begin(), row.xattrs.end());
    node.staged = node.recorded = node.ever_recorded = true;
    if (node.type() == kDirectoryType && node.id != kRootNode) {
      node.directory = std::make_unique<DirectoryBody>();
      node.directory->next_cookie = kFirstBaseCookie;
      if (node.base_mode == GitMode::tree) node.directory->base_tree = row.base;
      node.directory->times = row.times.value_or(TimesBelow{options.base_time, std::nullopt});
    } else if (node.type() == kRegularType) {
      Content::Recorded recorded = recorded_in(row, present);
      const bool is_as_recorded = recorded.form == form_of(row);
      if (lost_power(row) || !is_as_recorded) mark(*now, node);
      const bool is_raw =
          recorded.form.staging && !recorded.form.has_base() && recorded.form.staging >= first_handed_out;
      const bool waits = !recorded.is_durable && !recorded.durable.is_nothing();
      node.content = new_content(std::move(recorded));
      if (const auto lost = node.xattrs.extract(std::string(kLostBytesName)))
        node.content->set_lost(LostBytes::parse(lost.mapped()));
      if (is_raw) node.content->was_raw(later(row.changed, kClockStep_ns));
      if (waits && is_as_recorded) unsynced_rows.emplace_back(row.node, node.content);
      if (waits && !is_as_recorded) cut_short.push_back({row.node, node.content, {}});
      next.value = std::max(next.value, row.staging.value + 1);
    }
  }
  load_edges(*now, saved.edges);
  now->next_node = saved.next_node;
  if (!saved.nodes.empty()) now->next_node.value += kIdsSkippedAtLoad;
  next_staging = next.value;
  *savepoints.lock() = saved.savepoints;
  if (abandoned) return {};
  sealed_below = first_of_its_own(*now);
  remove_unnamed_staging(*now_writing, *now, present);
  for (const auto& [node, content] : unsynced_rows) sync_later(node, content);
  return cut_short;
}

// load() takes a file for truncated when its staging file is shorter than its row says. A later write that extends the
// file destroys this evidence: after another kill, load() would show the base's bytes behind the cut. This function
// therefore puts the truncated file and its row on disk before the session serves any call.
void Overlay::Impl::record_what_was_left(std::vector<Unsynced::Item> cut_short) {
  sync_unsynced(std::move(cut_short));
  try {
    flush(true);
  } catch (const std::exception& error) {
    // A session on a full disk can still be read; the flusher tries again.
    log.write(LogLevel::error, std::string("recording what a kill or a power loss left: ") + error.what());
  }
}

bool Overlay::Impl::lost_power(const NodeRow& row) const { return row.era != 0 && row.era != staging.era(); }

// Of a row that names more than a power loss leaves for certain: what there is, when there was one.
Content::Recorded Overlay::Impl::recorded_in(const NodeRow& row, const std::unordered_set<StagingId>& present) const {
  Content::Recorded recorded{form_of(row), row.era == 0, form_of(row.durable)};
  const auto is_present = [&](StagingId id) { return present.contains(id); };
  return Content::as_left(std::move(recorded), lost_power(row), is_present, staging);
}

void Overlay::Impl::load_edges(OverlayState& now, const std::vector<EdgeRow>& edges) {
  for (const EdgeRow& row : edges) {
    const auto directory = now.nodes.find(row.directory);
    if (directory == now.nodes.end() || !directory->second->is_directory()) continue;
    DirectoryBody& body = *directory->second->directory;
    const auto child = now.nodes.find(row.node);
    if (row.node && child == now.nodes.end())
      throw Error(Errc::damaged_repository, "the session's journal names a file it has no row for: \"" + row.name +
                                                "\"; run `escrow verify`");
    const auto edge = body.overrides.insert_or_assign(row.name, Override{row.node, row.cookie}).first;
    if (!row.node) continue;
    body.added[row.cookie] = edge->first;
    body.next_cookie = std::max(body.next_cookie, row.cookie + 1);
    child->second->links.push_back({row.directory, row.name});
  }
  std::erase_if(now.nodes, [](const auto& item) { return item.first != kRootNode && item.second->links.empty(); });
}

void Overlay::Impl::add_files(std::unordered_set<StagingId>& files, const Content& content) {
  const Content::Recorded recorded = content.recorded();
  add_files_of(files, recorded.form);
  add_files_of(files, recorded.durable);
}

// Of all layers.
void Overlay::Impl::add_recorded_files(Writer& now_writing, std::unordered_set<StagingId>& files) {
  for (const NodeRow& row : now_writing.journal.all_nodes()) {
    add_files_of(files, form_of(row));
    add_files_of(files, form_of(row.durable));
  }
}

// Staging files that no row names were made in the last moments before a kill, or waited for a barrier to be removed.
void Overlay::Impl::remove_unnamed_staging(Writer& now_writing, const OverlayState& now,
                                           const std::unordered_set<StagingId>& present) {
  std::unordered_set<StagingId> named;
  for (const auto& [id, node] : now.nodes)
    if (node->content) add_files(named, *node->content);
  if (!savepoints.lock()->empty()) add_recorded_files(now_writing, named);
  for (const StagingId id : present)
    if (!named.contains(id)) staging.remove(id);
}

// ---- barriers ----

// Null: it is unchanged, and so the repository's.
std::shared_ptr<Content> Overlay::Impl::content_to_sync(NodeId id) const {
  auto now = guarded.lock_shared();
  const Found found = find(*now, id);
  if (!found) throw Error(Errc::not_found, "a file the kernel asked for is not known");
  return found.node ? found.node->content : nullptr;
}

void Overlay::sync_file(NodeId id) { sync_files({&id, 1}); }

void Overlay::sync_files(std::span<const NodeId> files) {
  std::vector<std::pair<NodeId, std::shared_ptr<Content>>> contents;
  for (const NodeId id : files)
    if (auto content = impl_->content_to_sync(id)) contents.emplace_back(id, std::move(content));
  std::vector<Content*> all;
  for (const auto& [id, content] : contents) all.push_back(content.get());
  impl_->sync_if_many(all, [&](std::size_t at) { impl_->mark_recorded_anew(contents[at].first, *all[at]); });
  for (const auto& [id, content] : contents) {
    if (content->sync()) impl_->mark_recorded_anew(id, *content);
    impl_->learn(id, *content, content->usage().modified);
  }
  impl_->flush(true);
}

void Overlay::abandon() {
  auto writing = impl_->writer.lock();  // no batch is on its way any more
  impl_->abandoned = true;
}

void Overlay::sync_directory(NodeId) { impl_->flush(true); }

}  // namespace escrow::session
