#include "daemon/service/async_requests.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "api/json_document.h"
#include "api/problem.h"
#include "daemon/service/caller.h"

namespace escrow::daemon {

using api::Call;
using api::HttpReply;
using api::HttpResponse;

namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned kMaxWait_s = 3600;
// Most verbs are done by then: their answer need not wait for the next poll.
constexpr auto kSoon = std::chrono::milliseconds(300);

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ') || text.starts_with('\t')) text.remove_prefix(1);
  while (text.ends_with(' ') || text.ends_with('\t')) text.remove_suffix(1);
  return text;
}

// The seconds, 0 for respond-async; nullopt: no preference that is known here. Unknown and malformed ones are ignored,
// as RFC 7240, section 2, says; of several the shortest counts.
std::optional<unsigned> wait_of(std::string_view prefer) {
  std::optional<unsigned> wait;
  while (!prefer.empty()) {
    const std::size_t end = std::min(prefer.find(','), prefer.size());
    std::string_view one = trimmed(prefer.substr(0, end));
    prefer.remove_prefix(std::min(end + 1, prefer.size()));
    unsigned seconds = 0;
    if (one.starts_with("wait=")) {
      one.remove_prefix(5);
      const auto [stop, error] = std::from_chars(one.data(), one.data() + one.size(), seconds);
      if (error != std::errc() || stop != one.data() + one.size()) continue;
    } else if (one != "respond-async") {
      continue;
    }
    wait = std::min({wait.value_or(kMaxWait_s), seconds, kMaxWait_s});
  }
  return wait;
}

void add_applied(HttpResponse& response, unsigned wait_s) {
  response.headers.emplace_back("Preference-Applied",
                                wait_s == 0 ? "respond-async" : "wait=" + std::to_string(wait_s));
}

HttpResponse look_by_key(Call& call) {
  return {.status = 202,
          .content_type = "application/json",
          .body = api::JsonObject().text("idempotency_key", *call.request.idempotency_key).text() + "\n",
          .headers = {{"Location", call.request.target}, {"Retry-After", "1"}}};
}

}  // namespace

// The request with all it refers to, and what becomes of it.
struct AsyncRequests::Verb {
  // `wait_s` nullopt: there is no preference.
  Verb(const Call& of, std::optional<unsigned> wait, bool is_known)
      : request(of.request),
        call{request, of.route, of.parameters, of.query, {}, {}},
        wait_s(wait),
        deadline(wait ? Clock::now() + std::chrono::seconds(*wait) : Clock::time_point::max()),
        state(State{.is_known = is_known}) {
    call.was_left = [this] {
      auto held = state.lock();
      held->is_answered = true;
      return held->is_left;
    };
  }
  void begin() {
    auto held = state.lock();
    held->is_known = true;
    held->is_left = wait_s == 0U;
    changed.notify_all();
  }
  struct State {
    bool is_known = false;     // the client would find it
    bool is_left = false;      // it was told where, or is about to be
    bool is_answered = false;  // it will not be told any more: the answer comes, or is there
    std::optional<HttpResponse> answer;
    // Which of the two the client gets may be said now. Who has no preference has the answer, also before the service
    // stops.
    bool is_decided(const Verb& verb, bool is_last) {
      if (is_left || answer) return true;
      is_left = verb.wait_s && is_known && !is_answered && (is_last || Clock::now() >= verb.deadline);
      return is_left;
    }
  };
  const api::HttpRequest request;
  Call call;
  const std::optional<unsigned> wait_s;
  const Clock::time_point deadline;
  session::Synchronized<State> state;
  std::condition_variable changed;  // with `state`
};

api::Router::Handler AsyncRequests::waiting(api::Router::Handler handler) {
  return [this, handler = std::move(handler)](Call& call) -> HttpReply {
    const std::optional<unsigned> wait = wait_of(call.request.prefer);
    return wait ? run(handler, std::make_shared<Verb>(call, wait, true), look_) : handler(call);
  };
}

api::Router::Handler AsyncRequests::apart(api::Router::Handler handler) {
  return [this, handler = std::move(handler)](Call& call) -> HttpReply {
    const bool may_leave = call.request.idempotency_key.has_value();
    const auto verb = std::make_shared<Verb>(call, may_leave ? wait_of(call.request.prefer) : std::nullopt, false);
    verb->call.on_begin = [of = verb.get()] { of->begin(); };
    return run(handler, verb, look_by_key);
  };
}

HttpReply AsyncRequests::run(const api::Router::Handler& handler, const std::shared_ptr<Verb>& verb,
                         const Look& look) {
  const auto work = [verb, handler, place = places_.take(caller_of(config_, verb->request).principal)] {
    std::optional<HttpResponse> response;
    try {
      response = std::get<HttpResponse>(handler(verb->call));
    } catch (...) {
      response = api::problem_of_current_exception();
    }
    verb->state.lock()->answer = std::move(response);
    verb->changed.notify_all();
  };
  std::thread(work).detach();
  api::Poll poll = [verb, look](bool is_last) -> std::optional<HttpResponse> {
    std::optional<HttpResponse> response;
    {
      auto state = verb->state.lock();
      if (is_last) verb->changed.wait(state.lock(), [&] { return state->is_decided(*verb, true); });
      if (!state->is_decided(*verb, is_last)) return std::nullopt;
      if (!state->is_left) response = state->answer;
    }
    if (!response) {
      Call again{verb->request, verb->call.route, verb->call.parameters, api::Query(""), {}, {}};
      response = look(again);
    }
    if (verb->wait_s) add_applied(*response, *verb->wait_s);
    return response;
  };
  {
    auto state = verb->state.lock();
    const auto soon = Clock::now() + kSoon;
    verb->changed.wait_until(state.lock(), soon, [&] { return state->is_decided(*verb, false); });
  }
  if (std::optional<HttpResponse> response = poll(false)) return *std::move(response);
  return poll;
}

api::Router::Handler at_most(ConcurrencyLimit::Number requests, const LiveConfig& config,
                             api::Router::Handler handler) {
  auto limit = std::make_shared<ConcurrencyLimit>(requests);
  return [limit, &config, handler = std::move(handler)](Call& call) -> HttpReply {
    const std::shared_ptr<void> place = limit->take(caller_of(config, call.request).principal);
    if (call.on_begin) call.on_begin();
    return handler(call);
  };
}

}  // namespace escrow::daemon
