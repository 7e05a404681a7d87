// Whether the caller of what this thread does still waits for the answer.
//
// A process that is killed while it reads a large file, or changes one that has to be copied first, ends only when its
// call is answered, and a mount ends only then, too. Code below the core that may work for minutes asks here between
// pieces, and so does a client of a host that has not taken its request. Each thread has its own answer; without a
// WantedWhile everything is wanted.
#pragma once

#include <functional>
#include <string>

#include "session/base/error.h"

namespace escrow::session {

class WantedWhile {
 public:
  // `is_wanted` is called by this thread, while this lives; it must outlive this.
  explicit WantedWhile(const std::function<bool()>& is_wanted) : outer_(innermost_) { innermost_ = &is_wanted; }
  ~WantedWhile() { innermost_ = outer_; }
  WantedWhile(const WantedWhile&) = delete;
  WantedWhile& operator=(const WantedWhile&) = delete;

  static bool is_still_wanted() { return innermost_ == nullptr || (*innermost_)(); }

 private:
  static inline thread_local const std::function<bool()>* innermost_ = nullptr;
  const std::function<bool()>* const outer_;
};

// Around what has to be done whatever becomes of the caller.
class WantedAlways {
 private:
  static inline const std::function<bool()> kAlways = [] { return true; };
  const WantedWhile wanted_{kAlways};
};

// Error{unavailable} with "<doing> was stopped: ...".
inline void require_still_wanted(const std::string& doing) {
  if (!WantedWhile::is_still_wanted())
    throw Error(Errc::unavailable, doing + " was stopped: its caller waits for it no longer");
}

}  // namespace escrow::session
