// The bytes of one regular file of a session: a base, a staging file, or the one showing through the other
// (content_form.h).
//
// The first write makes the staging file: small bases are copied, large ones are copied block by block as they are
// touched. So does the first write after a savepoint has sealed the staging file: what was written until then is the
// base from there on.
//
// A power loss may leave less of the staging file than was written. So the content knows two forms of itself: the one
// that was written, and the one that is on disk for certain, as of its last sync. The journal names both, and loading
// picks one (recorded(), as_left()): a block that was copied up and never synced shows the base again, not a hole.
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

#include "session/base/synchronized.h"
#include "session/interfaces/file_system.h"
#include "session/interfaces/object_store.h"
#include "session/interfaces/staging_area.h"
#include "session/overlay/block_map.h"
#include "session/overlay/content_form.h"
#include "session/overlay/lost_bytes.h"

namespace escrow::session {

// What contents share; outlives them.
struct ContentServices {
  const ObjectReader& objects;
  StagingArea& staging;
  std::function<StagingId()> next_staging_id;
  // Staging files before this one may be a savepoint's: nobody writes to them. Changed only while nothing is written.
  const std::atomic<std::uint64_t>& sealed_below;
};

// A commit stores a file as its bytes, or as the pointer to them (Quarantine::put_lfs_file()).
enum class BlobKind { bytes, lfs_pointer };

class Content {
 public:
  // As kept in NodeRow.
  using Form = ContentForm;
  struct Recorded {
    Form form;
    bool is_durable = true;
    Form durable;  // unless is_durable: what a power loss leaves for certain; nothing: whatever the staging file has
  };

  Content(const ContentServices& services, Form form) : services_(services), state_(std::move(form)) {}
  Content(const ContentServices& services, Recorded recorded)
      : services_(services), state_(std::move(recorded.form)) {
    if (!recorded.is_durable) set_durable(std::move(recorded.durable));
  }

  Form form() const;
  bool is_staged() const { return static_cast<bool>(state_.lock_shared()->form.staging); }
  // What the journal is to name.
  Recorded recorded() const;
  // What recorded() has become when it is read again. `lost_power`: what was not synced may be gone. `present`: whether
  // a staging file is there.
  static Recorded as_left(Recorded recorded, bool lost_power, const std::function<bool(StagingId)>& present,
                          const StagingArea& staging);
  // The base blob when these bytes are exactly its, else null.
  ObjectId unchanged_base() const;

  StagingUsage usage() const;
  std::size_t read(std::uint64_t offset, std::span<std::byte> out) const;
  void write(std::uint64_t offset, std::span<const std::byte> bytes);
  // How much of the staging file's size is holes that no base shows through: the commit reads them all the same.
  std::uint64_t holes() const;
  // At most how much more the disk holds of the file, or its holes are, once these bytes have been written.
  std::uint64_t growth(std::uint64_t offset, std::uint64_t length) const;
  void truncate(std::uint64_t size_bytes);
  void allocate(AllocateMode mode, std::uint64_t offset, std::uint64_t length);
  std::optional<std::uint64_t> seek(std::uint64_t offset, SeekTarget target) const;
  // fdatasync of the staging file, unless nothing was written since the last. True: more of the form is durable now.
  bool sync();
  // For a sync of many contents at once: what to tell the content when it has succeeded.
  struct SyncedUpTo {
    std::uint64_t version = 0, structure = 0;
    Form form;
  };
  SyncedUpTo begin_sync() const;
  bool end_sync(SyncedUpTo reached);
  // Whether bytes may be lost (StagingArea::lost): they are to be committed by nobody.
  bool is_damaged() const;

  // Bytes that were stored through a mapping and did not get here. Whatever writes or cuts off their place gives the
  // file bytes of its own again.
  void lose(std::uint64_t offset, std::uint64_t size_bytes);
  void set_lost(LostBytes lost);
  LostBytes lost() const;
  bool has_lost() const { return has_lost_.load(); }

