#include "daemon/service/concurrency_limit.h"

#include "api/problem.h"

namespace escrow::daemon {

ConcurrencyLimit::~ConcurrencyLimit() {
  auto taken = taken_.lock();
  freed_.wait(taken.lock(), [&] { return taken->all == 0; });
}

std::shared_ptr<void> ConcurrencyLimit::take(const std::string& principal) {
  const auto refuse = [](const std::string& who, unsigned most) {
    throw api::Problem(api::ProblemCode::unavailable, who + " (" + std::to_string(most) +
                                                          "); try again; nothing was changed");
  };
  {
    auto taken = taken_.lock();
    if (taken->all >= most_.all) refuse("the service does as many of these at once as it may", most_.all);
    unsigned& own = taken->by_principal[principal];
    if (own >= most_.of_one) {
      refuse("as many of these as one may have at once are under way for " + principal, most_.of_one);
    }
    ++own;
    ++taken->all;
  }
  return {nullptr, [this, principal](void*) { free(principal); }};
}

void ConcurrencyLimit::free(const std::string& principal) {
  auto taken = taken_.lock();
  const auto own = taken->by_principal.find(principal);
  if (--own->second == 0) taken->by_principal.erase(own);
  --taken->all;
  freed_.notify_all();
}

}  // namespace escrow::daemon
