#include "api/container_api.h"

#include <signal.h>
#include <string.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <ctime>
#include <sstream>
#include <utility>

#include "api/http_client.h"
#include "api/json_values.h"
#include "api/text_bytes.h"
#include "session/base/error.h"
#include "session/base/synchronized.h"

namespace escrow::api {

using session::Errc;
using session::Error;

namespace {

constexpr std::int64_t kNanoseconds = 1'000'000'000;

std::string seconds_text(std::int64_t ns) {
  std::string fraction = std::to_string(ns % kNanoseconds);
  return std::to_string(ns / kNanoseconds) + "." + std::string(9 - fraction.size(), '0') + fraction;
}

const Json& object_of(const Json& json, const std::string& name) {
  static const Json nothing = Json::object();
  const auto found = json.find(name);
  return found == json.end() || !found->is_object() ? nothing : *found;
}

// Runtimes are not as strict with types as our own documents.
std::string text_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_number_integer() ? std::to_string(value.get<std::int64_t>()) : std::string();
}

std::string text_of(const Json& json, const std::string& name) {
  const auto found = json.find(name);
  return found == json.end() ? std::string() : text_of(*found);
}

std::optional<int> number_of(const Json& json, const std::string& name) {
  const auto found = json.find(name);
  return found == json.end() || !found->is_number_integer() ? std::nullopt : std::optional(found->get<int>());
}

// Of RFC 3339, as Go writes it; 0: it is none, or of the year 1, which stands for never.
std::int64_t time_ns(const std::string& text) {
  std::tm date{};
  int length = 0;
  const int fields = std::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d%n", &date.tm_year, &date.tm_mon, &date.tm_mday,
                                 &date.tm_hour, &date.tm_min, &date.tm_sec, &length);
  if (fields != 6 || date.tm_year < 1970) return 0;
  date.tm_year -= 1900;
  date.tm_mon -= 1;
  std::int64_t time = static_cast<std::int64_t>(::timegm(&date)) * kNanoseconds;
  const char* rest = text.c_str() + length;
  if (*rest == '.') {
    std::int64_t unit = kNanoseconds;
    for (++rest; *rest >= '0' && *rest <= '9'; ++rest) time += (*rest - '0') * (unit /= 10);
  }
  int hours = 0, minutes = 0;
  if ((*rest == '+' || *rest == '-') && std::sscanf(rest + 1, "%2d:%2d", &hours, &minutes) == 2) {
    time -= (*rest == '+' ? 1 : -1) * (hours * 3600 + minutes * 60) * kNanoseconds;
  }
  return time;
}

bool flag_of(const Json& json, const std::string& name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_boolean() && found->get<bool>();
}

ContainerApi::Event event_of(const Json& json) {
  const Json& actor = object_of(json, "Actor");
  ContainerApi::Event event{.time_ns = 0,
                            .type = text_of(json, "Type"),
                            .action = text_of(json, "Action"),
                            .subject = text_of(actor, "ID"),
                            .attributes = {}};
  const auto time = json.find("timeNano");
  if (time != json.end() && time->is_number_integer()) event.time_ns = time->get<std::int64_t>();
  for (const auto& [name, value] : object_of(actor, "Attributes").items()) event.attributes[name] = text_of(value);
  return event;
}

// Docker says "sha256:..." of an image's id, podman mostly not.
std::string image_id(const std::string& id) { return id.empty() || id.starts_with("sha256:") ? id : "sha256:" + id; }

}  // namespace

struct ContainerApi::Impl {
  using Client = session::Synchronized<HttpClient>;

  explicit Impl(const std::string& to) : host(to), events(to, "", server()), containers(to, "", server()) {}

  static HttpClient::Server server() { return {.name = "a container runtime", .patience = kPatience}; }

  // nullopt: it is not there.
  std::optional<std::string> get(Client& client, const std::string& target) const {
    const HttpClient::Answer answer = client.lock()->ask("GET", target);
    if (answer.status == 404) return std::nullopt;
    if (answer.status != 200) {
      throw Error(Errc::unavailable, "the container runtime at " + host + " answered " + std::to_string(answer.status) +
                                         " to GET " + target + ": " + answer.body);
    }
    return answer.body;
  }

  // Not by its version: docker runs programs to tell that, and podman looks at all containers.
  bool is_podman() {
    auto known = podman.lock();
    if (!*known) *known = events.lock()->ask("GET", "/_ping").software.find("Libpod") != std::string::npos;
    return **known;
  }

  const std::string host;  // constant
  Client events, containers;
  session::Synchronized<std::optional<bool>> podman;  // nullopt: not known yet
};

ContainerApi::ContainerApi(const std::string& host) : impl_(std::make_unique<Impl>(host)) {}
ContainerApi::~ContainerApi() = default;

