#include "daemon/remote_opening.h"

#include <chrono>

#include "daemon/policy_files.h"
#include "session/duration.h"
#include "session/error.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;

api::JsonObject remote_opening(const std::string& repository, const SessionArguments& arguments) {
  api::JsonObject body;
  body.text("repository", repository);
  if (!arguments.branch.empty()) body.text("branch", arguments.branch);
  if (!arguments.path_prefix.empty()) body.text("path_prefix", arguments.path_prefix);
  body.text("umask", arguments.umask);
  if (arguments.read_only) body.flag("read_only", true);
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
  if (arguments.policies.size() > 1) {
    throw Error(Errc::bad_request, "with --host a session takes one --policy; put the rules of several into one file");
  }
  if (!arguments.policies.empty()) body.document("policy", read_policies(arguments.policies).front());
  api::JsonObject io;
  io.text("opens", arguments.opens).text("data", arguments.io);
  body.object("io", std::move(io));
  return body;
}

void refuse_options_of_this_machine(const std::vector<std::string>& given) {
  if (given.empty()) return;
  std::string all;
  for (const std::string& option : given) all += (all.empty() ? "" : ", ") + option;
  throw Error(Errc::bad_request, all + (given.size() == 1 ? " works" : " work") +
                                     " on a repository of this machine alone, not with --host; leave it out");
}

}  // namespace escrow::daemon
