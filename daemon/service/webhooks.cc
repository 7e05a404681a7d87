#include "daemon/service/webhooks.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "api/bearer_token.h"
#include "api/http_client.h"
#include "api/json_document.h"
#include "api/problem.h"
#include "daemon/process/shutdown_deadline.h"
#include "session/base/error.h"
#include "session/base/glob.h"

namespace escrow::daemon {

using api::Problem;
using api::ProblemCode;
using session::Errc;
using session::Error;
using storage::EventLog;
using storage::WebhookStore;
using namespace std::chrono_literals;

namespace {

constexpr auto kLookForEventsEvery = 100ms;
constexpr auto kDeliveryPatience = 5s;
constexpr auto kFirstRetryPause = 1'000ms, kLongestRetryPause = 300'000ms;
constexpr std::size_t kEventsAtOnce = 64;
constexpr unsigned kFirstRefusal = 300;

struct Place {
  std::string host, target;
};

Place address_of_url(const std::string& url) {
  const std::size_t scheme = url.find("://");
  const std::size_t path = scheme == std::string::npos ? std::string::npos : url.find('/', scheme + 3);
  if (path == std::string::npos || scheme == 0 || url.starts_with("unix:")) {
    throw Error(Errc::bad_request, "the url '" + url + "' of \"webhooks\" is not https://NAME[:PORT]/PATH");
  }
  return {.host = url.substr(0, path), .target = url.substr(path)};
}

std::string body_of(std::int64_t event, const std::string& type, const std::string& document) {
  return api::JsonObject()
      .number("id", static_cast<std::uint64_t>(event))
      .text("type", type)
      .documents("data", {document})
      .text();
}

// Throws Error when it was not taken.
void send(const Webhook& webhook, std::int64_t event, const std::string& type, const std::string& document,
          std::int64_t now_s) {
  const Place place = address_of_url(webhook.url);
  const std::string body = body_of(event, type, document), time = std::to_string(now_s);
  const std::string signature = "t=" + time + ",v1=" + api::mac_of(time + "." + body, webhook.secret);
  api::HttpClient client(place.host, "",
                         {.name = "the webhook",
                          .patience = kDeliveryPatience,
                          .headers = {{"Escrow-Signature", signature}, {"Escrow-Event", std::to_string(event)}}});
  const api::HttpClient::Answer answer = client.ask("POST", place.target, body);
  if (answer.status >= kFirstRefusal) {
    throw Error(Errc::unavailable, webhook.url + " answered " + std::to_string(answer.status));
  }
}

bool is_wanted(const Webhook& webhook, const std::string& type) {
  return std::ranges::any_of(webhook.events, [&](const std::string& glob) { return session::glob_match(glob, type); });
}

}  // namespace

void check_webhook_url(const std::string& url) {
  const Place place = address_of_url(url);
  api::HttpClient(place.host, "");
}

// One webhook, and its thread.
struct Webhooks::Sender {
  Sender(const Webhooks& all, std::string webhook) : webhooks(all), name(std::move(webhook)) {
    thread = std::thread([this] { run(); });
  }
  ~Sender() {
    stopping.begin(0ms);
    thread.join();
  }

  bool is_stopped_within(std::chrono::milliseconds time) const {
    pollfd stop{stopping.fd(), POLLIN, 0};
    return ::poll(&stop, 1, static_cast<int>(time.count())) > 0;
  }

  void run() noexcept {
    std::chrono::milliseconds pause = kLookForEventsEvery;
    while (!is_stopped_within(pause)) {
      try {
        tell_next();
        error.lock()->clear();
        pause = kLookForEventsEvery;
      } catch (const std::exception& failure) {
        note(failure.what());
        pause = pause < kFirstRetryPause ? kFirstRetryPause : std::min(pause * 2, kLongestRetryPause);
      }
    }
  }

  void note(const std::string& why) {
    auto last = error.lock();
    if (*last != why) webhooks.log_.write(session::LogLevel::warning, "the webhook '" + name + "': " + why);
    *last = why;
  }

  // Throws what keeps it from going on.
  void tell_next() {
    const std::shared_ptr<const EscrowdConfig> config = webhooks.config_.now();
    const auto found = config->webhooks.find(name);
    if (found == config->webhooks.end()) return;
    std::optional<WebhookStore::Position> at = webhooks.store_.position(name);
    // A log that was lost begins anew.
    if (!at || at->told > webhooks.events_.last()) {
      at = WebhookStore::Position{.told = webhooks.events_.last(), .failing_since_s = {}};
      webhooks.store_.set(name, *at);
    }
    while (webhooks.events_.last() > at->told) {
      const std::vector<EventLog::Event> events = webhooks.events_.after(at->told, kEventsAtOnce);
      if (events.empty()) return;
      for (const EventLog::Event& event : events) {
        if (is_stopped_within(0ms)) return;
        if (event.number > at->told + 1) {
          miss(at->told, event.number - 1);
          *at = {.told = event.number - 1, .failing_since_s = {}};
        }
        if (is_wanted(found->second, event.type)) tell(found->second, event, *at);
        *at = {.told = event.number, .failing_since_s = {}};
      }
      webhooks.store_.set(name, *at);
    }
  }

