// Requests that may be sent again: with an Idempotency-Key the second of two same requests is answered as the first.
//
// Per principal and route, for 24 hours or as configured, over restarts. Another body under the same key is refused
// (422), so is a request whose first one is still being answered (409, Retry-After). An answer that says "try again" is
// not kept: the next request with the key is carried out. After a kill in between, or when the disk was too full to
// keep the answer, it is, too, with the same body; every verb here knows its own outcome.
// Where a client with a preference (Prefer, RFC 7240) comes back with its key for what it did not wait for (Call's
// on_begin), any answer waits for it, once.
// Thread-safe. Follows draft-ietf-httpapi-idempotency-key-header.
#pragma once

#include "api/router.h"
#include "daemon/service/caller.h"
#include "daemon/service/service_time.h"
#include "storage/database/service_store.h"

namespace escrow::daemon {

// `handler` for requests with and without a key. The references must outlive the result.
api::Router::Handler idempotent(storage::ServiceStore& store, const ServiceTime& time, const LiveConfig& config,
                                api::Router::Handler handler);

}  // namespace escrow::daemon
