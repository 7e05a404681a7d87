// A call that was refused, as it is traced and kept with the session's record. Plain values, and who is told of them.
#pragma once

#include <cstdint>
#include <string>

#include "session/base/clock.h"
#include "session/base/error.h"

namespace escrow::session {

struct Denial {
  std::string operation;  // "open", "unlink": the call
  std::string action;     // what was not allowed
  std::string path;       // as the repository sees it
  std::string rule;       // which rule decided, for people
};

// What a refused call throws.
class Denied : public Error {
 public:
  Denied(const Denial& denial, const std::string& message) : Error(Errc::access_denied, message), denial_(denial) {}
  const Denial& denial() const noexcept { return denial_; }

 private:
  Denial denial_;
};

// Told in the system call's way: it must be quick. Thread-safe.
class DenialSink {
 public:
  virtual ~DenialSink() = default;
  virtual void denied(const Denial& denial) noexcept = 0;
};

// Denials of one kind, as the catalog keeps them.
struct DenialCount {
  std::string operation, path, rule;  // all empty: those beyond kMaxDenials kinds
  std::uint64_t count = 0;
  Timestamp first, last;
  friend bool operator==(const DenialCount&, const DenialCount&) = default;
};

// Kinds kept for one session; what comes on top is counted in one row.
inline constexpr std::size_t kMaxDenials = 1000;

}  // namespace escrow::session
