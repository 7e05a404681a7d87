#include "daemon/client/remote_opening.h"

#include <algorithm>

#include "session/base/error.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;

namespace {

constexpr const char* kContainers =
    "a service starts no containers; give one a volume of the service's plugin (`docker volume create -d escrow`), or "
    "run it beside the repository, with --repo";

struct OfThisMachine {
  const char* option;
  const char* why;
};
constexpr OfThisMachine kOfThisMachine[] = {
    {"--issuer", "the issuer is who asks, which the service proves itself; --committer says for whom"},
    {"--image", kContainers},
    {"--runtime", kContainers},
    {"--pull", kContainers},
    {"--runtime-arg", kContainers},
    {"--foreground", "the service has the mount, and no process of it stays here; `escrow unmount` takes it away"},
    {"--trace", "the service has the mount, and writes no file for its callers; `escrow status` counts what was denied "
                "and GET /v1/events tells it, and `escrow run` traces"},
};

}  // namespace

api::JsonObject remote_opening(const std::string& repository, const SessionRequest& request) {
  api::JsonObject body;
  body.text("repository", repository);
  body.text("umask", request.umask);  // a service has another one by default
  write_session_request(body, request, {RequestPart::commit, RequestPart::view});
  return body;
}

void add_mount_options(api::JsonObject& body, const MountArguments& arguments) {
  write_session_request(body, arguments.opened, {RequestPart::mount});
  std::vector<std::string> options = arguments.kernel_options;
  if (arguments.allow_other) options.emplace_back("allow_other");
  if (arguments.in_container) options.emplace_back("in_container");
  if (!options.empty()) body.texts("mount_options", options);
}

void refuse_options_of_this_machine(const std::vector<std::string>& given) {
  for (const auto& [option, why] : kOfThisMachine) {
    if (std::find(given.begin(), given.end(), option) == given.end()) continue;
    throw Error(Errc::bad_request, std::string("with --host there is no ") + option + ": " + why);
  }
}

}  // namespace escrow::daemon
