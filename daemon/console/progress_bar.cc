#include "daemon/console/progress_bar.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace escrow::daemon {
namespace {

constexpr std::size_t kBarColumns = 30;
constexpr auto kInterval = std::chrono::milliseconds(100);

std::size_t terminal_columns() {
  winsize size{};
  return ioctl(2, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

ProgressBar::ProgressBar(std::string label) : label_(std::move(label)), shown_(isatty(2) == 1) {}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputs("\r\033[K", stderr);
}

void ProgressBar::update(std::uint64_t done, std::uint64_t total, const std::string& note) {
  const auto now = std::chrono::steady_clock::now();
  if (!shown_ || now - last_ < kInterval) return;
  last_ = now;
  drawn_ = true;
  const double part = total == 0 ? 1.0 : std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const std::size_t filled = static_cast<std::size_t>(part * static_cast<double>(kBarColumns));
  std::string line = label_ + " [" + std::string(filled, '#') + std::string(kBarColumns - filled, ' ') + "] " +
                     std::to_string(static_cast<int>(part * 100)) + "% " + note;
  line.resize(std::min(line.size(), terminal_columns() - 1));
  std::fprintf(stderr, "\r%s\033[K", line.c_str());
  std::fflush(stderr);
}

}  // namespace escrow::daemon
