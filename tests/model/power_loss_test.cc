// Random edits, fsyncs, kills and power cuts at any instant, over disks in memory that lose what was not synced, or
// keep any part of it. The journal may come back with any number of the batches after its last barrier, each
// staging file with any mixture of its synced and its written blocks.
//
// Held against what every file was since its last acknowledged fsync: each byte was there in one of these versions, and
// the size lies between theirs. ESCROW_TEST_SEED chooses the run (seed.h), ESCROW_MODEL_ROUNDS lengthens it.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "session/base/error.h"
#include "session/overlay/overlay.h"
#include "tests/support/fake_journal.h"
#include "tests/support/fake_object_store.h"
#include "tests/support/fake_power.h"
#include "tests/support/fake_staging.h"
#include "tests/support/seed.h"

namespace escrow::session {
namespace {

constexpr std::uint32_t kFile = S_IFREG | 0644;

class PowerLoss : public testing::Test {
 protected:
  // What a file was since its last acknowledged fsync, oldest first; and since it was last recorded for certain.
  struct Witness {
    std::vector<std::string> since_sync;
    std::vector<std::string> since_flush;
    const std::string& now() const { return since_sync.back(); }
    void change(std::string content) {
      since_sync.push_back(content);
      since_flush.push_back(std::move(content));
    }
  };

  PowerLoss() {
    staging_.use_power(power_);
    journal_.use_power(power_);
  }

  void begin() {
    std::map<std::string, std::string> files;
    const std::size_t sizes[] = {3 << 20, (1 << 20) + 77777, 200000, 100};
    for (std::size_t i = 0; i < std::size(sizes); ++i) files["base" + std::to_string(i)] = random_text(sizes[i]);
    options_.base_tree = objects_.put_files(files);
    for (const auto& [name, text] : files) files_[name].change(text);
    open();
  }
  void open() { overlay_ = std::make_unique<Overlay>(options_, objects_, staging_, journal_, clock_, log_); }

  std::size_t pick(std::size_t count) { return std::uniform_int_distribution<std::size_t>(0, count - 1)(random_); }
  std::function<bool()> coin(std::size_t of) {
    return [this, of] { return pick(of) == 0; };
  }
  // No zeroes: they are what lost bytes read as.
  std::string random_text(std::size_t size) {
    std::string text(size, '\0');
    const auto first = static_cast<unsigned char>(1 + pick(255));
    for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(1 + (first + i / 512 * 7 + i % 13) % 255);
    return text;
  }
  std::uint64_t offset_in(const std::string& content) {
    const std::uint64_t at = pick(content.size() + 300000);
    return pick(2) ? at : at / 4096 * 4096;
  }

  NodeId node(const std::string& name) {
    const auto found = overlay_->lookup(kRootNode, name);
    return found ? found->node : NodeId{};
  }
  std::string read(NodeId id) {
    std::string text(overlay_->attributes(id).size_bytes, '?');
    text.resize(overlay_->read(id, 0, std::as_writable_bytes(std::span(text))));
    return text;
  }

  void write(const std::string& name, Witness& witness) {
    const std::uint64_t at = pick(4) ? offset_in(witness.now()) : 0;
    const std::string text = random_text(1 + pick(pick(3) ? 5000 : 400000));
    std::string after = witness.now();
    if (after.size() < at + text.size()) after.resize(at + text.size());
    after.replace(at, text.size(), text);
    witness.change(std::move(after));
    did("write " + name + " " + std::to_string(text.size()) + "@" + std::to_string(at));
    overlay_->write(node(name), at, std::as_bytes(std::span(text)), WriteOrigin::call);
  }
  void resize(const std::string& name, Witness& witness) {
    const std::uint64_t size = pick(3) ? offset_in(witness.now()) : pick(2) * pick(5000);
    std::string after = witness.now();
    after.resize(size);
    witness.change(std::move(after));
    did("truncate " + name + " " + std::to_string(size));
    overlay_->change_attributes(node(name), {.size_bytes = size});
  }
  void zero(const std::string& name, Witness& witness) {
    const std::uint64_t at = offset_in(witness.now());
    const std::uint64_t length = 1 + pick(300000);
    const bool extends = pick(2);
    std::string after = witness.now();
    if (extends && after.size() < at + length) after.resize(at + length);
    if (const auto size = after.size(); at < size) after.replace(at, length, std::min(length, size - at), '\0');
    witness.change(std::move(after));
    did("zero " + name + " " + std::to_string(length) + "@" + std::to_string(at));
    overlay_->allocate(node(name), extends ? AllocateMode::zero_range : AllocateMode::punch_hole, at, length);
  }
  void sync(const std::string& name, Witness& witness) {
    did("fsync " + name);
    overlay_->sync_file(node(name));
    witness.since_sync = witness.since_flush = {witness.now()};
  }
  void make() {
    const std::string name = "new" + std::to_string(pick(4));
    if (files_.contains(name)) return write(name, files_.at(name));
    did("make " + name);
    if (node(name)) overlay_->unlink(kRootNode, name);  // its first fsync was cut short
    const NodeId made = overlay_->make_node(kRootNode, name, kFile, 0, {}).node;
    const std::string text = random_text(1 + pick(200000));
    overlay_->write(made, 0, std::as_bytes(std::span(text)), WriteOrigin::call);
    overlay_->sync_file(made);  // from here on it is promised
    files_[name].change(text);
  }
  void flush() {
    did("flush");
    overlay_->flush(false);
    for (auto& [name, witness] : files_) witness.since_flush = {witness.now()};
  }

