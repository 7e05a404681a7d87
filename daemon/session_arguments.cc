#include "daemon/session_arguments.h"

#include <unistd.h>

#include <CLI/CLI.hpp>

#include "daemon/config.h"
#include "session/duration.h"
#include "daemon/policy_files.h"
#include "session/error.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;

void add_audit_options(CLI::App& command, SessionArguments& arguments) {
  command.add_option("--branch", arguments.branch, "The branch to read and commit to (default: the repository's HEAD)")
      ->type_name("B");
  command.add_option("--path-prefix", arguments.path_prefix, "The directory of the repository that is the root")
      ->type_name("P");
  command
      .add_option("--committer", arguments.committer,
                  "Who the commit is by: user:NAME, agent:NAME or role:NAME (default: this user)")
      ->type_name("N");
  command.add_option("--issuer", arguments.issuer, "Who asked for the session (default: this user)")->type_name("N");
  command.add_option("--image", arguments.image, "Recorded with the commit: the image the command ran in")
      ->type_name("I");
  command.add_option("--trigger", arguments.trigger, "Recorded with the commit: what started this")->type_name("NAME");
  command.add_option("--trigger-id", arguments.trigger_id, "Recorded with the commit: which one of them")
      ->type_name("ID");
  command.add_flag("--require-approval", arguments.require_approval,
                   "Commit nothing: seal the result for `escrow approve` (a rule of the branch can ask for it too)");
  command
      .add_option("--approval-expires", arguments.approval_expires,
                  "Roll a result back that nobody approved in this time: 12h, 7d (default: never)")
      ->type_name("TIME");
}

void add_view_options(CLI::App& command, SessionArguments& arguments) {
  command.add_option("--uid", arguments.uid, "Owner of what the repository holds (default: this user)");
  command.add_option("--gid", arguments.gid, "Group of what the repository holds (default: this group)");
  command.add_option("--umask", arguments.umask, "Applied to the modes of what the repository holds")
      ->type_name("OCTAL")
      ->capture_default_str();
  command.add_flag("--read-only", arguments.read_only, "Every change fails with EROFS");
  command
      .add_option("--symlinks", arguments.symlinks,
                  "contained: a link that leads out of the mount cannot be read (EACCES); any (default, not with "
                  "--confine, nor in a container)")
      ->check(CLI::IsMember({"any", "contained"}));
  command.add_option("--xattr", arguments.xattr, "off, or user: extended attributes user.*, at a message per write(2)")
      ->check(CLI::IsMember({"off", "user"}))
      ->capture_default_str();
  command
      .add_option("--io-uring", arguments.io_uring,
                  "auto: FUSE over io_uring where `escrow doctor` says it can be had; off: never")
      ->check(CLI::IsMember({"auto", "off"}))
      ->envname("ESCROW_IO_URING")
      ->capture_default_str();
  command
      .add_option("--io", arguments.io, "How bytes travel: by the page cache, or past it to the staging files (root)")
      ->check(CLI::IsMember({"auto", "cached", "passthrough"}))
      ->capture_default_str();
  command.add_option("--opens", arguments.opens, "Whether each open(2) sends a message: none is faster")
      ->check(CLI::IsMember({"auto", "none", "daemon"}))
      ->capture_default_str();
  command
      .add_option("--exclude", arguments.excludes,
                  "Leave what matches out of the commit (as a line of .gitignore; may be repeated)")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  command
      .add_option("--policy", arguments.policies,
                  "Refuse what the policy in FILE does not allow (may be repeated: each can only narrow)")
      ->type_name("FILE")
      ->allow_extra_args(false);
  command.add_option("--trace", arguments.trace, "Append each denial to FILE as a line of JSON; - is standard error")
      ->type_name("FILE");
}

std::uint32_t parse_umask(const std::string& text, const std::string& what) {
  std::uint32_t value = 0;
  for (const char digit : text) {
    if (digit < '0' || digit > '7' || text.size() > 4) {
      throw Error(Errc::bad_request, what + " '" + text + "' is not an octal number between 0 and 0777");
    }
    value = value * 8 + static_cast<std::uint32_t>(digit - '0');
  }
  if (text.empty() || value > 0777) {
    throw Error(Errc::bad_request, what + " '" + text + "' is not an octal number between 0 and 0777");
  }
  return value;
}

session::SessionOptions session_options(const SessionArguments& arguments, const session::ReferenceStore& references,
                                        const std::string& source) {
  session::SessionOptions options;
  options.branch = arguments.branch.empty() ? references.default_branch() : arguments.branch;
  references.check_target(options.branch);
  options.prefix = session::RepoPath::parse(arguments.path_prefix, "--path-prefix");
  options.audit.committer = arguments.committer.empty() ? current_principal() : arguments.committer;
  options.audit.issuer = arguments.issuer.empty() ? current_principal() : arguments.issuer;
  options.audit.source = source;
  options.audit.image = arguments.image;
  options.audit.trigger = arguments.trigger;
  options.audit.trigger_id = arguments.trigger_id;
  session::check_principal(options.audit.committer, "--committer");
  session::check_principal(options.audit.issuer, "--issuer");
  session::check_audit_value(options.audit.image, "--image");
  session::check_audit_value(options.audit.trigger, "--trigger");
  session::check_audit_value(options.audit.trigger_id, "--trigger-id");
  options.uid = arguments.uid.value_or(getuid());
  options.gid = arguments.gid.value_or(getgid());
  options.umask = parse_umask(arguments.umask, "--umask");
  options.read_only = arguments.read_only;
  options.contained_symlinks = arguments.symlinks == "contained";
  options.require_approval = arguments.require_approval;
  if (!arguments.approval_expires.empty()) {
    const auto expires = session::parse_duration(arguments.approval_expires, "--approval-expires");
    options.approval_expires_s = std::chrono::ceil<std::chrono::seconds>(expires).count();
  }
  options.excludes = arguments.excludes;
  options.policies = read_policies(arguments.policies);
  return options;
}

}  // namespace escrow::daemon
