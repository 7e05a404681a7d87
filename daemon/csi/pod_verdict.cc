#include "daemon/csi/pod_verdict.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace escrow::daemon {

using Kind = PodVerdict::Kind;
using Pod = api::KubernetesApi::Pod;
using Container = api::KubernetesApi::Container;

namespace {

bool is_cancelling(const std::string& reason) {
  // Of kubelets: node pressure, the node's shutdown (two words of two versions), a more important pod, a node that does
  // not fit any more.
  for (const char* known :
       {"Evicted", "Shutdown", "NodeShutdown", "Terminated", "Preempting", "NodeAffinity", "NodeLost"}) {
    if (reason == known) return true;
  }
  return false;
}

// Of a pod that was not interfered with. Until its phase is final, a container may be started again.
PodVerdict of_containers(const Pod& pod) {
  if (pod.phase != "Succeeded" && pod.phase != "Failed") return {};
  std::vector<Container> all = pod.initial_containers;
  all.insert(all.end(), pod.containers.begin(), pod.containers.end());
  for (const Container& container : all) {
    if (container.has_ended && container.reason == "OOMKilled")
      return {.kind = Kind::killed, .why = "the container " + container.name + " used up its memory"};
  }
  for (const Container& container : all) {
    if (!container.has_ended || container.exit_code == 0) continue;
    return {.kind = Kind::exited, .exit_code = container.exit_code,
            .why = "the container " + container.name + " ended with " + std::to_string(container.exit_code)};
  }
  if (pod.phase == "Failed") {
    return {.kind = Kind::exited, .exit_code = 1,
            .why = "the pod failed" + (pod.reason.empty() ? "" : " (" + pod.reason + ")")};
  }
  const bool have_all_ended = pod.containers.size() == pod.wanted_containers && !pod.containers.empty() &&
                              std::all_of(pod.containers.begin(), pod.containers.end(),
                                          [](const Container& container) { return container.has_ended; });
  if (!have_all_ended) return {};
  return {.kind = Kind::exited, .exit_code = 0, .why = "every container ended with 0"};
}

}  // namespace

PodVerdict judge(const std::optional<Pod>& pod, const std::string& uid) {
  if (!pod || pod->uid != uid) return {.kind = Kind::lost, .why = "the pod is gone, and nobody told how it had ended"};
  if (pod->is_disrupted || is_cancelling(pod->reason)) {
    return {.kind = Kind::cancelled,
            .why = "the pod was made to leave its node" + (pod->reason.empty() ? "" : " (" + pod->reason + ")")};
  }
  if (pod->reason == "DeadlineExceeded") return {.kind = Kind::timed_out, .why = "the pod's deadline passed"};
  PodVerdict verdict = of_containers(*pod);
  if (!pod->deletion_s) return verdict;
  std::int64_t last_s = 0;
  for (const Container& container : pod->containers) last_s = std::max(last_s, container.ended_s);
  if (verdict.kind != Kind::open && last_s != 0 && last_s < *pod->deletion_s) return verdict;
  return {.kind = Kind::cancelled, .why = "the pod was deleted"};
}

}  // namespace escrow::daemon
