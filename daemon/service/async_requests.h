// Long requests whose clients do not want to wait (RFC 7240). "Prefer: wait=SECONDS" is answered after that time at the
// latest, "Prefer: respond-async" at once, with 202 and the place to look at. The request goes on in a thread of its
// own, also when its client has gone. Without a preference it is answered when it is done.
//
// Thread-safe. Destroying it waits for the verbs under way.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "api/router.h"
#include "daemon/service/concurrency_limit.h"
#include "daemon/service/escrowd_config.h"

namespace escrow::daemon {

class AsyncRequests {
 public:
  // What a client that does not wait is shown: the session of the request.
  using Look = std::function<api::HttpResponse(api::Call& call)>;
  // `most`: with a thread of their own. The configuration must outlive this.
  AsyncRequests(const LiveConfig& config, ConcurrencyLimit::Number most, Look look)
      : config_(config), look_(std::move(look)), places_(most) {}

  // `handler` answers with a response, at once or after long. This must outlive the results.
  // With a thread of its own for clients that have a preference.
  api::Router::Handler waiting(api::Router::Handler handler);
  // Always. The preference counts with an Idempotency-Key, once `handler` has called on_begin: who is not waiting finds
  // the answer by the same request.
  api::Router::Handler apart(api::Router::Handler handler);

 private:
  struct Verb;
  api::HttpReply run(const api::Router::Handler& handler, const std::shared_ptr<Verb>& verb, const Look& look);

  const LiveConfig& config_;  // constant, as the next
  const Look look_;
  ConcurrencyLimit places_;  // self-locking
};

// What takes long (Call's on_begin), for that many requests at once; Problem{unavailable} for more. `handler` answers
// with a response. The configuration must outlive the result.
api::Router::Handler at_most(ConcurrencyLimit::Number requests, const LiveConfig& config,
                             api::Router::Handler handler);

}  // namespace escrow::daemon