  void step() {
    auto file = std::next(files_.begin(), static_cast<long>(pick(files_.size())));
    switch (pick(10)) {
      case 0:
      case 1:
      case 2: return write(file->first, file->second);
      case 3: return resize(file->first, file->second);
      case 4: return zero(file->first, file->second);
      case 5:
      case 6: return sync(file->first, file->second);
      case 7: return flush();
      case 8: return staging_.write_back(coin(2));
      default: return make();
    }
  }

  // Every byte, and the size, is one that the file had in one of the versions. What lies behind the end of one of them
  // may also be a zero: the size can reach the disk before the bytes do.
  void expect_one_of(const std::string& name, const std::string& found, const std::vector<std::string>& versions) {
    std::size_t shortest = versions.front().size(), longest = shortest;
    for (const std::string& version : versions) {
      shortest = std::min(shortest, version.size());
      longest = std::max(longest, version.size());
    }
    EXPECT_LE(shortest, found.size()) << name;
    EXPECT_GE(longest, found.size()) << name;
    for (std::size_t begin = 0; begin < found.size(); begin += 4096) {
      const std::string_view part = std::string_view(found).substr(begin, 4096);
      const auto is_part = [&](const std::string& version) {
        return begin <= version.size() && std::string_view(version).substr(begin, part.size()) == part;
      };
      if (std::any_of(versions.begin(), versions.end(), is_part)) continue;
      for (std::size_t i = 0; i < part.size(); ++i) {
        const std::size_t at = begin + i;
        const auto is_byte = [&](const std::string& v) { return at < v.size() && v[at] == part[i]; };
        if (std::any_of(versions.begin(), versions.end(), is_byte) || (part[i] == '\0' && at >= shortest)) continue;
        ADD_FAILURE() << name << ": byte " << at << " of " << found.size() << " is " << int(part[i])
                      << ", which it was in none of " << versions.size() << " versions since its last fsync";
        return;
      }
    }
  }
  void check(std::vector<std::string> Witness::* since) {
    for (auto& [name, witness] : files_) {
      const NodeId id = node(name);
      if (!id) {
        ADD_FAILURE() << name << " is gone";
        continue;
      }
      const std::string found = read(id);
      expect_one_of(name, found, witness.*since);
      // After a kill the disk may still have less.
      if (since == &Witness::since_sync) witness.since_sync.clear();
      witness.since_flush.clear();
      witness.change(found);
    }
  }

  void lose_power() {
    overlay_->abandon();
    power_.come_back();
    overlay_.reset();
    const std::size_t durable = journal_.durable_count();
    journal_.lose_power(durable + pick(journal_.batch_count() - durable + 1));
    const std::size_t rarity = 1 + pick(3);
    staging_.crash(pick(4) ? coin(rarity) : [] { return false; });
    did("power loss");
    open();
    check(&Witness::since_sync);
  }
  // What the page cache has is still there.
  void kill() {
    overlay_->abandon();
    power_.come_back();
    overlay_.reset();
    did("kill");
    open();
    check(&Witness::since_flush);
  }

  void did(std::string what) {
    history_ += what + "\n";
    if (history_.size() > 20000) history_.erase(0, 10000);
  }

  std::mt19937_64 random_;
  support::FakePower power_;
  support::FakeObjectStore objects_;
  support::FakeStaging staging_;
  support::FakeJournal journal_;
  SystemClock clock_;
  NullLog log_;
  Overlay::Options options_;
  std::unique_ptr<Overlay> overlay_;
  std::map<std::string, Witness> files_;
  std::string history_;
};

TEST_F(PowerLoss, NoSyncedByteIsLostAndNoneComesFromNowhere) {
  const std::uint64_t seed = support::seed_of_this_run();
  const char* asked = std::getenv("ESCROW_MODEL_ROUNDS");
  const int rounds = asked ? std::atoi(asked) : 150;
  random_.seed(seed);
  begin();
  for (int round = 0; round < rounds; ++round) {
    const bool at_any_instant = pick(2) == 0;
    if (at_any_instant) power_.fail_after(static_cast<std::int64_t>(1 + pick(800)));
    try {
      for (std::size_t steps = 1 + pick(20); steps > 0; --steps) step();
    } catch (const Error&) {
      ASSERT_TRUE(power_.is_gone());
    }
    if (pick(4) == 0)
      kill();
    else
      lose_power();
    ASSERT_FALSE(HasFailure()) << "seed " << seed << ", round " << round << "; the last steps were:\n"
                               << history_.substr(history_.size() > 900 ? history_.size() - 900 : 0);
  }
}

}  // namespace
}  // namespace escrow::session
