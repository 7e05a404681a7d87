// A session catalog in memory. Thread-safe. A test can refuse a transition, and read the history.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "session/base/error.h"
#include "session/base/synchronized.h"
#include "session/interfaces/session_catalog.h"

namespace escrow::support {

class FakeCatalog final : public session::SessionCatalog {
 public:
  using Record = session::SessionRecord;
  using Id = session::SessionId;

  void insert(const Record& record) override {
    if (before_write) before_write();
    if (!state_.lock()->rows.emplace(record.id, record).second)
      throw session::Error(session::Errc::exists, "session " + record.id.text() + " exists already");
  }
  std::optional<Record> find(const Id& id) const override {
    const auto state = state_.lock_shared();
    const auto found = state->rows.find(id);
    return found == state->rows.end() ? std::nullopt : std::optional(found->second);
  }
  std::vector<Id> find_by_prefix(const std::string& prefix) const override {
    const auto state = state_.lock_shared();
    std::vector<Id> ids;
    for (const auto& [id, row] : state->rows)
      if (id.text().starts_with(prefix) && ids.size() < session::kMostByPrefix) ids.push_back(id);
    return ids;
  }
  std::vector<Record> unended() const override {
    std::vector<Record> records = list();
    std::erase_if(records, [](const Record& record) { return is_final(record.state); });
    return records;
  }
  std::vector<Record> list() const override {
    const auto state = state_.lock_shared();
    std::vector<Record> records;
    for (const auto& [id, row] : state->rows) records.push_back(row);
    std::ranges::stable_sort(records, {}, &Record::created);
    return records;
  }
  std::vector<Id> forks_of(const Id& id) const override {
    std::vector<Id> ids;
    for (const Record& record : unended())
      if (record.parent == id) ids.push_back(record.id);
    return ids;
  }
  std::vector<Id> resumed_as(const Id& id) const override {
    std::vector<Id> ids;
    for (const Record& record : list())
      if (record.resumes == id) ids.push_back(record.id);
    return ids;
  }
  void transition(session::State expected, const Record& record, const std::string& who,
                  const std::string& why) override {
    if (before_write) before_write();
    if (before_transition) before_transition(record);
    auto state = state_.lock();
    const auto found = state->rows.find(record.id);
    if (found == state->rows.end())
      throw session::Error(session::Errc::no_session, "there is no session " + record.id.text());
    Record& row = found->second;
    if (row.state != expected || (is_final(expected) && record.state != expected))
      throw session::Error(session::Errc::wrong_state, std::string("the session is ") + name_of(row.state));
    state->history.push_back(who + ": " + name_of(row.state) + " -> " + name_of(record.state) + ": " + why);
    row = record;
  }
  void note(const Record& record, const std::string& who, const std::string& why) override {
    transition(record.state, record, who, why);
  }
  void remark(const Id& id, session::Timestamp, const std::string& who, const std::string& what) override {
    auto state = state_.lock();
    const auto found = state->rows.find(id);
    if (found == state->rows.end())
      throw session::Error(session::Errc::no_session, "there is no session " + id.text());
    const char* name = name_of(found->second.state);
    state->history.push_back(who + ": " + name + " -> " + name + ": " + what);
  }
  void add_denials(const Id& id, const std::vector<session::DenialCount>& denials) override {
    if (before_denials) before_denials();
    auto state = state_.lock();
    std::vector<session::DenialCount>& rows = state->denials[id];
    for (session::DenialCount denial : denials) {
      const auto kinds = std::ranges::count_if(rows, [](const auto& row) { return !row.operation.empty(); });
      const auto same = [&](const auto& row) {
        return row.operation == denial.operation && row.path == denial.path && row.rule == denial.rule;
      };
      auto row = std::ranges::find_if(rows, same);
      if (row == rows.end() && static_cast<std::size_t>(kinds) >= session::kMaxDenials) {
        denial.operation = denial.path = denial.rule = "";
        row = std::ranges::find_if(rows, same);
      }
      if (row == rows.end()) {
        rows.push_back(denial);
      } else {
        row->count += denial.count;
        row->last = denial.last;
      }
    }
  }
  std::vector<session::DenialCount> denials(const Id& id) const override {
    const auto state = state_.lock_shared();
    const auto found = state->denials.find(id);
    if (found == state->denials.end()) return {};
    std::vector<session::DenialCount> rows = found->second;
    std::ranges::stable_sort(rows, {}, [](const auto& row) {
      return std::tie(row.first, row.operation, row.path, row.rule);
    });
    return rows;
  }
  std::string keep_reads(const Id& id, const std::string& reads) override {
    state_.lock()->reads[id] = reads;
    return "sha256:" + std::to_string(std::hash<std::string>()(reads));
  }
  std::optional<std::string> reads(const Id& id) const override {
    const auto state = state_.lock_shared();
    const auto found = state->reads.find(id);
    return found == state->reads.end() ? std::nullopt : std::optional(found->second);
  }
  std::uint64_t prune(session::Timestamp before) override {
    auto state = state_.lock();
    const auto pruned = std::erase_if(
        state->rows, [&](const auto& row) { return is_final(row.second.state) && row.second.changed < before; });
    std::erase_if(state->denials, [&](const auto& row) { return !state->rows.contains(row.first); });
    std::erase_if(state->reads, [&](const auto& row) { return !state->rows.contains(row.first); });
    return pruned;
  }

  // "who: from -> to: why", oldest first.
  std::vector<std::string> history() const { return state_.lock_shared()->history; }

  std::function<void()> before_write;                    // may throw; set before use
  std::function<void(const Record&)> before_transition;  // may throw; set before use
  std::function<void()> before_denials;                  // may throw; set before use

 private:
  struct State {
    std::map<Id, Record> rows;
    std::map<Id, std::vector<session::DenialCount>> denials;
    std::map<Id, std::string> reads;
    std::vector<std::string> history;
  };
  session::SharedSynchronized<State> state_;  // self-locking
};

}  // namespace escrow::support
