// A bounded number of places for what takes long, of which one principal has some at most, so that the others find one.
// Thread-safe.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <string>

#include "session/synchronized.h"

namespace escrow::daemon {

class Places {
 public:
  struct Number {
    unsigned all = 0, of_one = 0;  // at once
  };
  explicit Places(Number most) : most_(most) {}
  // Waits until every place is free.
  ~Places();
  Places(const Places&) = delete;
  Places& operator=(const Places&) = delete;

  // Taken until the last copy of the result goes away. Throws Problem{unavailable} where there is none.
  std::shared_ptr<void> take(const std::string& principal);

 private:
  struct Taken {
    unsigned all = 0;
    std::map<std::string, unsigned> by_principal;  // of those that have any
  };
  void free(const std::string& principal);

  const Number most_;
  session::Synchronized<Taken> taken_;
  std::condition_variable freed_;  // with taken_
};

}  // namespace escrow::daemon
