#include "daemon/session_terms.h"

#include <algorithm>
#include <array>
#include <set>

#include "api/problem.h"
#include "daemon/io_choice.h"
#include "daemon/policy_files.h"
#include "session/error.h"
#include "session/path_pattern.h"

namespace escrow::daemon {

using api::Problem;
using api::ProblemCode;
using api::RequestFields;
using session::Error;

namespace {

constexpr std::size_t kMaxExcludes = 256, kMaxExclude_bytes = 4096;

// Never suid and dev: whatever a session holds, it gives nobody rights.
constexpr std::array<std::string_view, 9> kOfMounts = {"allow_other", "nosuid",  "nodev",      "exec",   "noexec",
                                                       "sync",        "noatime", "nodiratime", "dirsync"};

void add(std::string& options, const std::string& option) { options += (options.empty() ? "" : ",") + option; }

// Adds "NAME=VALUE" of the field, when it is there.
void add_one_of(RequestFields& fields, const std::string& field, const std::set<std::string>& values,
                const std::string& name, std::string& options) {
  const std::optional<std::string> value = fields.text(field);
  if (!value) return;
  if (!values.contains(*value)) fields.refuse(field, "is none of what it can be");
  add(options, name + "=" + *value);
}

// Runs a check of the core, and says which field failed it.
template <typename Check>
void check(const std::string& field, Check check) {
  try {
    check();
  } catch (const Error& error) {
    throw Problem(ProblemCode::invalid_value, "\"" + field + "\" is refused: " + error.what(), {{"field", field}});
  }
}

[[noreturn]] void refuse(ProblemCode code, const std::string& field, const std::string& why) {
  throw Problem(code, why, {{"field", field}});
}

}  // namespace

void read_terms(RequestFields& fields, session::SessionOptions& options) {
  options.excludes = fields.texts("exclude").value_or(std::vector<std::string>());
  if (options.excludes.size() > kMaxExcludes) fields.refuse("exclude", "has more than 256 patterns");
  for (const std::string& pattern : options.excludes) {
    if (pattern.size() > kMaxExclude_bytes || pattern.find('\0') != std::string::npos) {
      fields.refuse("exclude", "has a pattern that is longer than 4096 bytes or has a NUL byte");
    }
  }
  check("exclude", [&] { session::PathPatterns checked(options.excludes); });
  const std::string symlinks = fields.text("symlinks").value_or("contained");
  if (symlinks != "contained" && symlinks != "any") fields.refuse("symlinks", "is neither contained nor any");
  options.contained_symlinks = symlinks == "contained";
  options.keep_on_failure = fields.flag("keep_on_failure").value_or(false);
  options.policies = fields.documents("policy");
  check("policy", [&] { compile_policies(options.policies, {options.policies.size() == 1 ? "policy" : "policy 1"}); });
}

std::string read_io(RequestFields& fields) {
  std::string options;
  if (std::optional<RequestFields> io = fields.object("io")) {
    add_one_of(*io, "opens", {"auto", "none", "daemon"}, "opens", options);
    add_one_of(*io, "data", {"auto", "cached", "passthrough"}, "io", options);
    add_one_of(*io, "io_uring", {"auto", "off"}, "io_uring", options);
    io->refuse_others();
  }
  add_one_of(fields, "xattr", {"off", "user"}, "xattr", options);
  return options;
}

std::string read_mount_options(RequestFields& fields) {
  std::string options = read_io(fields);
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

void check_terms(const Caller& caller, const session::SessionOptions& options, const std::string& mount_options) {
  const SessionArguments wanted = mounting_of(mount_options).opened;
  // Whoever walks through the mount, root as well, would be led elsewhere by whoever writes in it.
  if (!options.contained_symlinks && !caller.is_operator) {
    refuse(ProblemCode::forbidden, "symlinks",
           "only operators may have sessions whose links may lead out of their mount");
  }
  // They are held in memory, and no limit counts them.
  if (wanted.xattr == "user" && !caller.is_operator) {
    refuse(ProblemCode::forbidden, "xattr", "only operators may have mounts with extended attributes");
  }
  check("io", [&] { choose_io(wanted, !options.policies.empty()); });
  if (options.limits.staged_bytes == 0) return;
  if (wanted.io == "passthrough") {
    refuse(ProblemCode::invalid_value, "io",
           "\"io\" cannot be passthrough with a limit of staged bytes, because what the kernel writes past Escrow is "
           "not counted");
  }
  if (wanted.xattr == "user") {
    refuse(ProblemCode::invalid_value, "xattr",
           "\"xattr\" cannot be user with a limit of staged bytes, because extended attributes are not counted");
  }
}

}  // namespace escrow::daemon
