#include "daemon/volume_options.h"

#include <charconv>
#include <utility>

#include "api/json_document.h"
#include "api/problem.h"
#include "daemon/policy_files.h"
#include "daemon/service_requests.h"
#include "session/duration.h"

namespace escrow::daemon {

using api::Problem;
using api::ProblemCode;

namespace {

using Options = std::map<std::string, std::string>;

constexpr const char* kKnown =
    "repository, branch, path_prefix, committer, issuer, message, read_only, require_approval, uid, gid, umask, "
    "policy, symlinks and timeout";

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  throw Problem(ProblemCode::invalid_value, "the volume's option " + name + " " + why, {{"field", name}});
}

std::string take(Options& options, const std::string& name) {
  const auto node = options.extract(name);
  return node.empty() ? std::string() : std::move(node.mapped());
}

bool take_flag(Options& options, const std::string& name) {
  if (!options.contains(name)) return false;
  const std::string value = take(options, name);
  if (value == "true") return true;
  if (value == "false") return false;
  refuse(name, "is '" + value + "'; it is true or false");
}

void take_number(Options& options, const std::string& name, api::JsonObject& to) {
  if (!options.contains(name)) return;
  const std::string text = take(options, name);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) refuse(name, "is '" + text + "'; it is a whole number");
  to.number(name, value);
}

template <typename Check>
auto checked(const std::string& name, Check check) {
  try {
    return check();
  } catch (const session::Error& error) {
    refuse(name, std::string("is refused: ") + error.what());
  }
}

}  // namespace

VolumeOptions read_volume_options(const Options& given) {
  Options options = given;
  VolumeOptions read;
  api::JsonObject request;
  if (!options.contains("repository")) refuse("repository", "is missing; give -o repository=NAME, as it is registered");
  for (const char* name : {"repository", "branch", "path_prefix", "message", "umask"}) {
    if (options.contains(name)) request.text(name, take(options, name));
  }
  // Whoever is in the container sees it, and nobody else on the machine.
  if (!given.contains("umask")) request.text("umask", "022");
  if (options.contains("committer")) {
    const std::string committer = take(options, "committer");
    checked("committer", [&] { session::check_principal(committer, "it"); });
    request.text("run_as", committer);
  }
  if (options.contains("issuer")) {
    read.issuer = take(options, "issuer");
    checked("issuer", [&] { session::check_principal(read.issuer, "it"); });
  }
  for (const char* name : {"read_only", "require_approval"}) request.flag(name, take_flag(options, name));
  for (const char* name : {"uid", "gid"}) take_number(options, name, request);
  if (options.contains("timeout")) {
    const std::string text = take(options, "timeout");
    const auto timeout = checked("timeout", [&] { return session::parse_duration(text, "it"); });
    request.number("timeout_ms", static_cast<std::uint64_t>(timeout.count()));
  }
  const std::string policy = take(options, "policy"), symlinks = take(options, "symlinks");
  if (!symlinks.empty() && symlinks != "any" && symlinks != "contained") {
    refuse("symlinks", "is '" + symlinks + "'; it is contained or any");
  }
  read.contained_symlinks = symlinks != "any";
  if (!options.empty()) {
    throw Problem(ProblemCode::unknown_field,
                  "a volume has no option " + options.begin()->first + "; it has " + kKnown,
                  {{"field", options.begin()->first}});
  }
  api::HttpRequest document;
  document.content_type = "application/json";
  document.body = request.text();
  read.opening = read_opening(document);
  if (!policy.empty()) {
    read.opening.options.policies = checked("policy", [&] { return read_policies({policy}); });
  }
  return read;
}

}  // namespace escrow::daemon
