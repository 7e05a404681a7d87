// Savepoints: what was changed so far is sealed, and a new layer of the journal is begun.
//
// Staging ids only grow. So one number says what is sealed, whatever there is: the next id as it was when the newest
// savepoint was made. A content whose staging file is older makes another one at its first write (Content::unseal).
#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "session/base/repo_path.h"
#include "session/overlay/overlay_impl.h"

namespace escrow::session {
namespace {

// Each is a layer to look through when the session is loaded.
constexpr std::size_t kMostSavepoints = 256;
// What close(2) let go of is heard of when the kernel's RELEASE is read: on a busy machine that takes its time.
constexpr auto kSavepointPatience = std::chrono::seconds(2);
constexpr auto kBetweenSavepointLooks = std::chrono::milliseconds(5);

// The rows as they were; it is never written to.
class FrozenJournal final : public SessionJournal {
 public:
  explicit FrozenJournal(JournalState state) : state_(std::move(state)) {}
  JournalState load(LayerId) override { return std::move(state_); }
  std::vector<Savepoint> savepoints() override { return {}; }
  std::vector<NodeRow> all_nodes() override { return {}; }
  void append(const JournalBatch&) override {}
  void barrier() override {}

 private:
  JournalState state_;
};

}  // namespace

std::vector<Savepoint> Overlay::savepoints() { return *impl_->savepoints.lock(); }

Savepoint Overlay::Impl::savepoint(std::string_view name) {
  const auto all = savepoints.lock();
  const auto found = std::find_if(all->begin(), all->end(), [&](const Savepoint& one) { return one.name == name; });
  if (found == all->end())
    throw Error(Errc::not_found, "the session has no savepoint '" + std::string(name) +
                                     "'; `escrow savepoint list` shows those that it has");
  return *found;
}

// The name of a file that the kernel reads or writes by itself.
std::optional<std::string> Overlay::Impl::raw_file() {
  auto now = guarded.lock_shared();
  for (const auto& [id, node] : now->nodes) {
    if (!node->content || !(node->content->is_exposed() || node->content->is_open_raw())) continue;
    if (!node->content->is_open_raw() && node->content->settle()) continue;
    const auto path = node->links.empty() ? std::optional<std::string>() : path_of(*now, node->links.front());
    return path ? quote_path(*path) : "a file that was removed";
  }
  return std::nullopt;
}

// It would go on with it past every savepoint: it could not be told of another file.
void Overlay::Impl::refuse_raw_files() {
  const auto until = std::chrono::steady_clock::now() + kSavepointPatience;
  while (const auto name = raw_file()) {
    if (std::chrono::steady_clock::now() > until)
      throw Error(Errc::busy, "a savepoint cannot be made while a process has " + *name +
                                  " open or mapped, because --io passthrough has handed the file to it; close it, or "
                                  "mount the session with --io cached");
    std::this_thread::sleep_for(kBetweenSavepointLooks);
  }
}

void Overlay::create_savepoint(const std::string& name, std::string context) {
  {
    const auto all = impl_->savepoints.lock();
    for (const Savepoint& one : *all)
      if (one.name == name)
        throw Error(Errc::exists,
                    "the session has a savepoint '" + name + "' already; choose another name, or drop it");
    if (all->size() >= kMostSavepoints)
      throw Error(Errc::wrong_state, "the session has " + std::to_string(kMostSavepoints) +
                                              " savepoints already, and cannot have more; drop some");
  }
  auto now_writing = impl_->writer.lock();
  const std::uint64_t before = impl_->sealed_below;
  const StagingId next{impl_->next_staging.load()};
  // First, so that no file is handed to the kernel once it was looked whether one is.
  impl_->sealed_below = next.value;
  try {
    impl_->refuse_raw_files();
    Savepoint made{{}, name, {impl_->clock.now().seconds, 0}, next, std::move(context)};
    impl_->append_changes(*now_writing, std::move(made), {});
  } catch (...) {
    impl_->sealed_below = before;
    throw;
  }
  *impl_->savepoints.lock() = now_writing->journal.savepoints();
}

std::unique_ptr<Overlay> Overlay::at_savepoint(std::string_view name) {
  const LayerId layer = impl_->savepoint(name).layer;
  Options frozen = impl_->options;
  frozen.is_frozen = true;
  auto journal = std::make_unique<FrozenJournal>(impl_->writer.lock()->journal.load(layer));
  return std::unique_ptr<Overlay>(
      new Overlay(std::move(frozen), impl_->objects, impl_->staging, std::move(journal), impl_->clock, impl_->log));
}

JournalState Overlay::rows_at(std::string_view name) {
  const LayerId layer = impl_->savepoint(name).layer;
  return impl_->writer.lock()->journal.load(layer);
}

void Overlay::lend(const std::function<void()>& work) {
  flush(true);
  const auto now_writing = impl_->writer.lock();
  now_writing->journal.let_go();
  work();
}

// A file may be shared by what a savepoint shows, by what is built on it, and by a removed file that is still open:
// each of them copies it when it is written to.
std::uint64_t Overlay::Impl::first_of_its_own(const OverlayState& state) {
  std::uint64_t first = 0;
  {
    const auto all = savepoints.lock();
    for (const Savepoint& one : *all) first = std::max(first, one.next_staging.value);
  }
  const auto add = [&](const Content& content, bool is_removed) {
    std::unordered_set<StagingId> files;
    add_files(files, content);
    if (!is_removed) files.erase(content.form().staging);
    for (const StagingId id : files) first = std::max(first, id.value + 1);
  };
  for (const auto& [id, node] : state.nodes)
    if (node->content) add(*node->content, node->links.empty());
  for (const auto& content : state.unnamed) add(*content, true);
  for (const auto& content : state.unwritten) add(*content, true);
  return first;
}

void Overlay::drop_savepoint(std::string_view name) {
  const LayerId layer = impl_->savepoint(name).layer;
  auto now_writing = impl_->writer.lock();
  impl_->append_changes(*now_writing, {}, layer);
  *impl_->savepoints.lock() = now_writing->journal.savepoints();
  // A power loss must not bring back the savepoint without its files.
  impl_->make_durable(*now_writing);
  impl_->remove_unused(now_writing->unnamed);
  std::unordered_set<StagingId> named;
  const std::uint64_t sealed_before = impl_->sealed_below;
  impl_->add_recorded_files(*now_writing, named);
  {
    auto now = impl_->guarded.lock();
    for (const auto& [id, node] : now->nodes)
      if (node->content) Impl::add_files(named, *node->content);
    for (const auto* waiting : {&now->unnamed, &now->unwritten, &now_writing->unnamed})
      for (const auto& content : *waiting) Impl::add_files(named, *content);
    std::uint64_t first = impl_->first_of_its_own(*now);
    for (const auto& content : now_writing->unnamed)
      first = std::max(first, content->form().staging.value + 1);
    impl_->sealed_below = std::min(sealed_before, first);
  }
  for (const StagingId id : impl_->staging.list())
    if (id.value < sealed_before && !named.contains(id)) impl_->staging.remove(id);
}

}  // namespace escrow::session
