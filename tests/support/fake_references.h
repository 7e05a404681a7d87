// Branches, pins and results in memory. Thread-safe. The references refuse to name objects that are not in the
// repository, so that a branch moved before its objects are durable fails a test; a test can act just before and after
// a swap.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "session/base/error.h"
#include "session/base/synchronized.h"
#include "session/interfaces/object_store.h"
#include "tests/support/fake_object_store.h"

namespace escrow::support {

class FakeReferences final : public session::ReferenceStore {
 public:
  using Id = session::ObjectId;
  using Session = session::SessionId;

  explicit FakeReferences(const FakeObjectStore& objects) : objects_(objects) {}

  std::string default_branch() const override { return "main"; }
  void check_target(const std::string& branch) const override {
    if (branch.empty() || branch.find("..") != std::string::npos)
      throw session::Error(session::Errc::bad_request, "'" + branch + "' is not a branch name");
  }
  std::optional<Id> head(const std::string& branch) const override {
    const auto state = state_.lock_shared();
    const auto found = state->branches.find(branch);
    return found == state->branches.end() ? std::nullopt : std::optional(found->second);
  }
  bool move_through(const std::string& branch, const std::optional<Id>& expected,
                    const std::vector<Move>& moves) override {
    if (before_swap) before_swap();
    const Id& desired = moves.back().to;
    if (!objects_.contains(desired) || !objects_.contains(objects_.read_commit(desired).tree))
      throw session::Error(session::Errc::damaged_repository, "the branch would point at objects that are not there");
    {
      auto state = state_.lock();
      const auto found = state->branches.find(branch);
      if ((found == state->branches.end() ? std::nullopt : std::optional(found->second)) != expected) return false;
      state->branches.insert_or_assign(branch, desired);
      for (const Move& move : moves) state->reflog.insert({branch, move.to});
    }
    if (after_swap) after_swap();
    return true;
  }
  // Its turns are one after another, and nobody is told of others.
  std::unique_ptr<Turn> take_turn(const std::string& branch) override {
    class FakeTurn final : public Turn {
     public:
      explicit FakeTurn(FakeReferences& all) : all_(all) { ++all_.turns_held; }
      ~FakeTurn() override { --all_.turns_held; }
      bool is_wanted() const override { return all_.is_turn_wanted; }

     private:
      FakeReferences& all_;
    };
    if (before_turn) before_turn(branch);
    return std::make_unique<FakeTurn>(*this);
  }
  void make_durable(const std::string& branch) override {
    if (before_durable) before_durable(branch);
  }
  session::BranchRule rule_of(const std::string& branch) const override {
    const auto state = state_.lock_shared();
    const auto found = state->rules.find(branch);
    return found == state->rules.end() ? session::BranchRule() : found->second;
  }
  bool reflog_has(const std::string& branch, const Id& commit) const override {
    return state_.lock_shared()->reflog.contains({branch, commit});
  }
  void pin_fresh(const Session& session, const std::string&, const Id& commit) override { pin_base(session, commit); }
  void pin_base(const Session& session, const Id& commit) override {
    if (!objects_.contains(commit)) throw session::Error(session::Errc::damaged_repository, "pin of a missing commit");
    state_.lock()->pins.emplace(session, commit);
  }
  bool is_pinned(const Session& session, const Id& commit) const override {
    if (session == unreadable_pin)
      throw session::Error(session::Errc::damaged_repository, "the pin of session " + session.text() + " is damaged");
    const auto state = state_.lock_shared();
    const auto [begin, end] = state->pins.equal_range(session);
    return std::any_of(begin, end, [&](const auto& pin) { return pin.second == commit; });
  }
  void pin_as(const Session& session, const Session& heir) override {
    auto state = state_.lock();
    std::vector<Id> commits;
    const auto [begin, end] = state->pins.equal_range(session);
    for (auto pin = begin; pin != end; ++pin) commits.push_back(pin->second);
    for (const Id& commit : commits) state->pins.emplace(heir, commit);
  }
  void unpin_base(const Session& session) override { state_.lock()->pins.erase(session); }
  void unpin_older(const Session& session, const Id& base) override {
    auto state = state_.lock();
    std::erase_if(state->pins, [&](const auto& pin) {
      return pin.first == session && pin.second != base && is_ancestor(pin.second, base);
    });
  }
  void keep_result(const Session& session, const Id& commit) override {
    if (!objects_.contains(commit)) throw session::Error(session::Errc::damaged_repository, "missing result");
    state_.lock()->results.insert_or_assign(session, commit);
  }
  std::optional<Id> result(const Session& session) const override {
    const auto state = state_.lock_shared();
    const auto found = state->results.find(session);
    return found == state->results.end() ? std::nullopt : std::optional(found->second);
  }
  void hide_result(const Session& session) override { state_.lock()->hidden.insert(session); }
  bool is_hidden(const Session& session) const { return state_.lock_shared()->hidden.contains(session); }
  void drop_result(const Session& session) override { state_.lock()->results.erase(session); }
  void sweep_locks() override { ++sweeps; }

  // What others do.
  void set(const std::string& branch, const Id& commit) {
    auto state = state_.lock();
    state->branches.insert_or_assign(branch, commit);
    state->reflog.insert({branch, commit});
  }
  void remove(const std::string& branch) { state_.lock()->branches.erase(branch); }
  void expire_reflogs() { state_.lock()->reflog.clear(); }
  void set_rule(const std::string& branch, const session::BranchRule& rule) { state_.lock()->rules[branch] = rule; }
  bool is_pinned(const Session& session) const { return state_.lock_shared()->pins.contains(session); }
  std::size_t pins() const { return state_.lock_shared()->pins.size(); }

  // Of one session.
  std::set<Id> pins_of(const Session& session) const {
    const auto state = state_.lock_shared();
    std::set<Id> found;
    const auto [begin, end] = state->pins.equal_range(session);
    for (auto pin = begin; pin != end; ++pin) found.insert(pin->second);
    return found;
  }

  std::optional<Session> unreadable_pin;  // set before use, as the next
  std::atomic<int> sweeps = 0, turns_held = 0;
  std::atomic<bool> is_turn_wanted = false;
  std::function<void(const std::string&)> before_turn, before_durable;
  std::function<void()> before_swap;
  std::function<void()> after_swap;

 private:
  bool is_ancestor(const Id& older, const Id& of) const {
    std::vector<Id> front{of};
    while (!front.empty()) {
      const Id at = front.back();
      front.pop_back();
      if (at == older) return true;
      for (const Id& parent : objects_.read_commit(at).parents) front.push_back(parent);
    }
    return false;
  }

  struct State {
    std::map<std::string, Id> branches;
    std::map<std::string, session::BranchRule> rules;
    std::set<std::pair<std::string, Id>> reflog;
    std::multimap<Session, Id> pins;
    std::map<Session, Id> results;
    std::set<Session> hidden;
  };
  const FakeObjectStore& objects_;             // self-locking
  session::SharedSynchronized<State> state_;  // self-locking
};

}  // namespace escrow::support