  // The staging file itself, when it holds all of the bytes; else nullptr. After open_raw(true) the bytes may change
  // without a call here: to the matching close_raw(), and as long as a mapping made meanwhile lives.
  std::unique_ptr<RawFile> open_raw(bool write);
  void close_raw(bool write);
  // Whether somebody reads or writes the staging file without a call here, as far as opens tell.
  bool is_open_raw() const;
  // As open_raw(true) and close_raw(), by a process that is gone: what changed after `last_seen` is noticed.
  void was_raw(const Timestamp& last_seen);
  // Whether the bytes may change, or may have changed, without a call here.
  bool is_exposed() const { return exposed_.load(); }
  // Whether the bytes could ever change without a call here: the staging file tells the times of such changes.
  bool was_exposed() const { return noticed_ns_.load() != kNeverNoticed; }
  // Ends that once nobody can write the staging file any more. False: somebody still can.
  bool settle();
  // Whether `modified`, of the staging file, tells of a change that made no call here; true once for each.
  bool notice(const Timestamp& modified);
  bool would_notice(const Timestamp& modified) const;

  // Grows with every change of the bytes.
  std::uint64_t version() const { return version_.load(); }
  // The blob of this kind for the bytes of the current version, if remember_blob() has been told.
  std::optional<ObjectId> known_blob(BlobKind kind) const;
  void remember_blob(std::uint64_t version, const ObjectId& blob, BlobKind kind);

  // Whether these bytes took the place of others under the same name (truncated, renamed over): then they must be on
  // disk before the row that names them is written.
  // The flag goes with the sync that follows: give it back when that fails.
  bool take_replaces_others() { return replaces_others_.exchange(false); }
  void set_replaces_others() { replaces_others_.store(true); }

 private:
  struct State {
    explicit State(Form f) : form(std::move(f)) {}
    Form form;
    std::uint64_t structure = 1;     // changes of the form, not of bytes in it
    bool is_durable = true;          // the form; else ...
    std::unique_ptr<Form> durable;   // ... this much of it is, null: nothing
    std::uint64_t durable_structure = 0;  // when it was synced
    std::shared_ptr<const ByteSource> base_source;  // opened at the first read
    std::uint64_t known_version = 0;
    ObjectId known_blob;
    BlobKind known_kind = BlobKind::bytes;
    std::uint64_t raw_writers = 0, raw_readers = 0;  // open_raw() without its close_raw()
  };
  using Locked = SharedSynchronized<State>;

  bool only_staged(const State& state) const;
  std::uint64_t size_of(const State& state) const;
  std::shared_ptr<const ByteSource> base_source() const;
  bool is_sealed(const State& state) const;
  // What a savepoint has sealed is copied, or a base from here on. Nothing at or past `kept_bytes` is needed.
  void unseal(State& state, std::uint64_t kept_bytes = std::numeric_limits<std::uint64_t>::max());
  void copy(const Form& over, std::uint64_t size_bytes);
  void make_staging(State& state, std::uint64_t size_bytes);
  // Copies from the base what [begin, end) of the file needs; blocks wholly inside [skip_begin, skip_end) are about
  // to be overwritten and only marked.
  void fill(State& state, std::uint64_t begin, std::uint64_t end, std::uint64_t skip_begin, std::uint64_t skip_end);
  void copy_block(State& state, std::uint64_t block);
  void mark_held(State& state, std::uint64_t begin, std::uint64_t end);
  void drop_base_when_complete(State& state);
  void prepare_write(State& state, std::uint64_t offset, std::uint64_t length);
  void changed();
  void copy_again();
  // Before each change of the form.
  void restructure(State& state);
  void set_durable(Form durable);
  void found_again(std::uint64_t begin, std::uint64_t end);

  const ContentServices& services_;       // constant
  mutable Locked state_;                  // self-locking
  std::atomic<std::uint64_t> version_{1};
  std::atomic<std::uint64_t> synced_version_{0};
  std::atomic<bool> replaces_others_{false};
  mutable Synchronized<LostBytes> lost_;      // self-locking
  std::atomic<bool> has_lost_{false};         // so that a write need not ask; set under its lock
  std::atomic<bool> exposed_{false};          // set under the lock of state_
  // The staging file's last modification that is known of, once it was exposed.
  static constexpr std::int64_t kNeverNoticed = std::numeric_limits<std::int64_t>::max();
  std::atomic<std::int64_t> noticed_ns_{kNeverNoticed};
};

}  // namespace escrow::session
