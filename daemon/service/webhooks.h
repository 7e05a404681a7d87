// Tells others of events by POST requests (`webhooks` of the configuration): each event at least once and in order,
// also over restarts, from the moment on at which a webhook was configured. Each webhook has a thread of its own; no
// request waits for it.
//
// The body is {"id", "type", "data"}. "Escrow-Signature: t=TIME,v1=HEX" has the HMAC-SHA256 of "TIME.BODY" by the
// webhook's secret. An answer other than 2xx, or none within five seconds, is tried again after 1, 2, 4 ... at most 300
// seconds; after give_up_after_s the event is a dead letter, which is kept and can be sent again, and the next one is
// told. Events that the log has dropped before they were told are one dead letter "gap". Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "daemon/service/escrowd_config.h"
#include "session/base/clock.h"
#include "session/base/log.h"
#include "session/base/synchronized.h"
#include "storage/database/event_log.h"
#include "storage/database/webhook_store.h"

namespace escrow::daemon {

// Throws Error{bad_request} for a URL to which nothing can be sent.
void check_webhook_url(const std::string& url);

class Webhooks {
 public:
  // All must outlive this.
  Webhooks(const LiveConfig& config, storage::WebhookStore& store, const storage::EventLog& events,
           const session::Clock& clock, session::Log& log);
  ~Webhooks();

  // Those of the configuration as it is now are told from here on, the others no more.
  void follow_config();

  struct Status {
    std::string name, url;
    std::int64_t pending = 0, dead = 0;           // events
    std::optional<std::int64_t> failing_since_s;
    std::string error;                            // of the last try; empty: it went well
  };
  std::vector<Status> list() const;
  // Throw Problem{not_found}.
  std::vector<storage::WebhookStore::Dead> dead(const std::string& name, std::int64_t after, std::size_t limit) const;
  // Sends it once more, here and now; when it is taken it is a dead letter no more. Throws Problem{unavailable}.
  void send_again(const std::string& name, std::int64_t number);

 private:
  struct Sender;
  void check_name(const std::string& name) const;

  const LiveConfig& config_;  // constant references, self-locking
  storage::WebhookStore& store_;
  const storage::EventLog& events_;
  const session::Clock& clock_;
  session::Log& log_;
  mutable session::Synchronized<std::map<std::string, std::unique_ptr<Sender>>> senders_;  // self-locking
};

}  // namespace escrow::daemon
