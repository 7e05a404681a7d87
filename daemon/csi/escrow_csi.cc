#include "daemon/csi/escrow_csi.h"

#include <signal.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "daemon/csi/csi_services.h"
#include "daemon/csi/pod_volumes.h"
#include "daemon/host/spdlog_log.h"
#include "daemon/process/exit_status.h"
#include "session/base/duration.h"
#include "session/base/error.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;

namespace {

struct Invocation {
  std::string socket = "/csi/csi.sock";
  PodVolumes::Options volumes;
  std::string api_server_ca;
  bool verbose = false;
};

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// As every pod is told.
std::string api_server_of_cluster() {
  const std::string name = environment("KUBERNETES_SERVICE_HOST"), port = environment("KUBERNETES_SERVICE_PORT");
  if (name.empty()) return {};
  const bool is_bare_v6 = name.find(':') != std::string::npos;
  return "https://" + (is_bare_v6 ? "[" + name + "]" : name) + (port.empty() ? "" : ":" + port);
}

void add_allowed(const std::string& text, PodVolumes::Options& options) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == text.size())
    throw Error(Errc::bad_request, "--allow needs NAMESPACE:REPOSITORY, not '" + text + "'");
  options.allowed[text.substr(0, colon)].insert(text.substr(colon + 1));
}

std::optional<Invocation> parse(int argc, char** argv, int& exit_status) {
  static const std::string kAccount = "/var/run/secrets/kubernetes.io/serviceaccount";
  Invocation asked;
  PodVolumes::Options& volumes = asked.volumes;
  volumes.escrowd = "unix:///run/escrowd/escrowd.sock";
  volumes.sessions_directory = "/var/lib/escrow/sessions";
  volumes.driver = "csi.escrow";
  volumes.api_server = api_server_of_cluster();
  volumes.token_file = kAccount + "/token";
  asked.api_server_ca = kAccount + "/ca.crt";
  std::vector<std::string> allowed;
  std::string lost_after = "2m";
  CLI::App app("Gives pods of Kubernetes sessions of escrowd as inline volumes (CSI)", "escrow-csi");
  app.add_option("--socket", asked.socket, "Where the kubelet asks")->type_name("PATH")->capture_default_str();
  app.add_option("--escrowd", volumes.escrowd, "The service's socket")->type_name("URL")->capture_default_str();
  app.add_option("--sessions", volumes.sessions_directory, "Where it mounts sessions, below one of its mount_roots")
      ->type_name("DIR")->capture_default_str();
  app.add_option("--node", volumes.node, "This machine's name in the cluster")->envname("NODE_NAME")->required();
  app.add_option("--driver", volumes.driver, "The name of the driver")->type_name("NAME")->capture_default_str();
  app.add_option("--api-server", volumes.api_server, "The API server of Kubernetes; default: the pod's own cluster")
      ->type_name("URL");
  app.add_option("--token-file", volumes.token_file, "What it is asked with")->type_name("FILE")->capture_default_str();
  app.add_option("--api-server-ca", asked.api_server_ca, "Who vouches for it")->type_name("FILE")
      ->capture_default_str();
  app.add_option("--allow", allowed, "Only pods of this namespace may have the repository (may be repeated; * for all)")
      ->type_name("NAMESPACE:REPOSITORY")->allow_extra_args(false);
  app.add_option("--lost-after", lost_after,
                 "Roll back, and keep the result, when nobody has said for so long how a pod ended")
      ->type_name("TIME")->capture_default_str();
  app.add_flag("--verbose", asked.verbose, "Log everything");
  app.set_version_flag("--version", std::string("escrow-csi ") + ESCROW_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    exit_status = app.exit(error) == 0 ? kExitSuccess : kExitUsage;
    return std::nullopt;
  }
  volumes.lost_after = session::parse_duration(lost_after, "--lost-after");
  for (const std::string& text : allowed) add_allowed(text, volumes);
  if (volumes.api_server.empty()) {
    throw Error(Errc::bad_request, "nobody would say how pods end: this is no pod of a cluster, and --api-server names "
                                   "none");
  }
  return asked;
}

}  // namespace

int run_escrow_csi(int argc, char** argv) {
  try {
    int exit_status = kExitSuccess;
    const std::optional<Invocation> asked = parse(argc, argv, exit_status);
    if (!asked) return exit_status;
    sigset_t signals;
    sigemptyset(&signals);
    for (const int number : {SIGINT, SIGTERM}) sigaddset(&signals, number);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // before there are threads
    signal(SIGPIPE, SIG_IGN);
    setenv("SSL_CERT_FILE", asked->api_server_ca.c_str(), 1);
    umask(0077);  // the socket is root's alone
    const std::unique_ptr<session::Log> log = make_log(asked->verbose);
    PodVolumes volumes(asked->volumes, *log);
    const CsiServer server(asked->socket, asked->volumes.driver, asked->volumes.node, volumes, *log);
    int number = 0;
    sigwait(&signals, &number);
    return kExitSuccess;
  } catch (const Error& error) {
    std::fprintf(stderr, "escrow-csi: %s\n", error.what());
    return exit_status_of(error);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "escrow-csi: internal error: %s\n", error.what());
    return kExitEscrowFailed;
  }
}

}  // namespace escrow::daemon
