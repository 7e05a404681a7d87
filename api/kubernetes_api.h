// A client of the API server of Kubernetes: reads the state of a pod, and notes events of it.
//
// The token is read from its file for each request, because the kubelet renews it. Certificates are checked as
// http_client.h says. Thread-safe: each request has a connection of its own, and waits at most kPatience. Throws
// Error{unavailable} naming the server when it does not answer, or not as it should.
// Sources: kubernetes.io/docs/reference/kubernetes-api, Pod v1 and Event v1.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace escrow::api {

class KubernetesApi {
 public:
  static constexpr std::chrono::milliseconds kPatience{10'000};

  // `host` as HttpClient takes it. `token_file` may be empty.
  KubernetesApi(std::string host, std::string token_file);

  struct Container {
    std::string name;
    bool has_ended = false;  // for good, or until it is started again
    int exit_code = 0;       // once it has ended, as the next two
    std::string reason;      // "Completed", "Error", "OOMKilled"
    std::int64_t ended_s = 0;  // since the epoch; 0: not known
  };
  struct Pod {
    std::string uid, phase;  // "Pending", "Running", "Succeeded", "Failed", "Unknown"
    std::string reason;      // "Evicted", "DeadlineExceeded"
    bool is_disrupted = false;  // it was evicted, preempted or drained away, by its condition DisruptionTarget
    std::optional<std::int64_t> deletion_s{};  // when it was asked for, since the epoch
    std::vector<Container> containers, initial_containers;  // without sidecars, which end after all others
    std::size_t wanted_containers = 0;                      // of `containers`, once all are known
    std::optional<std::uint64_t> user, group;               // that it runs as, where it says so
    // Of its one container: as the pod asks for it and, once that was started, the digest of the one that it runs.
    // Empty: there are several.
    std::string image;
  };
  // nullopt: there is none of that name.
  std::optional<Pod> pod(const std::string& space, const std::string& name) const;

  struct Event {
    std::string space, pod, uid;
    std::string name;  // of the event: the same one twice is noted once
    bool is_warning = false;
    std::string reason, message;     // "EscrowCommitted"
    std::string component, node;
  };
  void post(const Event& event) const;

  const std::string& host() const noexcept { return host_; }

 private:
  const std::string host_, token_file_;  // constant
};

}  // namespace escrow::api
