// Tells the metrics how a commit ended and how long it took: `failed` unless end() says otherwise. Not thread-safe.
#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "api/metrics.h"

namespace escrow::daemon {

class CommitTimer {
 public:
  explicit CommitTimer(api::Metrics& metrics) : metrics_(metrics) {}
  ~CommitTimer() {
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin_;
    metrics_.add_commit(outcome_, taken.count());
  }
  CommitTimer(const CommitTimer&) = delete;
  CommitTimer& operator=(const CommitTimer&) = delete;
  void end(std::string outcome) { outcome_ = std::move(outcome); }

 private:
  api::Metrics& metrics_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::string outcome_ = "failed";
};

}  // namespace escrow::daemon
