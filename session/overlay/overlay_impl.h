// The overlay's inner functions: internal to session/overlay*.cc.
//
// Functions that take an OverlayState& run under its lock (exclusive unless it is const). Those named *_ready make
// sure first, without the lock, that a directory's base entries have been read.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "session/base/error.h"
#include "session/overlay/listings_under_way.h"
#include "session/overlay/overlay_state.h"

namespace escrow::session {

struct Overlay::Impl {
  using Locked = SharedSynchronized<OverlayState>;

  Impl(Options options, const ObjectReader& objects, StagingArea& staging, SessionJournal& journal, Clock& clock,
       Log& log);
  ~Impl();

  // Finding (overlay.cc)
  static Found find(const OverlayState& state, NodeId id);
  static bool ready(const OverlayState& state, NodeId directory);
  static NodeId child_of(const Node& directory, std::string_view name);
  void make_ready(NodeId directory);
  Locked::Write lock_ready(NodeId directory);
  Locked::Read lock_ready_shared(NodeId directory);
  // The directory in memory, from its listing entry when need be. Throws not_a_directory, not_found.
  Node& directory_node(OverlayState& state, NodeId id);
  void install_listing(OverlayState& state, Node& directory, Tree tree, ListedTimes times);
  ListedTimes times_of(const Tree& tree, const TimesBelow& directory) const;
  void drop_clean(OverlayState& state, NodeId directory);

  // Attributes (overlay.cc)
  std::uint32_t base_permissions(GitMode mode) const;
  Attributes describe(const Node& node) const;
  Attributes describe(const TreeEntry& entry, NodeId id, Timestamp modified) const;
  Attributes describe(const Found& found, NodeId id) const;
  Attributes attributes(Locked::Read state, NodeId id);

  // Paths (overlay_paths.cc)
  // Below the root; nullopt: a directory of it was removed.
  static std::optional<std::string> path_of(const OverlayState& state, const Link& link);

  // Bytes that change without a call (overlay_raw.cc)
  std::shared_ptr<Content> content_of(NodeId id);
  void learn(NodeId id, Content& content, const Timestamp& modified);
  void learn(NodeId id);

  // Staging (overlay_names.cc)
  Node& stage(OverlayState& state, NodeId id);
  std::unique_ptr<Node> materialise(const Found& found, NodeId id);
  void mark(OverlayState& state, Node& node);
  // The cookie of a name; 0: the directory does not have it.
  static std::uint64_t place_of(const Node& directory, std::string_view name);
  // `place`: the cookie of the name whose place it takes, 0: a new one.
  void add_edge(OverlayState& state, Node& directory, std::string_view name, Node& node, std::uint64_t place = 0);
  void remove_edge(OverlayState& state, Node& directory, std::string_view name, Node& node);
  void touch(OverlayState& state, Node& directory);
  void forget_rows(OverlayState& state, Node& node);
  void destroy_if_unused(OverlayState& state, Node& node);
  void detach(OverlayState& state, Node& directory, std::string_view name, NodeId child);
  void orphan_subtree(OverlayState& state, Node& top);
  Node& live_directory(OverlayState& state, NodeId id);
  static bool is_empty(const Node& directory);
  bool is_below(const OverlayState& state, NodeId node, NodeId ancestor) const;
  Node& new_node(OverlayState& state, std::uint32_t mode, std::uint32_t uid, std::uint32_t gid);
  Attributes insert(NodeId directory, std::string_view name, const std::function<Node&(OverlayState&, Node&)>& make);
  std::shared_ptr<Content> content_to_change(NodeId id);
  template <typename Form>
  std::shared_ptr<Content> new_content(Form form) const {
    return std::make_shared<Content>(content_services, std::move(form));
  }

  // Trees (overlay_tree.cc)
  class TreeBuilder;
  std::pair<NodeId, bool> directory_for(std::string_view path, bool create, std::vector<Stale>& stale);

  // Savepoints (overlay_savepoints.cc)
  class Restoring;
  Savepoint savepoint(std::string_view name);
  std::optional<std::string> raw_file();
  void refuse_raw_files();
  // Staging files from this one on belong to one content each, which may write to them.
  std::uint64_t first_of_its_own(const OverlayState& state);

