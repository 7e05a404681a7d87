#include "api/kubernetes_api.h"

#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>

#include "api/http_client.h"
#include "api/json_values.h"
#include "api/text_bytes.h"
#include "session/base/error.h"

namespace escrow::api {

using session::Errc;
using session::Error;

namespace {

const Json& field_object_of(const Json& json, const std::string& name) {
  static const Json nothing = Json::object();
  const auto found = json.find(name);
  return found == json.end() || !found->is_object() ? nothing : *found;
}

const Json& array_of(const Json& json, const std::string& name) {
  static const Json nothing = Json::array();
  const auto found = json.find(name);
  return found == json.end() || !found->is_array() ? nothing : *found;
}

std::string text_field(const Json& json, const std::string& name) {
  const auto found = json.find(name);
  return found == json.end() || !found->is_string() ? std::string() : found->get<std::string>();
}

std::optional<std::int64_t> whole_number_of(const Json& json, const std::string& name) {
  const auto found = json.find(name);
  return found == json.end() || !found->is_number_integer() ? std::nullopt
                                                            : std::optional(found->get<std::int64_t>());
}

// As the API server writes them: "2026-11-21T04:14:00Z".
std::optional<std::int64_t> time_of(const Json& json, const std::string& name) {
  std::tm date{};
  const std::string text = text_field(json, name);
  if (std::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d", &date.tm_year, &date.tm_mon, &date.tm_mday, &date.tm_hour,
                  &date.tm_min, &date.tm_sec) != 6) {
    return std::nullopt;
  }
  date.tm_year -= 1900;
  date.tm_mon -= 1;
  return ::timegm(&date);
}

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm date{};
  ::gmtime_r(&now, &date);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &date);
  return text;
}

KubernetesApi::Container container_of(const Json& status) {
  const Json& state = field_object_of(status, "state");
  KubernetesApi::Container container{.name = text_field(status, "name"), .reason = {}};
  const Json& ended = field_object_of(state, "terminated");
  const std::optional<std::int64_t> exit_code = whole_number_of(ended, "exitCode");
  if (!exit_code) return container;
  container.has_ended = true;
  container.exit_code = static_cast<int>(*exit_code);
  container.reason = text_field(ended, "reason");
  container.ended_s = time_of(ended, "finishedAt").value_or(0);
  return container;
}

std::optional<std::uint64_t> id_of(const Json& spec, const std::string& name) {
  const std::optional<std::int64_t> number = whole_number_of(field_object_of(spec, "securityContext"), name);
  return number && *number >= 0 ? std::optional(static_cast<std::uint64_t>(*number)) : std::nullopt;
}

void add_user(const Json& spec, KubernetesApi::Pod& pod) {
  const Json& containers = array_of(spec, "containers");
  pod.wanted_containers = containers.size();
  pod.user = id_of(spec, "runAsUser");
  pod.group = id_of(spec, "runAsGroup");
  if (const auto files = id_of(spec, "fsGroup")) pod.group = files;
  if (containers.size() != 1) return;
  const Json& only = containers.front();
  if (!only.is_object()) return;
  pod.image = text_field(only, "image");
  if (const auto user = id_of(only, "runAsUser")) pod.user = user;
  if (const auto group = id_of(only, "runAsGroup"); group && !id_of(spec, "fsGroup")) pod.group = group;
}

// As container runtimes name the image of a container: by a digest of its repository, by its id alone when it was built
// here, and with a scheme before it (docker-pullable://).
std::string image_by(const std::string& id, const std::string& name) {
  const std::size_t scheme = id.find("://");
  const std::string bare = scheme == std::string::npos ? id : id.substr(scheme + 3);
  return bare.starts_with("sha256:") ? name + "@" + bare : bare;
}

