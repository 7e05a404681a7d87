// The two services of the Container Storage Interface that a kubelet asks on a Unix socket, over PodVolumes.
//
// Thread-safe. An Error becomes the gRPC status that tells the kubelet what it means: INVALID_ARGUMENT and the like end
// its tries, UNAVAILABLE and ABORTED have it come again, also to take back what may have been published.
#pragma once

#include <memory>
#include <string>

#include "daemon/csi/pod_volumes.h"

namespace escrow::daemon {

class CsiServer {
 public:
  // Listens from here on; `volumes` and `log` must outlive this. `driver` is its name, `node` this machine's. Throws
  // Error{unavailable}.
  CsiServer(const std::string& socket, std::string driver, std::string node, PodVolumes& volumes, session::Log& log);
  // Waits for requests under way, at most a moment.
  ~CsiServer();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace escrow::daemon
