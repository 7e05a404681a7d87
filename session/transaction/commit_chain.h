// The commits of one process that are on their way to a branch, each made on the one before it, so that their waits for
// the disk overlap: while one is being synced the next is made, and one compare-and-swap takes the branch past all that
// are ready.
//
// A link is a commit on its way. The order in which links join is the order of their commits. A link whose objects, or
// whose intent, cannot be written breaks those made on it, and so does a branch that others moved: they are made anew.
// Nobody may draw a conclusion from a commit that may still break (a conflict with it, say): join alone for that.
// From the first link to the last the process has its turn at the branch: when another process waits for that, nobody
// joins any more until all have landed and it has had its own. Thread-safe; a link is its thread's own. Errors are
// those of `swap` and of `take`.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "session/base/synchronized.h"
#include "session/interfaces/object_store.h"

namespace escrow::session {

class CommitChains {
 public:
  class Link;
  using Take = std::function<std::unique_ptr<ReferenceStore::Turn>()>;
  // Waits for the turn to make a commit for the branch, of this process too, which `take` brings. `alone`: also until
  // nothing is on its way any more, and nobody joins before this link is gone.
  std::unique_ptr<Link> join(const std::string& branch, bool alone, const Take& take);

 private:
  // durable: its objects and those of all before it are on disk. ready: so is its intent.
  enum class Stage { joined, made, durable, ready, landed, broken };
  struct Node {
    Stage stage = Stage::joined;
    std::optional<ObjectId> commit;            // from `made` on
    const Quarantine* quarantine = nullptr;
    std::string message;                       // of the reflog
    std::shared_ptr<Node> before;              // null: made on the branch's own head
    std::vector<std::shared_ptr<Node>> read;   // those whose quarantines this one reads
    int readers = 0;
    std::exception_ptr failure;                // of the swap it was part of
  };
  struct Chain {
    std::uint64_t now = 0, next = 0;           // turns to join, as numbers at a counter
    std::list<std::shared_ptr<Node>> nodes;    // joined, and neither landed nor broken; oldest first
    bool is_landing = false;
    std::unique_ptr<ReferenceStore::Turn> turn;  // from the first node to the last
  };
  using Chains = std::map<std::string, Chain>;

  static void break_from(Chain& chain, const std::shared_ptr<Node>& first);
  static void end_turn_without_nodes(Chain& chain);
  static void stop_reading(Node& node);

  Synchronized<Chains> chains_;      // by branch
  std::condition_variable changed_;  // with `chains_`
};

class CommitChains::Link {
 public:
  Link(CommitChains& chains, const std::string& branch, bool alone, const Take& take);
  // Breaks what was made on it unless it has landed, and waits until nobody reads its quarantine.
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // What the commit is to be made on; nullopt: the branch's own head.
  std::optional<ObjectId> before() const;
  // Quarantines that hold what before() reaches and the repository may not have yet; they stay until published().
  std::vector<const Quarantine*> unlanded() const;

  // `commit` is in `quarantine`: the next one may be made on it.
  void made(const ObjectId& commit, const Quarantine& quarantine, const std::string& reflog_message);
  // Its objects are on disk: waits for those of the links before it. False: it is broken.
  bool published();
  // Its intent is on disk: waits for the branch to move past it. `swap` moves it, by this thread or another's; what it
  // throws every link gets that it was called for. False: others were there first, or it is broken.
  using Swap = std::function<bool(const std::vector<ReferenceStore::Move>& moves)>;
  bool land(const Swap& swap);

 private:
  void pass_turn(Chain& chain);
  void take_turn(Synchronized<Chains>::Write& held, const Take& take);
  bool is_oldest(const Chain& chain) const { return !chain.nodes.empty() && chain.nodes.front() == node_; }

  CommitChains& chains_;
  const std::string branch_;
  const bool is_alone_;
  bool has_turn_ = true;
  const std::shared_ptr<Node> node_ = std::make_shared<Node>();  // guarded by the chains' lock
};

}  // namespace escrow::session
