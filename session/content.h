// The bytes of one regular file of a session: a base blob, a staging file, or the one showing through the other.
//
// content = {base, base_length, block map, staging}. Byte i is in the staging file when its block is held there or i is
// at or past base_length; else it is the base's. Without a staging file the size is base_length. The first write
// makes the staging file: small bases are copied, large ones are copied block by block as they are touched.
//
// Thread-safe; its own lock is a leaf (INVARIANTS.md) and is held across I/O on its own two files only. Durability:
// sync() makes the bytes durable, the row that names them is the journal's.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>

#include "session/block_map.h"
#include "session/file_system.h"
#include "session/object_store.h"
#include "session/staging_area.h"
#include "session/synchronized.h"

namespace escrow::session {

// What contents share; outlives them.
struct ContentServices {
  const ObjectReader& objects;
  StagingArea& staging;
  std::function<StagingId()> next_staging_id;
};

class Content {
 public:
  // The durable form, as kept in NodeRow.
  struct Form {
    ObjectId base;                  // null: none
    std::uint64_t base_length = 0;
    StagingId staging;              // 0: none
    BlockMap map;                   // meaningful with both base and staging
  };

  Content(const ContentServices& services, Form form) : services_(services), state_(std::move(form)) {}

  Form form() const;
  // The base blob when these bytes are exactly its, else null.
  ObjectId unchanged_base() const;

  StagingUsage usage() const;
  std::size_t read(std::uint64_t offset, std::span<std::byte> out) const;
  void write(std::uint64_t offset, std::span<const std::byte> bytes);
  void truncate(std::uint64_t size_bytes);
  void allocate(AllocateMode mode, std::uint64_t offset, std::uint64_t length);
  std::optional<std::uint64_t> seek(std::uint64_t offset, SeekTarget target) const;
  // fdatasync of the staging file, unless nothing was written since the last.
  void sync();

  // The staging file itself, when it holds all of the bytes; else nullptr. After open_raw(true) the bytes may change
  // without a call here: to the matching close_raw(), and as long as a mapping made meanwhile lives.
  std::unique_ptr<RawFile> open_raw(bool write);
  void close_raw();
  // As open_raw(true) and close_raw(), by a process that is gone: what changed after `last_seen` is noticed.
  void was_raw(const Timestamp& last_seen);
  // Whether the bytes may change, or may have changed, without a call here.
  bool is_exposed() const { return exposed_.load(); }
  // Ends that once nobody can write the staging file any more. False: somebody still can.
  bool settle();
  // Whether `modified`, of the staging file, tells of a change that made no call here; true once for each.
  bool notice(const Timestamp& modified);
  bool would_notice(const Timestamp& modified) const;

  // Grows with every change of the bytes.
  std::uint64_t version() const { return version_.load(); }
  // The blob that holds exactly the bytes of the current version, if remember_blob() has been told.
  std::optional<ObjectId> known_blob() const;
  void remember_blob(std::uint64_t version, const ObjectId& blob);

  // Whether these bytes took the place of others under the same name (copied up, truncated, renamed over): then they
  // must be on disk before the row that names them is written.
  // The flag goes with the sync that follows: give it back when that fails.
  bool take_replaces_others() { return replaces_others_.exchange(false); }
  void set_replaces_others() { replaces_others_.store(true); }

 private:
  struct State {
    explicit State(Form f) : form(std::move(f)) {}
    Form form;
    std::shared_ptr<const ByteSource> base_source;  // opened at the first read
    std::uint64_t known_version = 0;
    ObjectId known_blob;
    std::uint64_t raw_writers = 0;  // open_raw(true) without its close_raw()
  };
  using Locked = SharedSynchronized<State>;

  bool only_staged(const State& state) const;
  std::uint64_t size_of(const State& state) const;
  std::shared_ptr<const ByteSource> base_source() const;
  void make_staging(State& state, std::uint64_t size_bytes);
  // Copies from the base what [begin, end) of the file needs; blocks wholly inside [skip_begin, skip_end) are about
  // to be overwritten and only marked.
  void fill(State& state, std::uint64_t begin, std::uint64_t end, std::uint64_t skip_begin, std::uint64_t skip_end);
  void copy_block(State& state, std::uint64_t block);
  void drop_base_when_complete(State& state);
  void prepare_write(State& state, std::uint64_t offset, std::uint64_t length);
  void changed();

  const ContentServices& services_;       // constant
  mutable Locked state_;                  // self-locking
  std::atomic<std::uint64_t> version_{1};
  std::atomic<std::uint64_t> synced_version_{0};
  std::atomic<bool> replaces_others_{false};
  std::atomic<bool> exposed_{false};          // set under the lock of state_
  // The staging file's last modification that is known of, once it was exposed.
  static constexpr std::int64_t kNeverNoticed = std::numeric_limits<std::int64_t>::max();
  std::atomic<std::int64_t> noticed_ns_{kNeverNoticed};
};

}  // namespace escrow::session
