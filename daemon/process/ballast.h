// A little disk space held back beside a session, to be given up when the disk is full: enough for the session's last
// edits and its state to be recorded, so that a commit that found no room can be made again later.
//
// Not thread-safe. Throws nothing: where no space can be reserved there is none to give up.
#pragma once

#include <string>

namespace escrow::daemon {

class Ballast {
 public:
  // Reserves kBallastBytes in `directory`.
  explicit Ballast(const std::string& directory);
  ~Ballast() { release(); }
  Ballast(const Ballast&) = delete;
  Ballast& operator=(const Ballast&) = delete;

  // False when it was given up before, or never there.
  bool release();

 private:
  std::string path_;  // empty: there is none
};

inline constexpr long kBallastBytes = 1 << 20;

}  // namespace escrow::daemon
