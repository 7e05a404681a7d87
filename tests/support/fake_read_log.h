// A log of reads in memory. A test can make appends fail, and lose the power.
#pragma once

#include <string>

#include "session/base/error.h"
#include "session/interfaces/read_log.h"

namespace escrow::support {

class FakeReadLog final : public session::ReadLog {
 public:
  void create() override { is_complete_ = true; }
  Loaded load() override { return {events, is_complete_}; }
  void append(std::string_view more) override {
    if (is_full) throw session::Error(session::Errc::no_space, "the disk is full");
    is_closed_ = false;
    events += more;
  }
  void give_up() override { is_complete_ = false; }
  void close() override { is_closed_ = true; }

  void lose_power() { is_complete_ = is_complete_ && is_closed_; }

  std::string events;
  bool is_full = false;

 private:
  bool is_complete_ = false, is_closed_ = false;
};

}  // namespace escrow::support
