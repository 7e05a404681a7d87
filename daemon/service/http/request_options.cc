#include "daemon/service/http/request_options.h"

#include <algorithm>
#include <array>

#include "api/problem.h"
#include "daemon/host/io_choice.h"
#include "session/base/error.h"

namespace escrow::daemon {

using api::Problem;
using api::ProblemCode;
using api::RequestFields;
using session::Error;

namespace {

// Never suid and dev: whatever a session holds, it gives nobody rights.
constexpr std::array<std::string_view, 10> kOfMounts = {"allow_other", "in_container", "nosuid",  "nodev",
                                                        "exec",        "noexec",       "sync",    "noatime",
                                                        "nodiratime",  "dirsync"};

void add(std::string& options, const std::string& option) { options += (options.empty() ? "" : ",") + option; }

// Runs a check of the core, and says which field failed it.
template <typename Check>
void check(const std::string& field, Check check) {
  try {
    check();
  } catch (const Error& error) {
    throw Problem(ProblemCode::invalid_value, "\"" + field + "\" is refused: " + error.what(), {{"field", field}});
  }
}

[[noreturn]] void refuse_option(ProblemCode code, const std::string& field, const std::string& why) {
  throw Problem(code, why, {{"field", field}});
}

}  // namespace

std::string read_mount_options(RequestFields& fields, const SessionRequest& session) {
  std::string options = mount_options_of(session);
  for (const std::string& option : fields.texts("mount_options").value_or(std::vector<std::string>())) {
    if (std::find(kOfMounts.begin(), kOfMounts.end(), option) == kOfMounts.end()) {
      fields.refuse("mount_options", "has '" + option + "', which a mount of a service cannot have");
    }
    add(options, option);
  }
  return options;
}

MountArguments mounting_of(const std::string& mount_options) {
  MountArguments arguments;
  apply_mount_options(mount_options, arguments);
  return arguments;
}

GuardTerms::GuardTerms(const session::SessionOptions& options)
    : has_contained_symlinks(options.contained_symlinks),
      policy(needs_of_policies(options.policies, options.prefix.text())),
      limits(options.limits) {}

GuardTerms::GuardTerms(const SessionRequest& request)
    : has_contained_symlinks(request.symlinks == "contained"),
      policy(needs_of_policies(request.policies.documents, request.path_prefix)),
      limits{.staged_bytes = request.limit_staged_bytes, .files = request.limit_files} {}

void check_terms(const Caller& caller, const GuardTerms& terms, const std::string& mount_options) {
  const SessionRequest wanted = mounting_of(mount_options).opened;
  // Whoever walks through the mount, root as well, would be led elsewhere by whoever writes in it.
  if (!terms.has_contained_symlinks && !caller.is_operator) {
    refuse_option(ProblemCode::forbidden, "symlinks",
                  "only operators may have sessions whose links may lead out of their mount");
  }
  // They are held in memory, and no limit counts them.
  if (wanted.xattr == "user" && !caller.is_operator) {
    refuse_option(ProblemCode::forbidden, "xattr", "only operators may have mounts with extended attributes");
  }
  check("io", [&] { choose_io(wanted, terms.policy, terms.limits); });
  if (wanted.xattr == "user" && terms.limits.staged_bytes != 0) {
    refuse_option(ProblemCode::invalid_value, "xattr",
                  "\"xattr\" cannot be user with a limit of staged bytes, because extended attributes are not counted");
  }
}

}  // namespace escrow::daemon
