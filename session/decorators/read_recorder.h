// Notes what the programs of a serializable session read of its base, in a ReadSet and, before anybody sees what was
// read, in the session's ReadLog: so a kill forgets nothing. What the session has made itself is not noted.
//
// Thread-safe: what was noted before costs a look at one word, without a lock. Where the log cannot be written, or may
// lack something (after a power loss), everything counts as read. Throws what the log throws where not even that can be
// recorded: the caller must not see what it was about to read.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "session/base/log.h"
#include "session/base/synchronized.h"
#include "session/interfaces/read_log.h"
#include "session/overlay/overlay.h"
#include "session/trees/read_set.h"

namespace escrow::session {

class ReadRecorder {
 public:
  // All must outlive it. Loads the log.
  ReadRecorder(Overlay& overlay, ReadLog& log_file, Log& log, std::size_t most_bytes = ReadSet::kMost_bytes);
  ReadRecorder(const ReadRecorder&) = delete;
  ReadRecorder& operator=(const ReadRecorder&) = delete;

  void looked_at(NodeId node) { note(node, kLookedAt); }
  void read(NodeId node) { note(node, kRead); }
  // After the overlay was asked for it.
  void listed(NodeId directory);
  void missed(NodeId directory, std::string_view name);

  // What this thread notes while one exists is on record when it is destroyed by way of end(): one write for a listing.
  class Batch {
   public:
    explicit Batch(ReadRecorder& recorder);
    ~Batch();
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;
    void end();

   private:
    friend class ReadRecorder;
    ReadRecorder& recorder_;
    Batch* const outer_;
    std::vector<std::pair<NodeId, std::uint8_t>> noted_;
  };

  // A verb is about to make these paths, below the root, what some tree has there: they count as read, with all below.
  void taken_in(const std::vector<std::string>& paths);
  // The same of a verb that knows the paths only afterwards: if it ends without them, by a kill or a throw, everything
  // counts as read.
  void begin_taking_in();
  void end_taking_in(const std::vector<std::string>& paths);

  ReadSet now();
  // The session is about to be detached: what was noted is on disk on return, or the log says so.
  void close() noexcept;

 private:
  static constexpr std::uint8_t kLookedAt = 1, kRead = 2, kListed = 4, kOwn = 8;  // kOwn: nothing of the base

  // Four bits for each node, in pages made when they are needed. Beyond the last one nothing is remembered.
  class Noted {
   public:
    ~Noted();
    bool has(NodeId node, std::uint8_t bits) const;
    void add(NodeId node, std::uint8_t bits);

   private:
    static constexpr std::uint64_t kNodesInWord = 16, kWordsInPage = 2048, kPages = 1024;
    using Page = std::array<std::atomic<std::uint64_t>, kWordsInPage>;
    std::array<std::atomic<Page*>, kPages> pages_{};
  };

  struct Block {
    std::uint64_t first = 0, count = 0;
    ReadSet::Id directory = ReadSet::kCovered;
  };
  struct State {
    explicit State(std::size_t most_bytes) : set(most_bytes) {}
    ReadSet set;
    bool is_log_to_be_given_up = false;  // it lacks something, and does not say so yet
    std::map<std::uint64_t, Block> blocks;                    // by first node
    std::unordered_map<NodeId, ReadSet::Id> directories;
  };

  void note(NodeId node, std::uint8_t what) {
    if (!noted_.has(node, what)) note_first(node, what);
  }
  void note_first(NodeId node, std::uint8_t what);
  void remember(NodeId node, std::uint8_t what, State& state);
  const Block* block_with(State& state, NodeId node);
  ReadSet::Id directory(State& state, NodeId node);
  const char* load(State& state);
  void take_everything(State& state, const std::string& why);
  void write(State& state);
  void give_up(State& state);

  Overlay& overlay_;    // constant; self-locking
  ReadLog& log_file_;   // used under the lock
  Log& log_;            // constant; self-locking
  Noted noted_;         // atomic
  Synchronized<State> state_;
};

}  // namespace escrow::session
