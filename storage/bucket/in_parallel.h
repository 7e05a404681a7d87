// Requests to a far service side by side: `work(0)` to `work(count - 1)` on at most kMostAtOnce threads, which have all
// ended when it returns. The first exception of any is thrown; what had not begun by then is left out.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "session/base/synchronized.h"

namespace escrow::storage {

inline void in_parallel(std::size_t count, const std::function<void(std::size_t)>& work) {
  constexpr std::size_t kMostAtOnce = 8;
  if (count == 0) return;
  std::atomic<std::size_t> next = 0;
  session::Synchronized<std::exception_ptr> failure;
  const auto run = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        next = count;
        auto first = failure.lock();
        if (!*first) *first = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < std::min(count, kMostAtOnce); ++i) threads.emplace_back(run);
    run();
  }
  if (*failure.lock()) std::rethrow_exception(*failure.lock());
}

}  // namespace escrow::storage
