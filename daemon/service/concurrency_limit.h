// Caps concurrent long requests, overall and per principal: nobody can take every place. Thread-safe.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <string>

#include "session/base/synchronized.h"

namespace escrow::daemon {

class ConcurrencyLimit {
 public:
  struct Number {
    unsigned all = 0, of_one = 0;  // at once
  };
  explicit ConcurrencyLimit(Number most) : most_(most) {}
  // Waits for the requests under way.
  ~ConcurrencyLimit();
  ConcurrencyLimit(const ConcurrencyLimit&) = delete;
  ConcurrencyLimit& operator=(const ConcurrencyLimit&) = delete;

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