KubernetesApi::Pod pod_of(const Json& json) {
  const Json &meta = field_object_of(json, "metadata"), &spec = field_object_of(json, "spec"),
             &status = field_object_of(json, "status");
  KubernetesApi::Pod pod{.uid = text_field(meta, "uid"),
                         .phase = text_field(status, "phase"),
                         .reason = text_field(status, "reason"),
                         .image = {}};
  // The time that is written down is that of its end.
  if (const auto end_s = time_of(meta, "deletionTimestamp")) {
    pod.deletion_s = *end_s - whole_number_of(meta, "deletionGracePeriodSeconds").value_or(0);
  }
  for (const Json& condition : array_of(status, "conditions")) {
    if (condition.is_object() && text_field(condition, "type") == "DisruptionTarget") {
      pod.is_disrupted = pod.is_disrupted || text_field(condition, "status") == "True";
    }
  }
  std::set<std::string> sidecars;
  for (const Json& initial : array_of(spec, "initContainers")) {
    if (initial.is_object() && text_field(initial, "restartPolicy") == "Always")
      sidecars.insert(text_field(initial, "name"));
  }
  for (const Json& container : array_of(status, "containerStatuses")) {
    if (container.is_object()) pod.containers.push_back(container_of(container));
  }
  for (const Json& container : array_of(status, "initContainerStatuses")) {
    if (container.is_object() && !sidecars.contains(text_field(container, "name")))
      pod.initial_containers.push_back(container_of(container));
  }
  add_user(spec, pod);
  if (pod.wanted_containers == 1 && pod.containers.size() == 1) {
    const std::string id = text_field(array_of(status, "containerStatuses").front(), "imageID");
    if (!id.empty()) pod.image = image_by(id, pod.image);
  }
  return pod;
}

std::string token_in(const std::string& path) {
  if (path.empty()) return {};
  std::ifstream file(path, std::ios::binary);
  std::string token{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  while (token.ends_with('\n')) token.pop_back();
  if (token.empty()) throw Error(Errc::unavailable, "there is no token of the API server in " + path);
  return token;
}

HttpClient client(const std::string& host, const std::string& token_file) {
  return {host, token_in(token_file),
          HttpClient::Server{.name = "the API server of Kubernetes", .patience = KubernetesApi::kPatience}};
}

[[noreturn]] void refuse_kubernetes(const std::string& host, const std::string& asked, const HttpResponse& answer) {
  throw Error(Errc::unavailable, "the API server of Kubernetes at " + host + " answered " +
                                     std::to_string(answer.status) + " to " + asked + ": " +
                                     answer.body.substr(0, 1000));
}

std::string namespace_path(const std::string& space) { return "/api/v1/namespaces/" + percent_encoded(space); }

}  // namespace

KubernetesApi::KubernetesApi(std::string host, std::string token_file)
    : host_(std::move(host)), token_file_(std::move(token_file)) {
  HttpClient checked(host_, "");
}

std::optional<KubernetesApi::Pod> KubernetesApi::pod(const std::string& space, const std::string& name) const {
  const std::string target = namespace_path(space) + "/pods/" + percent_encoded(name);
  const HttpClient::Answer answer = client(host_, token_file_).ask("GET", target);
  if (answer.status != 200 && answer.status != 404) refuse_kubernetes(host_, "GET " + target, answer);
  try {
    const Json json = parse_object(answer.body);
    // Something on the way may answer 404, too: the server itself says what is not there.
    if (answer.status == 404 && text_field(json, "reason") == "NotFound") return std::nullopt;
    Pod pod = pod_of(json);
    if (answer.status == 200 && !pod.uid.empty()) return pod;
  } catch (const Error&) {
    // No document at all.
  }
  refuse_kubernetes(host_, "GET " + target, answer);
}

void KubernetesApi::post(const Event& event) const {
  const std::string now = now_text();
  Json json = {
      {"apiVersion", "v1"},
      {"kind", "Event"},
      {"metadata", {{"name", event.name}, {"namespace", event.space}}},
      {"involvedObject",
       {{"apiVersion", "v1"}, {"kind", "Pod"}, {"namespace", event.space}, {"name", event.pod}, {"uid", event.uid}}},
      {"reason", event.reason},
      {"message", event.message.substr(0, 1000)},
      {"type", event.is_warning ? "Warning" : "Normal"},
      {"source", {{"component", event.component}, {"host", event.node}}},
      {"reportingComponent", event.component},
      {"reportingInstance", event.node},
      {"firstTimestamp", now},
      {"lastTimestamp", now},
      {"count", 1}};
  const std::string target = namespace_path(event.space) + "/events";
  const HttpClient::Answer answer = client(host_, token_file_).ask("POST", target, dump(json));
  if (answer.status != 200 && answer.status != 201 && answer.status != 409)
    refuse_kubernetes(host_, "POST " + target, answer);
}

}  // namespace escrow::api
