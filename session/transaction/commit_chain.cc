#include "session/transaction/commit_chain.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace escrow::session {

std::unique_ptr<CommitChains::Link> CommitChains::join(const std::string& branch, bool alone, const Take& take) {
  return std::make_unique<Link>(*this, branch, alone, take);
}

void CommitChains::end_turn_without_nodes(Chain& chain) {
  if (chain.nodes.empty()) chain.turn.reset();
}

void CommitChains::stop_reading(Node& node) {
  for (const std::shared_ptr<Node>& other : node.read) --other->readers;
  node.read.clear();
}

// Those that land at this moment are before `first`.
void CommitChains::break_from(Chain& chain, const std::shared_ptr<Node>& first) {
  const auto begin = std::find(chain.nodes.begin(), chain.nodes.end(), first);
  for (auto at = begin; at != chain.nodes.end(); ++at) (*at)->stage = Stage::broken;
  chain.nodes.erase(begin, chain.nodes.end());
  end_turn_without_nodes(chain);
}

CommitChains::Link::Link(CommitChains& chains, const std::string& branch, bool alone, const Take& take)
    : chains_(chains), branch_(branch), is_alone_(alone) {
  auto held = chains_.chains_.lock();
  const std::uint64_t mine = (*held)[branch_].next++;
  chains_.changed_.wait(held.lock(), [&] {
    const Chain& chain = (*held)[branch_];
    return chain.now == mine && (chain.nodes.empty() || (!alone && !chain.turn->is_wanted()));
  });
  take_turn(held, take);
  Chain& chain = (*held)[branch_];
  if (!chain.nodes.empty()) node_->before = chain.nodes.back();
  node_->read.assign(chain.nodes.begin(), chain.nodes.end());
  for (const std::shared_ptr<Node>& other : node_->read) ++other->readers;
  chain.nodes.push_back(node_);
}

// Nobody else joins meanwhile. The chain has no nodes if it has no turn.
void CommitChains::Link::take_turn(Synchronized<Chains>::Write& held, const Take& take) {
  if ((*held)[branch_].turn) return;
  std::unique_ptr<ReferenceStore::Turn> turn;
  held.lock().unlock();
  try {
    turn = take();
  } catch (...) {
    held.lock().lock();
    pass_turn((*held)[branch_]);
    chains_.changed_.notify_all();
    throw;
  }
  held.lock().lock();
  (*held)[branch_].turn = std::move(turn);
}

CommitChains::Link::~Link() {
  auto held = chains_.chains_.lock();
  Chain& chain = (*held)[branch_];
  if (node_->stage != Stage::landed && node_->stage != Stage::broken) break_from(chain, node_);
  stop_reading(*node_);
  if (has_turn_) pass_turn(chain);
  chains_.changed_.notify_all();
  chains_.changed_.wait(held.lock(), [&] { return node_->readers == 0; });
  const auto found = held->find(branch_);
  const bool is_over = found != held->end() && found->second.now == found->second.next && found->second.nodes.empty();
  if (is_over) held->erase(found);
}

void CommitChains::Link::pass_turn(Chain& chain) {
  has_turn_ = false;
  ++chain.now;
}

std::optional<ObjectId> CommitChains::Link::before() const {
  const auto held = chains_.chains_.lock();
  return node_->before ? node_->before->commit : std::nullopt;
}

std::vector<const Quarantine*> CommitChains::Link::unlanded() const {
  const auto held = chains_.chains_.lock();
  std::vector<const Quarantine*> found;
  for (const std::shared_ptr<Node>& other : node_->read) found.push_back(other->quarantine);
  return found;
}

void CommitChains::Link::made(const ObjectId& commit, const Quarantine& quarantine, const std::string& message) {
  auto held = chains_.chains_.lock();
  node_->commit = commit;
  node_->quarantine = &quarantine;
  node_->message = message;
  if (node_->stage == Stage::joined) node_->stage = Stage::made;
  if (!is_alone_) pass_turn((*held)[branch_]);
  chains_.changed_.notify_all();
}

bool CommitChains::Link::published() {
  auto held = chains_.chains_.lock();
  stop_reading(*node_);
  chains_.changed_.notify_all();
  chains_.changed_.wait(held.lock(), [&] {
    const Node* before = node_->before.get();
    return node_->stage == Stage::broken || before == nullptr || before->stage == Stage::durable ||
           before->stage == Stage::ready || before->stage == Stage::landed;
  });
  if (node_->stage == Stage::broken) return false;
  node_->stage = Stage::durable;
  chains_.changed_.notify_all();
  return true;
}

bool CommitChains::Link::land(const Swap& swap) {
  auto held = chains_.chains_.lock();
  if (node_->stage != Stage::broken) node_->stage = Stage::ready;
  chains_.changed_.notify_all();
  chains_.changed_.wait(held.lock(), [&] {
    const Chain& chain = (*held)[branch_];
    return node_->stage != Stage::ready || (is_oldest(chain) && !chain.is_landing);
  });
  if (node_->stage == Stage::ready) {
    Chain& chain = (*held)[branch_];
    std::vector<std::shared_ptr<Node>> together;
    std::vector<ReferenceStore::Move> moves;
    for (const std::shared_ptr<Node>& node : chain.nodes) {
      if (node->stage != Stage::ready) break;
      together.push_back(node);
      moves.push_back({*node->commit, node->message});
    }
    chain.is_landing = true;
    held.lock().unlock();
    bool has_moved = false;
    std::exception_ptr failure;
    try {
      has_moved = swap(moves);
    } catch (...) {
      failure = std::current_exception();
    }
    held.lock().lock();
    chain.is_landing = false;
    for (const std::shared_ptr<Node>& node : together) {
      node->stage = has_moved ? Stage::landed : Stage::broken;
      node->failure = failure;
      node->before.reset();
    }
    chain.nodes.erase(chain.nodes.begin(), std::next(chain.nodes.begin(), static_cast<long>(together.size())));
    if (!has_moved && !chain.nodes.empty()) break_from(chain, chain.nodes.front());
    end_turn_without_nodes(chain);
    chains_.changed_.notify_all();
  }
  if (node_->failure) std::rethrow_exception(node_->failure);
  return node_->stage == Stage::landed;
}

}  // namespace escrow::session
