#include "daemon/process/terminal.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

namespace escrow::daemon {

Terminal::Terminal() : device_(::open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC)) {
  termios modes;
  if (device_ && ::tcgetattr(device_.get(), &modes) == 0) modes_ = modes;
}

bool Terminal::is_interactive() const {
  return is_ours() && ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
}

bool Terminal::is_ours() const { return device_ && ::tcgetpgrp(device_.get()) == ::getpgrp(); }

void Terminal::give_to(pid_t group) const noexcept {
  if (device_) ::tcsetpgrp(device_.get(), group);
}

void Terminal::take_back_from(pid_t group) const {
  if (!device_) return;
  const pid_t foreground = ::tcgetpgrp(device_.get());
  if (foreground == group || (foreground > 0 && ::kill(-foreground, 0) != 0)) ::tcsetpgrp(device_.get(), ::getpgrp());
}

void Terminal::restore_modes() const {
  if (device_ && modes_) ::tcsetattr(device_.get(), TCSADRAIN, &*modes_);
}

}  // namespace escrow::daemon
