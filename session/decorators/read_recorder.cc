#include "session/decorators/read_recorder.h"

#include <optional>

#include "session/base/error.h"

namespace escrow::session {
namespace {

// Of the log, beside those of the set.
constexpr char kBegun = 'b', kEnded = 'f';

thread_local ReadRecorder::Batch* current_batch = nullptr;

// Each append is one record, with its length before it.
std::string record_of(std::string_view events) {
  std::string record;
  for (int shift = 0; shift < 64; shift += 8) record += static_cast<char>(std::uint64_t{events.size()} >> shift);
  record += events;
  return record;
}

}  // namespace

ReadRecorder::Noted::~Noted() {
  for (const std::atomic<Page*>& page : pages_) delete page.load();
}

bool ReadRecorder::Noted::has(NodeId node, std::uint8_t bits) const {
  const std::uint64_t word = node.value / kNodesInWord;
  if (word / kWordsInPage >= kPages) return false;
  const Page* page = pages_[word / kWordsInPage].load(std::memory_order_acquire);
  if (page == nullptr) return false;
  const std::uint64_t there =
      (*page)[word % kWordsInPage].load(std::memory_order_acquire) >> node.value % kNodesInWord * 4;
  return (there & bits) == bits || (there & kOwn) != 0;
}

void ReadRecorder::Noted::add(NodeId node, std::uint8_t bits) {
  const std::uint64_t word = node.value / kNodesInWord;
  if (word / kWordsInPage >= kPages) return;
  std::atomic<Page*>& place = pages_[word / kWordsInPage];
  Page* page = place.load(std::memory_order_acquire);
  if (page == nullptr) {
    std::unique_ptr<Page> fresh = std::make_unique<Page>();
    if (place.compare_exchange_strong(page, fresh.get(), std::memory_order_acq_rel)) page = fresh.release();
  }
  (*page)[word % kWordsInPage].fetch_or(std::uint64_t{bits} << node.value % kNodesInWord * 4,
                                        std::memory_order_release);
}

ReadRecorder::ReadRecorder(Overlay& overlay, ReadLog& log_file, Log& log, std::size_t most_bytes)
    : overlay_(overlay), log_file_(log_file), log_(log), state_(most_bytes) {
  auto now = state_.lock();
  if (const char* why = load(*now)) take_everything(*now, why);
}

// Why it does not say everything; null: it does.
const char* ReadRecorder::load(State& state) {
  const ReadLog::Loaded loaded = log_file_.load();
  if (!loaded.is_complete) return "the power failed, or the disk was full";
  std::string_view rest = loaded.events;
  bool is_taking_in = false;
  while (!rest.empty()) {
    std::uint64_t size = 0;
    if (rest.size() < sizeof size) return "its end is missing";
    for (std::size_t at = 0; at < sizeof size; ++at)
      size |= std::uint64_t{static_cast<unsigned char>(rest[at])} << at * 8;
    rest.remove_prefix(sizeof size);
    if (size > rest.size()) return "its end is missing";
    const std::string_view record = rest.substr(0, size);
    rest.remove_prefix(size);
    if (record == std::string_view(&kBegun, 1)) {
      is_taking_in = true;
    } else if (record == std::string_view(&kEnded, 1)) {
      is_taking_in = false;
    } else if (!state.set.apply(record)) {
      return "it is damaged";
    }
  }
  return is_taking_in ? "a savepoint was being restored" : nullptr;
}

void ReadRecorder::take_everything(State& state, const std::string& why) {
  log_.write(LogLevel::warning, "what the session has read is not known any more (" + why +
                                    "): everything counts as read, so it is committed only if nobody else has "
                                    "committed since");
  state.set.take_all_below(ReadSet::kRoot);
  write(state);
}

void ReadRecorder::write(State& state) {
  if (state.is_log_to_be_given_up) give_up(state);
  const std::string events = state.set.take_events();
  if (events.empty()) return;
  try {
    log_file_.append(record_of(events));
  } catch (const Error& failure) {
    give_up(state);
    if (!state.set.is_covered(ReadSet::kRoot)) {
      log_.write(LogLevel::warning, std::string("what the session reads cannot be recorded: everything counts as "
                                                "read from now on: ") + failure.what());
      state.set.take_all_below(ReadSet::kRoot);
    }
    state.set.take_events();
  }
}

// That the log is not complete needs no room on the disk. Where even that cannot be written, whoever reads must not see
// what was read, nor whoever comes after, until it is.
void ReadRecorder::give_up(State& state) {
  state.is_log_to_be_given_up = true;
  log_file_.give_up();
  state.is_log_to_be_given_up = false;
}

// nullptr: it is the session's own, or the root.
const ReadRecorder::Block* ReadRecorder::block_with(State& state, NodeId node) {
  auto found = state.blocks.upper_bound(node.value);
  if (found != state.blocks.begin()) {
    --found;
    if (node.value - found->second.first < found->second.count) return &found->second;
  }
  const std::optional<Overlay::BaseBlock> block = overlay_.base_block_with(node);
  if (!block) return nullptr;
  const ReadSet::Id where = directory(state, block->directory);
  return &(state.blocks[block->first.value] = {block->first.value, block->count, where});
}

// kCovered: nothing has to be noted of it. Below what the session has made are only things that it took in, which
// count as read already.
ReadSet::Id ReadRecorder::directory(State& state, NodeId node) {
  if (const auto known = state.directories.find(node); known != state.directories.end()) return known->second;
  const std::optional<Overlay::BaseBlock> block = overlay_.base_block_of(node);
  if (node == kRootNode) {
    if (!block) return ReadSet::kRoot;  // empty so far
    state.set.set_root(block->tree);
    return state.directories[node] = ReadSet::kRoot;
  }
  if (!block) return ReadSet::kCovered;
  const std::optional<Overlay::BaseBlock> above = overlay_.base_block_with(node);
  const ReadSet::Id parent = above ? directory(state, above->directory) : ReadSet::kCovered;
  if (parent == ReadSet::kCovered) return state.directories[node] = ReadSet::kCovered;
  return state.directories[node] = state.set.add_directory(parent, overlay_.base_name(node), block->tree);
}

void ReadRecorder::remember(NodeId node, std::uint8_t what, State& state) {
  if (current_batch != nullptr && &current_batch->recorder_ == this) {
    current_batch->noted_.emplace_back(node, what);
    return;
  }
  write(state);
  noted_.add(node, what);
}

void ReadRecorder::note_first(NodeId node, std::uint8_t what) {
  if (node == kRootNode) return;
  auto now = state_.lock();
  const Block* const block = block_with(*now, node);
  if (block == nullptr) {
    noted_.add(node, kOwn);
    return;
  }
  if (block->directory != ReadSet::kCovered) {
    const std::uint64_t index = node.value - block->first;
    what == kRead ? now->set.read(block->directory, index) : now->set.look_at(block->directory, index);
  }
  remember(node, what, *now);
}

void ReadRecorder::listed(NodeId node) {
  if (noted_.has(node, kListed)) return;
  auto now = state_.lock();
  const ReadSet::Id where = directory(*now, node);
  if (where != ReadSet::kCovered) now->set.list(where);
  remember(node, kListed, *now);
}

void ReadRecorder::missed(NodeId node, std::string_view name) {
  auto now = state_.lock();
  const ReadSet::Id where = directory(*now, node);
  if (where == ReadSet::kCovered || overlay_.base_has(node, name)) return;
  now->set.miss(where, name);
  write(*now);
}

ReadRecorder::Batch::Batch(ReadRecorder& recorder) : recorder_(recorder), outer_(current_batch) {
  current_batch = this;
}

ReadRecorder::Batch::~Batch() { current_batch = outer_; }

void ReadRecorder::Batch::end() {
  recorder_.write(*recorder_.state_.lock());
  for (const auto& [node, what] : noted_) recorder_.noted_.add(node, what);
  noted_.clear();
}

void ReadRecorder::taken_in(const std::vector<std::string>& paths) {
  auto now = state_.lock();
  for (const std::string& path : paths) now->set.take_path(path);
  write(*now);
}

void ReadRecorder::begin_taking_in() {
  auto now = state_.lock();
  log_file_.append(record_of(std::string_view(&kBegun, 1)));
}

void ReadRecorder::end_taking_in(const std::vector<std::string>& paths) {
  auto now = state_.lock();
  for (const std::string& path : paths) now->set.take_path(path);
  write(*now);
  log_file_.append(record_of(std::string_view(&kEnded, 1)));
}

ReadSet ReadRecorder::now() { return state_.lock()->set; }

void ReadRecorder::close() noexcept {
  auto now = state_.lock();
  try {
    log_file_.close();
  } catch (const std::exception& failure) {
    log_.write(LogLevel::warning, std::string("what the session has read is on disk in part only: ") + failure.what());
  }
}

}  // namespace escrow::session
