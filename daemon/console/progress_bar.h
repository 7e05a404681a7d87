// A bar on a terminal's last line while something long is done; nothing elsewhere. Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace escrow::daemon {

class ProgressBar {
 public:
  // `label` in front, for example "Importing".
  explicit ProgressBar(std::string label);
  // Erases the bar.
  ~ProgressBar();

  // Standard error is a terminal: otherwise totals need not be found out.
  bool is_shown() const { return shown_; }
  // `note` stands behind the bar. Draws at most ten times a second.
  void update(std::uint64_t done, std::uint64_t total, const std::string& note);

 private:
  std::string label_;
  bool shown_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace escrow::daemon
