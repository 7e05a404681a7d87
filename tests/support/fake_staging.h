// Staging files in memory, sparse in blocks of 4 KiB as on ext4. Thread-safe. A test can pull the plug: of what was not
// synced each block, size and name is then as it was at the last sync or as it was written, as the test decides.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "session/base/synchronized.h"
#include "session/interfaces/staging_area.h"
#include "tests/support/fake_power.h"

namespace escrow::support {

class FakeStaging : public session::StagingArea {
 public:
  void create(session::StagingId id) override;
  void remove(session::StagingId id) override;
  std::vector<session::StagingId> list() const override;
  session::StagingUsage usage(session::StagingId id) const override;
  std::size_t read(session::StagingId id, std::uint64_t offset, std::span<std::byte> out) const override;
  void write(session::StagingId id, std::uint64_t offset, std::span<const std::byte> bytes) override;
  void write_copy(session::StagingId id, std::uint64_t offset, std::span<const std::byte> bytes) override {
    write(id, offset, bytes);
  }
  void truncate(session::StagingId id, std::uint64_t size_bytes) override;
  void allocate(session::StagingId id, std::uint64_t offset, std::uint64_t length, bool extend) override;
  void punch_hole(session::StagingId id, std::uint64_t offset, std::uint64_t length) override;
  void zero_range(session::StagingId id, std::uint64_t offset, std::uint64_t length, bool extend) override;
  std::optional<std::uint64_t> seek(session::StagingId id, std::uint64_t offset,
                                    session::SeekTarget target) const override;
  std::uint64_t era() const override { return state_.lock()->era; }
  void write_behind() override {}
  // In memory: there is nothing to hand out.
  std::unique_ptr<session::RawFile> raw(session::StagingId) override { return nullptr; }
  bool has_writers(session::StagingId) const override { return false; }
  Lost lost(session::StagingId id) const override;
  void sync(session::StagingId id) override;
  void sync_directory() override;
  void sync_all() override;
  std::uint64_t held_bytes() const override;
  void limit_waste(std::uint64_t) override {}
  FreeSpace free_space() const override;

  // `heir` has these files, too, as they are now.
  void share(const std::vector<session::StagingId>& files, FakeStaging& heir) const;

  // Power loss. Each thing that was not synced survives when `survives` says so.
  void crash(const std::function<bool()>& survives = [] { return false; });
  // What the kernel does now and then: some of what was written reaches the disk, and nobody is told.
  void write_back(const std::function<bool()>& chosen);
  // Writes and syncs use it up.
  void use_power(FakePower& power) { power_ = &power; }
  // From now on a write that needs a block beyond this many throws Error{no_space}, as a full disk does.
  void limit_blocks(std::optional<std::uint64_t> blocks_of_4096);
  // The next sync() fails, and so does every later one of its file until it is emptied.
  void fail_next_sync() { state_.lock()->fails_next_sync = true; }
  // In the next sync_all() syncfs(2) fails, so that each file is synced by itself.
  void fail_next_sync_of_all() { state_.lock()->fails_next_sync_of_all = true; }
  // How often sync(), and how often sync_all() was called.
  std::uint64_t syncs() const;

 private:
  static constexpr std::uint64_t kBlock = 4096;
  using Block = std::array<std::byte, kBlock>;
  struct File {
    std::uint64_t size = 0;
    std::map<std::uint64_t, Block> blocks;  // by offset / kBlock; absent: a hole
  };
  struct State {
    std::map<session::StagingId, File> files;
    std::map<session::StagingId, File> durable;    // contents at the last sync
    std::set<session::StagingId> durable_names;
    std::optional<std::uint64_t> block_limit;
    std::uint64_t syncs = 0;
    bool fails_next_sync = false, fails_next_sync_of_all = false;
    std::uint64_t era = 1;
    std::set<session::StagingId> damaged;
  };
  static File& file(State& state, session::StagingId id);
  static Block& block_for_write(State& state, File& file, std::uint64_t index);
  static void zero(File& file, std::uint64_t offset, std::uint64_t length);

  void use_power() const {
    if (power_) power_->use();
  }
  static File mixed(const File& durable, const File& written, const std::function<bool()>& survives);

  FakePower* power_ = nullptr;                  // constant once files are used
  mutable session::Synchronized<State> state_;  // self-locking
};

}  // namespace escrow::support
