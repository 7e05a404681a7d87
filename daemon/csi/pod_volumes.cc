#include "daemon/csi/pod_volumes.h"

#include <unistd.h>

#include <algorithm>
#include <set>
#include <thread>
#include <utility>

#include "api/http_client.h"
#include "api/json_document.h"
#include "api/problem.h"
#include "api/session_calls.h"
#include "api/text_bytes.h"
#include "daemon/csi/bind_mount.h"
#include "daemon/csi/volume_attributes.h"
#include "daemon/host/config.h"
#include "session/base/error.h"

namespace escrow::daemon {

using api::HttpClient;
using api::JsonObject;
using api::RemoteSession;
using session::Errc;
using session::Error;
using session::LogLevel;
using session::State;
using std::chrono::steady_clock;
using namespace std::chrono_literals;

namespace {

constexpr auto kEscrowdPatience = 100'000ms;  // a commit may take long; then the kubelet comes again
constexpr auto kPause = 200ms;
constexpr std::size_t kLongestVolume = 128, kShownConflicts = 10;
constexpr const char *kPodLabel = "csi.pod", *kNamespaceLabel = "csi.namespace", *kUidLabel = "csi.pod_uid",
                     *kTargetLabel = "csi.target_path", *kReadOnlyLabel = "csi.readonly";

HttpClient service(const std::string& host) {
  return {host, "", HttpClient::Server{.name = "escrowd", .patience = kEscrowdPatience}};
}

std::string asked(const std::string& host, const std::string& method, const std::string& target,
                  const std::string& json = {}) {
  HttpClient::Answer answer = service(host).ask(method, target, json);
  if (api::is_refused(answer)) throw api::Problem(api::problem_of(answer));
  return std::move(answer.body);
}

// It becomes a name of a directory, too.
void check_volume(const std::string& volume) {
  const auto is_plain = [](char letter) {
    return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '-' || letter == '_' || letter == '.';
  };
  if (volume.empty()) throw Error(Errc::bad_request, "the request names no volume_id");
  if (volume.size() <= kLongestVolume && volume.front() != '.' && std::all_of(volume.begin(), volume.end(), is_plain))
    return;
  throw Error(Errc::bad_request, "the volume_id is none of an inline volume: 1 to 128 letters, digits, '-', '_', '.'");
}

void check_target(const std::string& target) {
  if (target.empty()) throw Error(Errc::bad_request, "the request names no target_path");
  const bool is_usual = target.starts_with('/') && target.size() > 1 && !target.ends_with('/') &&
                        (target + "/").find("/../") == std::string::npos && target.find("//") == std::string::npos;
  if (!is_usual || target.size() > 1024)
    throw Error(Errc::bad_request, "the target_path is not absolute, or not in its one form");
}

bool is_over(const RemoteSession& session) {
  const State state = session.view.record.state;
  return session::is_final(state) || state == State::awaiting_approval;
}

std::string short_id(const std::optional<session::ObjectId>& id) { return id ? id->hex().substr(0, 12) : ""; }

}  // namespace

// One request for a volume at a time.
class PodVolumes::Turn {
 public:
  Turn(PodVolumes& volumes, std::string volume) : volumes_(volumes), volume_(std::move(volume)) {
    if (!volumes_.busy_.lock()->insert(volume_).second)
      throw Error(Errc::busy, "another request for the volume " + volume_ + " is under way");
  }
  ~Turn() { volumes_.busy_.lock()->erase(volume_); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  PodVolumes& volumes_;
  const std::string volume_;
};

PodVolumes::PodVolumes(Options options, session::Log& log)
    : options_(std::move(options)), kubernetes_(options_.api_server, options_.token_file), log_(log) {
  service(options_.escrowd);  // says what is wrong with it
}

std::string PodVolumes::mountpoint_of(const std::string& volume) const {
  return options_.sessions_directory + "/" + volume;
}

bool PodVolumes::is_ready() const {
  try {
    asked(options_.escrowd, "GET", "/v1/health");
    return true;
  } catch (const Error& error) {
    log_.write(LogLevel::debug, error.what());
    return false;
  }
}

// Only of this driver's own: whoever else may open sessions may give them any external id.
std::optional<RemoteSession> PodVolumes::find(const std::string& volume) const {
  const std::string target = "/v1/sessions?principal=" + api::percent_encoded(principal_of(::geteuid())) +
                             "&external_id=" + api::percent_encoded(volume);
  api::RemoteSessions page = api::sessions_from_json(asked(options_.escrowd, "GET", target));
  if (page.sessions.empty()) return std::nullopt;
  return std::move(page.sessions.front());
}

PodVolumes::Pod PodVolumes::pod_of(const RemoteSession& session) {
  const auto label = [&](const char* name) {
    const auto found = session.labels.find(name);
    return found == session.labels.end() ? std::string() : found->second;
  };
  return {.space = label(kNamespaceLabel), .name = label(kPodLabel), .uid = label(kUidLabel)};
}

void PodVolumes::check_namespace(const Pod& pod, const std::string& repository) const {
  if (options_.allowed.empty()) return;
  for (const std::string& space : {pod.space, std::string("*")}) {
    const auto found = options_.allowed.find(space);
    if (found == options_.allowed.end()) continue;
    if (found->second.contains(repository) || found->second.contains("*")) return;
  }
  throw Error(Errc::not_permitted, "pods of the namespace " + pod.space + " may not have the repository " + repository +
                                       "; `escrow-csi --allow` says who may");
}

RemoteSession PodVolumes::open(const Request& request, const Pod& pod,
                               const std::map<std::string, std::string>& labels) {
  VolumeAttributes attributes = read_volume_attributes(request.attributes);
  check_namespace(pod, attributes.repository);
  const auto found = kubernetes_.pod(pod.space, pod.name);
  if (!found || found->uid != pod.uid) {
    throw Error(Errc::unavailable, "the API server of Kubernetes knows no pod " + pod.space + "/" + pod.name +
                                       " with the uid " + pod.uid + ", so nobody would say how it ends");
  }
  SessionRequest& session = attributes.session;
  if (!session.uid && found->user) session.uid = static_cast<std::uint32_t>(*found->user);
  if (!session.gid && found->group) session.gid = static_cast<std::uint32_t>(*found->group);
  session.read_only = session.read_only || request.is_read_only;
  session.image = found->image;
  session.trigger = "pod " + pod.space + "/" + pod.name;
  session.trigger_id = pod.uid;
  JsonObject body;
  body.text("repository", attributes.repository)
      .text("umask", session.umask)
      .text("mountpoint", mountpoint_of(request.volume))
      .text("external_id", request.volume);
  if (attributes.timeout_ms != 0) body.number("timeout_ms", attributes.timeout_ms);
  write_session_request(body, session, {RequestPart::commit, RequestPart::view});
  JsonObject written;
  for (const auto& [name, value] : labels) written.text(name, value);
  body.object("labels", std::move(written));
  try {
    return api::session_from_json(asked(options_.escrowd, "POST", "/v1/sessions", body.text()));
  } catch (const api::Problem& problem) {
    // External ids are each owner's own: a request of a driver that is gone is still opening it.
    if (problem.problem() != api::ProblemCode::exists) throw;
    throw Error(Errc::unavailable, "the session of the volume " + request.volume +
                                       " is being opened by an earlier request; ask again");
  }
}

void PodVolumes::publish(const Request& request) {
  check_volume(request.volume);
  check_target(request.target);
  const auto attribute = [&](const std::string& name) {
    const auto found = request.attributes.find(name);
    return found == request.attributes.end() ? std::string() : found->second;
  };
  const Pod pod{.space = attribute("csi.storage.k8s.io/pod.namespace"),
                .name = attribute("csi.storage.k8s.io/pod.name"),
                .uid = attribute("csi.storage.k8s.io/pod.uid")};
  if (attribute("csi.storage.k8s.io/ephemeral") != "true") {
    throw Error(Errc::bad_request, "a session is an inline volume of a pod (csi: {driver: " + options_.driver +
                                       "}), not a persistent one");
  }
  if (pod.space.empty() || pod.name.empty() || pod.uid.empty())
    throw Error(Errc::bad_request, "the kubelet does not say which pod it is; the CSIDriver needs podInfoOnMount");
  std::map<std::string, std::string> labels{{kPodLabel, pod.name},
                                            {kNamespaceLabel, pod.space},
                                            {kUidLabel, pod.uid},
                                            {kTargetLabel, request.target},
                                            {kReadOnlyLabel, request.is_read_only ? "true" : "false"}};
  for (auto& [name, value] : own_attributes(request.attributes)) labels["csi.attribute." + name] = value;
  const Turn turn(*this, request.volume);
  std::optional<RemoteSession> session = find(request.volume);
  if (session && session->labels != labels)
    throw Error(Errc::exists, "the volume " + request.volume + " is published with other parameters");
  if (session && is_over(*session)) {
    throw Error(Errc::wrong_state, "the session " + session->view.record.id.text() + " of the volume " +
                                       request.volume + " has ended; a pod cannot have it again");
  }
  const bool is_new = !session;
  if (is_new) session = open(request, pod, labels);
  bind_mount(mountpoint_of(request.volume), request.target, request.is_read_only);
  if (!is_new) return;
  const session::SessionRecord& record = session->view.record;
  tell(*session, pod, "EscrowSessionOpened",
       "session " + record.id.text() + " of the repository " + session->repository + ", branch " +
           record.options.branch + ", is mounted",
       false);
}

// The kubelet has stopped the containers before it asks; the API server may hear so a moment later.
PodVerdict PodVolumes::verdict_of(const std::string& volume, const Pod& pod) {
  std::string obstacle = "the API server of Kubernetes does not say yet how the pod ended";
  for (const auto deadline = steady_clock::now() + options_.verdict_patience;; std::this_thread::sleep_for(kPause)) {
    try {
      const auto found = kubernetes_.pod(pod.space, pod.name);
      PodVerdict verdict = judge(found, pod.uid);
      if (found && found->uid == pod.uid) verdict.image = found->image;
      if (verdict.kind != PodVerdict::Kind::open) return verdict;
    } catch (const Error& error) {
      obstacle = error.what();
    }
    if (steady_clock::now() >= deadline) break;
  }
  const auto now = steady_clock::now();
  const auto since = undecided_since_.lock()->try_emplace(volume, now).first->second;
  if (now - since >= options_.lost_after) {
    log_.write(LogLevel::warning, "the volume " + volume + " of the pod " + pod.space + "/" + pod.name +
                                      " is rolled back and its result kept: " + obstacle);
    return {.kind = PodVerdict::Kind::lost, .why = obstacle};
  }
  throw Error(Errc::unavailable, "the session of the volume " + volume + " cannot be decided yet: " + obstacle);
}

RemoteSession PodVolumes::end(const RemoteSession& session, const PodVerdict& verdict) const {
  const std::string target = "/v1/sessions/" + session.view.record.id.text();
  const auto keep = [&] {
    JsonObject body;
    body.flag("keep_result", true);
    return api::session_from_json(asked(options_.escrowd, "POST", target + "/rollback", body.text()));
  };
  // Those that an escrowd of an earlier version does not know are left out.
  std::set<std::string> fields = {"image", "only_if_seen"};
  if (verdict.image.empty()) fields.erase("image");
  if (verdict.kind != PodVerdict::Kind::exited) fields.erase("only_if_seen");
  while (true) {
    JsonObject body;
    if (fields.contains("image")) body.text("image", verdict.image);
    if (fields.contains("only_if_seen")) body.flag("only_if_seen", true);
    switch (verdict.kind) {
      case PodVerdict::Kind::exited:
        body.number("exit_code", static_cast<unsigned>(verdict.exit_code) & 255U);
        break;
      case PodVerdict::Kind::cancelled:
        body.flag("cancelled", true);
        break;
      case PodVerdict::Kind::timed_out:
        body.flag("timed_out", true);
        break;
      case PodVerdict::Kind::killed:
        body.number("signal", 9);
        break;
      case PodVerdict::Kind::open:
      case PodVerdict::Kind::lost:
        return keep();
    }
    try {
      return api::session_from_json(asked(options_.escrowd, "POST", target + "/finish", body.text()));
    } catch (const api::Problem& problem) {
      // The programs have ended, so bytes that the disk did not take cannot be written again.
      if (problem.problem() == api::ProblemCode::data_lost) return keep();
      const bool is_unknown = problem.problem() == api::ProblemCode::unknown_field;
      if (!is_unknown || fields.erase(problem.member("field")) == 0) throw;
    }
  }
}

// When the host of a session is killed, escrowd mounts it again, where the pod does not see it, or leaves it. One that
// was sealed, and then could not be committed, is not mounted either.
bool PodVolumes::has_lost_its_mount(const RemoteSession& session, const std::string& volume,
                                    const std::string& target) const {
  if (!session.view.record.last_error.empty()) return false;
  if (session.view.attachment != session::Attachment::mounted) return true;
  const std::optional<MountedThere> there = mount_at(target);
  return there && there != mount_at(mountpoint_of(volume));
}

void PodVolumes::unpublish(const std::string& volume, const std::string& target) {
  check_volume(volume);
  check_target(target);
  const Turn turn(*this, volume);
  std::optional<RemoteSession> session = find(volume);
  if (!session) {
    const std::optional<MountedThere> there = mount_at(target);
    if (!there || there->source.starts_with("escrow:")) remove_bind_mount(target);
    return;
  }
  const Pod pod = pod_of(*session);
  std::string why;
  if (!is_over(*session)) {
    PodVerdict verdict = verdict_of(volume, pod);
    if (has_lost_its_mount(*session, volume, target)) {
      verdict = {.kind = PodVerdict::Kind::lost, .why = "its mount broke off while the pod had it"};
    }
    why = verdict.why;
    // A broken mount cannot be seen once the target is gone. Else the target goes first: what still has it open would
    // be cut off in the middle of something.
    if (verdict.kind != PodVerdict::Kind::lost) remove_bind_mount(target);
    session = end(*session, verdict);
  }
  tell_end(*session, pod, why);
  remove_bind_mount(target);
  undecided_since_.lock()->erase(volume);
}

// ---- Events of the pod.

void PodVolumes::tell(const RemoteSession& session, const Pod& pod, const std::string& reason,
                      const std::string& message, bool is_warning) const {
  std::string name = pod.name.substr(0, 200) + "." + session.view.record.id.text() + "." + reason;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char letter) { return static_cast<char>(std::tolower(static_cast<unsigned char>(letter))); });
  try {
    kubernetes_.post({.space = pod.space, .pod = pod.name, .uid = pod.uid, .name = name, .is_warning = is_warning,
                      .reason = reason, .message = message, .component = options_.driver, .node = options_.node});
  } catch (const Error& error) {
    log_.write(LogLevel::warning, "the pod " + pod.space + "/" + pod.name + " has no event " + reason + " (" + message +
                                      "): " + error.what());
  }
}

