// Decides what the end of a pod means for its sessions. Pure.
//
// As a run: every container ended with 0 commits, anything else rolls back. What was asked of the pod before its last
// container ended (to be deleted, to leave its node) cancels, whatever the containers make of it; times of the API
// server are whole seconds, so an end within the second of the deletion counts as after it. Sidecars (initial
// containers that are always restarted) say nothing, as in Kubernetes itself.
// Source: kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle and .../disruptions.
#pragma once

#include <optional>
#include <string>

#include "api/kubernetes_api.h"

namespace escrow::daemon {

struct PodVerdict {
  enum class Kind {
    open,       // not all have ended, or nobody has told yet
    exited,     // with exit_code
    cancelled,
    timed_out,
    killed,     // for want of memory
    lost,       // nobody will say any more how it ended
  };
  Kind kind = Kind::open;
  int exit_code = 0;
  std::string why{};    // a clause
  std::string image{};  // KubernetesApi::Pod
};

// `uid` is that of the pod that had the volume: a later one of the same name is another.
PodVerdict judge(const std::optional<api::KubernetesApi::Pod>& pod, const std::string& uid);

}  // namespace escrow::daemon
