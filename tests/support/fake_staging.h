// Staging files in memory, sparse in blocks of 4 KiB as on ext4. Thread-safe. A test can pull the plug: what was not
// synced is then as it was at the last sync, and files whose directory entry was not synced are gone.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "session/staging_area.h"
#include "session/synchronized.h"

namespace escrow::support {

class FakeStaging final : public session::StagingArea {
 public:
  void create(session::StagingId id) override;
  void remove(session::StagingId id) override;
  std::vector<session::StagingId> list() const override;
  session::StagingUsage usage(session::StagingId id) const override;
  std::size_t read(session::StagingId id, std::uint64_t offset, std::span<std::byte> out) const override;
  void write(session::StagingId id, std::uint64_t offset, std::span<const std::byte> bytes) override;
  void truncate(session::StagingId id, std::uint64_t size_bytes) override;
  void allocate(session::StagingId id, std::uint64_t offset, std::uint64_t length, bool extend) override;
  void punch_hole(session::StagingId id, std::uint64_t offset, std::uint64_t length) override;
  void zero_range(session::StagingId id, std::uint64_t offset, std::uint64_t length, bool extend) override;
  std::optional<std::uint64_t> seek(session::StagingId id, std::uint64_t offset,
                                    session::SeekTarget target) const override;
  void write_behind() override {}
  // In memory: there is nothing to hand out.
  std::unique_ptr<session::RawFile> raw(session::StagingId) override { return nullptr; }
  bool has_writers(session::StagingId) const override { return false; }
  void sync(session::StagingId id) override;
  void sync_directory() override;
  void sync_all() override;
  FreeSpace free_space() const override;

  // Power loss.
  void crash();
  // From now on a write that needs a block beyond this many throws Error{no_space}, as a full disk does.
  void limit_blocks(std::optional<std::uint64_t> blocks_of_4096);
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
  };
  static File& file(State& state, session::StagingId id);
  static Block& block_for_write(State& state, File& file, std::uint64_t index);
  static void zero(File& file, std::uint64_t offset, std::uint64_t length);

  mutable session::Synchronized<State> state_;  // self-locking
};

}  // namespace escrow::support