  // Journal (overlay_journal.cc)
  struct Writer {
    explicit Writer(SessionJournal& j) : journal(j) {}
    SessionJournal& journal;
    std::uint64_t appended = 0;  // changes up to here were appended ...
    std::uint64_t durable = 0;   // ... and synced
    std::vector<std::shared_ptr<Content>> unnamed;  // their files are removable after the next barrier
  };
  struct Taken;
  BaseTimes::Directory times_of_root() const;
  void load_edges(OverlayState& state, const std::vector<EdgeRow>& edges);
  bool lost_power(const NodeRow& row) const;
  Content::Recorded recorded_in(const NodeRow& row, const std::unordered_set<StagingId>& present) const;
  static void add_files(std::unordered_set<StagingId>& files, const Content& content);
  static void add_recorded_files(Writer& now_writing, std::unordered_set<StagingId>& files);
  void remove_unnamed_staging(Writer& now_writing, const OverlayState& state,
                              const std::unordered_set<StagingId>& present);
  Taken take(OverlayState& state);
  void give_back(OverlayState& state, Taken& taken);
  void sync_replacing(const Taken& taken);
  void fill_contents(Taken& taken);
  void remove_unused(std::vector<std::shared_ptr<Content>>& removed);
  void flush(bool durable);
  void append_changes(Writer& now_writing, std::optional<Savepoint> seals, LayerId drops);
  void make_durable(Writer& now_writing);
  void run_flusher();
  void wake(bool full);

  // Contents that settle (overlay_settled.cc)
  struct Settling {
    struct Item {
      std::weak_ptr<Content> content;
      std::uint64_t version;  // when it was recorded
      std::chrono::steady_clock::time_point due;
    };
    std::deque<Item> queue;
    bool stop = false;
  };
  void settle_later(const std::vector<std::pair<std::size_t, std::shared_ptr<Content>>>& recorded);
  // The blob of the content, put unless it is known; nullopt: the disk lost bytes of it.
  static std::optional<ObjectId> store(Content& content, Quarantine& quarantine, const std::function<void()>& go_on,
                                       BlobKind kind = BlobKind::bytes);
  std::function<void()> while_storing;  // constant while a tree is built

  // Contents of which a power loss would leave less than was written (overlay_unsynced.cc)
  struct Unsynced {
    struct Item {
      NodeId node;
      std::weak_ptr<Content> content;
      std::chrono::steady_clock::time_point due;
    };
    std::deque<Item> queue;  // by due
    std::unordered_set<NodeId> queued;
    bool stop = false;
    std::thread thread;  // from the first item on
  };
  // With more contents than this one syncfs is cheaper than a sync each.
  static constexpr std::size_t kSyncAllThreshold = 64;
  // Syncs all staging files at once if there are many contents. The caller still syncs each one, which costs nothing
  // after a success, and says what could not be synced. `form_became_durable`: of which content.
  void sync_if_many(const std::vector<Content*>& contents,
                    const std::function<void(std::size_t)>& form_became_durable = {});
  std::shared_ptr<Content> content_to_sync(NodeId id) const;
  void sync_later(NodeId node, const std::shared_ptr<Content>& content);
  void run_syncer();
  void stop_syncing();
  void sync_unsynced(std::vector<Unsynced::Item> items);
  void mark_recorded_anew(NodeId node, const Content& content);
  // Returns the truncated files whose rows still name the old length.
  std::vector<Unsynced::Item> load();
  void record_what_was_left(std::vector<Unsynced::Item> cut_short);

  const Options options;          // constant
  const ObjectReader& objects;    // constant, as the next; self-locking
  const ObjectReader& base_files; // for the sizes and the bytes of regular files
  StagingArea& staging;           // self-locking
  Clock& clock;                   // self-locking
  Log& log;                       // self-locking
  std::atomic<std::uint64_t> next_staging{1};
  std::atomic<std::uint64_t> sealed_below{0};     // see ContentServices; changed under `writer`, with writes paused
  Synchronized<std::vector<Savepoint>> savepoints;  // leaf; as the journal has them, oldest first
  ContentServices content_services;  // constant
  Synchronized<std::string> last_unreadable;  // leaf

  Synchronized<Writer> writer;    // taken before `guarded`
  Locked guarded;

  ListingsUnderWay listings;        // self-locking
  Synchronized<Unsynced> unsynced;  // leaf
  std::condition_variable unsynced_changed;
  Synchronized<Settling> settling;  // leaf
  std::condition_variable settled;
  struct Signal {
    bool stop = false, pending = false, full = false;
  };
  Synchronized<Signal> signal;    // leaf
  std::condition_variable signalled;
  std::atomic<bool> abandoned{false};
  std::thread flusher;            // started last
};

// The error that a commit, or a look at its changes, reports for a file whose staged content is lost.
Error unreadable(const std::string& path, const Error& why);

}  // namespace escrow::session
