// Verbs that may take long, and clients that do not want to wait for them (RFC 7240): "Prefer: wait=SECONDS" is
// answered after that time at the latest, "Prefer: respond-async" at once, with 202 and where to look. The verb goes on
// by itself, also when its client has gone. Without a preference a verb is answered when it is done. None but the first
// moments of a verb that has a thread of its own are spent by one that answers requests.
//
// Thread-safe. Destroying it waits for the verbs under way.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "api/router.h"
#include "daemon/escrowd_config.h"
#include "daemon/places.h"

namespace escrow::daemon {

class LongVerbs {
 public:
  // What a client that does not wait is shown: the session of the request.
  using Look = std::function<api::HttpResponse(api::Call& call)>;
  // `most`: with a thread of their own. The configuration must outlive this.
  LongVerbs(const EscrowdConfig& config, Places::Number most, Look look)
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

  const EscrowdConfig& config_;  // constant, as the next
  const Look look_;
  Places places_;  // self-locking
};

// What takes long (Call's on_begin), for that many requests at once; Problem{unavailable} for more. `handler` answers
// with a response. The configuration must outlive the result.
api::Router::Handler at_most(Places::Number requests, const EscrowdConfig& config, api::Router::Handler handler);

}  // namespace escrow::daemon
