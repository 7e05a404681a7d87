#include "daemon/remote_opening.h"

#include <algorithm>
#include <chrono>

#include "daemon/policy_files.h"
#include "session/duration.h"
#include "session/error.h"

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

api::JsonObject remote_opening(const std::string& repository, const SessionArguments& arguments) {
  api::JsonObject body;
  body.text("repository", repository);
  if (!arguments.branch.empty()) body.text("branch", arguments.branch);
  if (!arguments.path_prefix.empty()) body.text("path_prefix", arguments.path_prefix);
  if (arguments.uid) body.number("uid", *arguments.uid);
  if (arguments.gid) body.number("gid", *arguments.gid);
  body.text("umask", arguments.umask);
  if (arguments.read_only) body.flag("read_only", true);
  if (!arguments.symlinks.empty()) body.text("symlinks", arguments.symlinks);
  if (!arguments.excludes.empty()) body.texts("exclude", arguments.excludes);
  if (!arguments.committer.empty()) body.text("run_as", arguments.committer);
  if (!arguments.image.empty()) body.text("image", arguments.image);
  if (!arguments.trigger.empty() || !arguments.trigger_id.empty()) {
    api::JsonObject trigger;
    trigger.text("name", arguments.trigger).text("id", arguments.trigger_id);
    body.object("trigger", std::move(trigger));
  }
  if (arguments.require_approval) body.flag("require_approval", true);
  if (!arguments.approval_expires.empty()) {
    const auto expires = session::parse_duration(arguments.approval_expires, "--approval-expires");
    body.number("approval_expires_s",
                static_cast<std::uint64_t>(std::chrono::ceil<std::chrono::seconds>(expires).count()));
  }
  if (!arguments.policies.empty()) body.documents("policy", read_policies(arguments.policies));
  return body;
}

void add_io(api::JsonObject& body, const SessionArguments& arguments) {
  static const SessionArguments kUsual;
  api::JsonObject io;
  if (arguments.opens != kUsual.opens) io.text("opens", arguments.opens);
  if (arguments.io != kUsual.io) io.text("data", arguments.io);
  if (arguments.io_uring != kUsual.io_uring) io.text("io_uring", arguments.io_uring);
  if (io.text() != api::JsonObject().text()) body.object("io", std::move(io));
  if (arguments.xattr != kUsual.xattr) body.text("xattr", arguments.xattr);
}

void add_mount_options(api::JsonObject& body, const MountArguments& arguments) {
  add_io(body, arguments.opened);
  std::vector<std::string> options = arguments.kernel_options;
  if (arguments.allow_other) options.emplace_back("allow_other");
  if (!options.empty()) body.texts("mount_options", options);
}

void refuse_options_of_this_machine(const std::vector<std::string>& given) {
  for (const auto& [option, why] : kOfThisMachine) {
    if (std::find(given.begin(), given.end(), option) == given.end()) continue;
    throw Error(Errc::bad_request, std::string("with --host there is no ") + option + ": " + why);
  }
}

}  // namespace escrow::daemon