  void miss(std::int64_t after, std::int64_t until) {
    api::JsonObject gap;
    gap.number("after", static_cast<std::uint64_t>(after)).number("until", static_cast<std::uint64_t>(until));
    webhooks.store_.give_up(name, {.number = 0, .event = until, .type = "gap", .document = gap.text(),
                                   .error = "the events were dropped before they were told (retention.events)",
                                   .time_s = webhooks.clock_.now().seconds});
  }

  void tell(const Webhook& webhook, const EventLog::Event& event, const WebhookStore::Position& at) {
    const std::int64_t now_s = webhooks.clock_.now().seconds;
    try {
      send(webhook, event.number, event.type, event.document, now_s);
      if (at.failing_since_s) webhooks.store_.set(name, {.told = event.number, .failing_since_s = {}});
    } catch (const Error& failure) {
      const std::int64_t since_s = at.failing_since_s.value_or(now_s);
      if (now_s - since_s < static_cast<std::int64_t>(webhook.give_up_after_s)) {
        webhooks.store_.set(name, {.told = event.number - 1, .failing_since_s = since_s});
        throw;
      }
      note(failure.what());
      webhooks.store_.give_up(name, {.number = 0, .event = event.number, .type = event.type,
                                     .document = event.document, .error = failure.what(), .time_s = now_s});
    }
  }

  const Webhooks& webhooks;  // constant, as the next
  const std::string name;
  mutable session::Synchronized<std::string> error;  // self-locking, as the next
  ShutdownDeadline stopping;
  std::thread thread;
};

Webhooks::Webhooks(const LiveConfig& config, WebhookStore& store, const EventLog& events, const session::Clock& clock,
                   session::Log& log)
    : config_(config), store_(store), events_(events), clock_(clock), log_(log) {
  follow_config();
}

Webhooks::~Webhooks() = default;

void Webhooks::follow_config() {
  const std::shared_ptr<const EscrowdConfig> config = config_.now();
  auto senders = senders_.lock();
  std::erase_if(*senders, [&](const auto& one) { return !config->webhooks.contains(one.first); });
  for (const auto& [name, webhook] : config->webhooks) {
    if (senders->contains(name)) continue;
    // From this very moment on.
    if (!store_.position(name)) store_.set(name, {.told = events_.last(), .failing_since_s = {}});
    senders->emplace(name, std::make_unique<Sender>(*this, name));
  }
}

std::vector<Webhooks::Status> Webhooks::list() const {
  const std::shared_ptr<const EscrowdConfig> config = config_.now();
  std::vector<Status> all;
  for (const auto& [name, webhook] : config->webhooks) {
    const std::optional<WebhookStore::Position> at = store_.position(name);
    Status status{.name = name, .url = webhook.url, .dead = store_.count_dead(name)};
    if (at) status.pending = std::max<std::int64_t>(0, events_.last() - at->told);
    if (at) status.failing_since_s = at->failing_since_s;
    const auto senders = senders_.lock();
    const auto sender = senders->find(name);
    if (sender != senders->end()) status.error = *sender->second->error.lock();
    all.push_back(std::move(status));
  }
  return all;
}

void Webhooks::check_name(const std::string& name) const {
  if (config_->webhooks.contains(name)) return;
  throw Problem(ProblemCode::not_found, "the configuration has no webhook '" + name + "'");
}

std::vector<WebhookStore::Dead> Webhooks::dead(const std::string& name, std::int64_t after, std::size_t limit) const {
  check_name(name);
  return store_.dead_after(name, after, limit);
}

void Webhooks::send_again(const std::string& name, std::int64_t number) {
  check_name(name);
  const std::vector<WebhookStore::Dead> found = store_.dead_after(name, number - 1, 1);
  if (found.empty() || found.front().number != number) {
    throw Problem(ProblemCode::not_found, "there is no dead letter " + std::to_string(number) + " of '" + name + "'");
  }
  const std::shared_ptr<const EscrowdConfig> config = config_.now();
  const WebhookStore::Dead& letter = found.front();
  const auto webhook = config->webhooks.find(name);
  if (webhook == config->webhooks.end()) return check_name(name);
  try {
    send(webhook->second, letter.event, letter.type, letter.document, clock_.now().seconds);
  } catch (const Error& failure) {
    throw Problem(ProblemCode::unavailable, std::string("it was not taken, and is a dead letter still: ") +
                                                failure.what());
  }
  store_.forget_dead(name, number);
}

}  // namespace escrow::daemon