void PodVolumes::tell_end(const RemoteSession& session, const Pod& pod, const std::string& why) const {
  const session::SessionRecord& record = session.view.record;
  const std::string name = "session " + record.id.text();
  const std::string because = why.empty() ? std::string() : ": " + why;
  switch (record.state) {
    case State::committed:
      return tell(session, pod, "EscrowCommitted",
                  name + (record.commit ? " is commit " + short_id(record.commit) + " of " + record.options.branch
                                        : std::string(" changed nothing")) + because,
                  false);
    case State::awaiting_approval:
      return tell(session, pod, "EscrowAwaitsApproval",
                  name + " waits for a review as " + short_id(record.result) + because, false);
    case State::commit_failed: {
      std::string paths;
      for (std::size_t at = 0; at < std::min(record.conflicts.size(), kShownConflicts); ++at)
        paths += (at == 0 ? " " : ", ") + session::quote_path(record.conflicts[at]);
      return tell(session, pod, "EscrowConflict",
                  name + " was not committed: it conflicts with what others committed at" + paths +
                      "; its result is kept as refs/sessions/" + record.id.text(),
                  true);
    }
    case State::rolled_back:
      if (record.reason == session::Reason::not_started) {
        return tell(session, pod, "EscrowRolledBack",
                    name + " is rolled back: no container has seen it, so their work is not in it; the node's "
                           "container runtime has other mounts than escrow-csi (mountPropagation)" + because,
                    true);
      }
      return tell(session, pod, "EscrowRolledBack",
                  name + " is rolled back (" + name_of(record.reason) + ")" + because, true);
    case State::open:
    case State::committing:
      throw Error(Errc::unavailable, name + " is still being ended");
  }
}

}  // namespace escrow::daemon
