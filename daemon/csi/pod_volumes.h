// Inline volumes of pods: each is a session of escrowd, opened and mounted when the kubelet publishes it, and ended as
// the pod ended when the kubelet unpublishes it.
//
// Nothing is kept here. A session is found by its external id, which is the volume's, and its labels say what it was
// asked for: a restart of the driver, of escrowd or of both loses nothing. Thread-safe; a second request for a volume
// that has one under way is refused as Error{busy}. Throws Error: bad_request and not_permitted for what must be asked
// differently, exists for a volume that there is with other parameters, wrong_state for one whose session has ended;
// everything else is to be asked again.
#pragma once

#include <chrono>
#include <map>
#include <set>
#include <string>

#include "api/kubernetes_api.h"
#include "api/remote_documents.h"
#include "daemon/csi/pod_verdict.h"
#include "session/base/log.h"
#include "session/base/synchronized.h"

namespace escrow::daemon {

class PodVolumes {
 public:
  struct Options {
    std::string escrowd;             // "unix:///PATH"
    std::string sessions_directory;  // where escrowd mounts them, below one of its mount_roots
    std::string api_server, token_file;
    std::string driver, node;
    // Which repositories pods of a namespace may have; "*" stands for every one, in both. Empty: all.
    std::map<std::string, std::set<std::string>> allowed;
    std::chrono::milliseconds verdict_patience{3'000};  // of one request
    std::chrono::milliseconds lost_after{120'000};      // since the first request that nobody could decide
  };
  // `log` must outlive this. Throws Error{bad_request} for what cannot be a host.
  PodVolumes(Options options, session::Log& log);

  struct Request {
    std::string volume, target;
    bool is_read_only = false;
    std::map<std::string, std::string> attributes;  // as the pod has them, with what the kubelet adds
  };
  void publish(const Request& request);
  // Of a volume that is not known, nothing but its target goes.
  void unpublish(const std::string& volume, const std::string& target);
  // Whether escrowd answers.
  bool is_ready() const;

 private:
  struct Pod {
    std::string space, name, uid;
  };
  class Turn;

  std::optional<api::RemoteSession> find(const std::string& volume) const;
  api::RemoteSession open(const Request& request, const Pod& pod, const std::map<std::string, std::string>& labels);
  void check_namespace(const Pod& pod, const std::string& repository) const;
  bool has_lost_its_mount(const api::RemoteSession& session, const std::string& volume,
                          const std::string& target) const;
  PodVerdict verdict_of(const std::string& volume, const Pod& pod);
  api::RemoteSession end(const api::RemoteSession& session, const PodVerdict& verdict) const;
  void tell(const api::RemoteSession& session, const Pod& pod, const std::string& reason, const std::string& message,
            bool is_warning) const;
  void tell_end(const api::RemoteSession& session, const Pod& pod, const std::string& why) const;
  static Pod pod_of(const api::RemoteSession& session);
  std::string mountpoint_of(const std::string& volume) const;

  const Options options_;  // constant
  const api::KubernetesApi kubernetes_;
  session::Log& log_;  // self-locking, as what follows
  session::Synchronized<std::set<std::string>> busy_;
  session::Synchronized<std::map<std::string, std::chrono::steady_clock::time_point>> undecided_since_;
};

}  // namespace escrow::daemon
