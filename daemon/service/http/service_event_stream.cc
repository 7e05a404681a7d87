// The part of ServiceEvents that tells: what a client that follows is sent.
#include <chrono>
#include <memory>
#include <utility>

#include "api/event_document.h"
#include "api/json_document.h"
#include "daemon/service/grants.h"
#include "daemon/service/sessions/service_events.h"

namespace escrow::daemon {

using storage::EventLog;
using namespace std::chrono_literals;

namespace {

// Shows a client that has gone, and tells the others how far they are.
constexpr auto kHeartbeat = 15s;
constexpr std::size_t kToldAtOnce = 64, kPartBytes = 65536;

bool is_of_token(const EventLog::Event& event) { return event.type.starts_with("token."); }

// One client. Used by one thread at a time.
class Follower {
 public:
  Follower(const EventLog& log, const LiveConfig& config, const Caller& caller, ServiceEvents::Wanted wanted)
      : log_(log),
        config_(config),
        caller_(caller),
        wanted_(std::move(wanted)),
        at_(wanted_.last_event_id.value_or(log_.last())) {
    // An id of another log: the state directory was lost.
    if (at_ > log_.last()) add_gap(log_.last());
    part_ += "retry: 1000\n";
    add_position();
  }

  // What a client gets with the header of the answer.
  std::string take_part() {
    sent_ = std::chrono::steady_clock::now();
    return std::exchange(part_, {});
  }

  api::Stream::Part next(bool is_last) {
    std::vector<EventLog::Event> events;
    if (log_.last() > at_) events = log_.after(at_, kToldAtOnce);
    if (!events.empty() && events.front().number > at_ + 1) add_gap(events.front().number - 1);
    for (const EventLog::Event& event : events) {
      if (part_.size() > kPartBytes) break;
      at_ = event.number;
      if (!is_wanted(event)) continue;
      if (const auto document = readable(event)) add(std::to_string(event.number), event.type, *document);
    }
    if (part_.empty() && (is_last || std::chrono::steady_clock::now() - sent_ > kHeartbeat)) add_position();
    if (part_.empty()) return {};
    return {.bytes = take_part(), .is_end = false};
  }

 private:
  bool may_see(const EventLog::Event& event) const {
    if (is_of_token(event)) return caller_.may_end_of(event.issuer);
    return event.session.empty() || caller_.may_review() || event.issuer == caller_.principal;
  }
  bool is_wanted(const EventLog::Event& event) const {
    return may_see(event) && (wanted_.repository.empty() || wanted_.repository == event.repository) &&
           (wanted_.session.empty() || wanted_.session == event.session);
  }

  // The event as far as the caller may read its branch; nullopt: not at all.
  std::optional<std::string> readable(const EventLog::Event& event) const {
    const std::shared_ptr<const EscrowdConfig> config = config_.now();
    if (!config->grants || caller_.is_operator || is_of_token(event)) return event.document;
    const std::string branch = api::branch_of_event(event.document);
    if (!may_see_branch(*config, caller_, event.repository, branch)) return std::nullopt;
    return api::event_with_paths(event.document, [&](const std::string& path) {
      return may_read(*config, event.repository, branch, path);
    });
  }
  bool may_read(const EscrowdConfig& config, const std::string& repository, const std::string& branch,
                const std::string& path) const {
    try {
      return is_granted(config, caller_, GrantedVerb::read, repository, branch, session::RepoPath::parse(path, "path"));
    } catch (const session::Error&) {
      return false;  // no path of a repository
    }
  }

  void add(const std::string& id, const std::string& type, const std::string& document) {
    part_ += "id: " + id + "\nevent: " + type + "\ndata: " + document + "\n\n";
  }
  // Moves a client on without an event.
  void add_position() { part_ += "id: " + std::to_string(at_) + "\n\n"; }
  // What lies behind the client's position up to `until` is not kept any more.
  void add_gap(std::int64_t until) {
    api::JsonObject document;
    document.number("after", static_cast<std::uint64_t>(at_)).number("until", static_cast<std::uint64_t>(until));
    add(std::to_string(until), "gap", document.text());
    at_ = until;
  }

  const EventLog& log_;  // self-locking, as the next
  const LiveConfig& config_;
  const Caller caller_;
  const ServiceEvents::Wanted wanted_;
  std::int64_t at_;      // the last event that was told, or need not be
  std::string part_;
  std::chrono::steady_clock::time_point sent_;
};

}  // namespace

api::Stream ServiceEvents::stream(const LiveConfig& config, const Caller& caller, const Wanted& wanted,
                                  std::function<bool()> may_go_on) const {
  const auto follower = std::make_shared<Follower>(log_, config, caller, wanted);
  return {.head = {.status = 200, .content_type = "text/event-stream", .body = follower->take_part(), .headers = {}},
          .next = [follower, may_go_on = std::move(may_go_on)](bool is_last) {
            return may_go_on() ? follower->next(is_last) : api::Stream::Part{.bytes = {}, .is_end = true};
          }};
}

}  // namespace escrow::daemon