// Docker ends its answer where `until` is over, and does not know `stream`; podman the other way round: with `until`,
// version 4.3 answers nothing.
std::vector<ContainerApi::Event> ContainerApi::events_since(std::int64_t since_ns) {
  const std::string since = "since=" + seconds_text(since_ns);
  const auto time = std::chrono::system_clock::now().time_since_epoch();
  const std::string now = seconds_text(std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
  const std::string end = impl_->is_podman() ? "&stream=false" : "&until=" + now;
  const auto body = impl_->get(impl_->events, "/events?" + since + end);
  std::vector<Event> events;
  std::istringstream lines(body.value_or(""));
  for (std::string line; std::getline(lines, line);) {
    if (line.find_first_not_of(" \r\t") == std::string::npos) continue;
    events.push_back(event_of(parse_object(line)));
  }
  std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) { return a.time_ns < b.time_ns; });
  return events;
}

bool ContainerApi::keeps_events() {
  if (!impl_->is_podman()) return true;
  const auto body = impl_->get(impl_->containers, "/v4.0.0/libpod/info");
  return !body || text_of(object_of(parse_object(*body), "host"), "eventLogger") != "none";
}

void ContainerApi::ping() { impl_->get(impl_->events, "/_ping"); }

bool ContainerApi::keeps_containers() {
  if (impl_->is_podman()) return false;  // it has no server to restart, and its events are in a file
  const auto body = impl_->get(impl_->events, "/info");
  return body && flag_of(parse_object(*body), "LiveRestoreEnabled");
}

bool ContainerApi::tells_of_mounts() { return !impl_->is_podman(); }

std::optional<ContainerApi::Container> ContainerApi::container(const std::string& id) {
  const auto body = impl_->get(impl_->containers, "/containers/" + percent_encoded(id) + "/json");
  if (!body) return std::nullopt;
  const Json json = parse_object(*body);
  const Json& state = object_of(json, "State");
  const int stop_signal = signal_number(text_of(object_of(json, "Config"), "StopSignal"));
  // Podman 4.3 has no sign of a stop to rely on. Of 100 stops that a container trapped it recorded 5, and its state
  // "stopping" was there to be read in 82, before who cleans up replaces it. A second event "cleanup" comes after each,
  // but not when the program that stops it is killed after the signal, and not with --rm.
  const std::string status = text_of(state, "Status");
  const bool has_ended = status == "exited" || status == "dead" || status == "stopped";
  Container container{.is_running = flag_of(state, "Running"),
                      .process = static_cast<pid_t>(number_of(state, "Pid").value_or(0)),
                      .started_ns = time_ns(text_of(state, "StartedAt")),
                      .exit_code = {},
                      .ran_out_of_memory = flag_of(state, "OOMKilled"),
                      .volumes = {},
                      .stop_signal = stop_signal,
                      .hides_stops = impl_->is_podman() && stop_signal != SIGKILL,
                      .image = image_id(text_of(json, "Image"))};
  if (has_ended) container.exit_code = number_of(state, "ExitCode");
  for (const Json& mount : get_array(json, "Mounts")) {
    if (mount.is_object() && text_of(mount, "Type") == "volume") container.volumes.push_back(text_of(mount, "Name"));
  }
  return container;
}

int signal_number(std::string_view text) {
  int number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed == std::errc() && end == text.data() + text.size()) return number;
  if (text.starts_with("SIG")) text.remove_prefix(3);
  for (number = 1; number < NSIG; ++number) {
    const char* name = ::sigabbrev_np(number);
    if (name != nullptr && text == name) return number;
  }
  return 0;
}

// Of a container that is starting or ending docker tells all but this one by one; who works on it may wait for us.
std::string ContainerApi::image_of(const std::string& container) {
  const std::string filter = percent_encoded("{\"id\":[\"" + container + "\"]}");
  const auto body = impl_->get(impl_->events, "/containers/json?all=1&filters=" + filter);
  if (!body) return {};
  const Json listed = Json::parse(*body, nullptr, false);
  for (const Json& one : listed.is_array() ? listed : Json::array()) {
    if (one.is_object() && text_of(one, "Id") == container) return image_id(text_of(one, "ImageID"));
  }
  return {};
}

std::string ContainerApi::image_digest(const std::string& id, const std::string& name) {
  const auto body = impl_->get(impl_->events, "/images/" + percent_encoded(id) + "/json");
  const Json json = body ? parse_object(*body) : Json::object();
  for (const Json& digest : get_array(json, "RepoDigests")) {
    if (digest.is_string()) return digest.get<std::string>();
  }
  return name + "@" + id;
}

}  // namespace escrow::api
