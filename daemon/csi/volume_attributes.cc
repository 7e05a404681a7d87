#include "daemon/csi/volume_attributes.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "session/base/duration.h"
#include "session/base/error.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;

namespace {

constexpr std::string_view kOfKubelets = "csi.storage.k8s.io/";
constexpr std::size_t kLongest_bytes = 1024;  // of a label, which keeps it

constexpr std::array<std::string_view, 17> kNames{
    "branch",     "path_prefix", "committer", "message",  "require_approval", "approval_expires", "exclude",
    "include_ignored", "uid",    "gid",       "umask",    "read_only",        "git",              "keep_on_failure",
    "limit_staged_bytes", "limit_files", "symlinks"};

std::string known_names() {
  std::string known = "repository and timeout";
  for (const std::string_view name : kNames) known = std::string(name) + ", " + known;
  return known;
}

}  // namespace

std::map<std::string, std::string> own_attributes(const std::map<std::string, std::string>& attributes) {
  std::map<std::string, std::string> own;
  for (const auto& [name, value] : attributes) {
    if (!name.starts_with(kOfKubelets)) own[name] = value;
  }
  return own;
}

VolumeAttributes read_volume_attributes(const std::map<std::string, std::string>& attributes) {
  VolumeAttributes read;
  read.session.symlinks = "contained";
  for (const auto& [name, text] : own_attributes(attributes)) {
    const std::string what = "the volume's attribute " + name;
    if (text.size() > kLongest_bytes)
      throw Error(Errc::bad_request, what + " is longer than " + std::to_string(kLongest_bytes) + " bytes");
    if (name == "repository") {
      read.repository = text;
    } else if (name == "timeout") {
      read.timeout_ms = static_cast<std::uint64_t>(session::parse_duration(text, what).count());
    } else if (std::find(kNames.begin(), kNames.end(), name) == kNames.end()) {
      throw Error(Errc::bad_request, "a volume has no attribute " + name + "; it has " + known_names());
    } else {
      set_request_field(read.session, name, text, "the volume's attribute");
    }
  }
  if (read.repository.empty())
    throw Error(Errc::bad_request, "the volume's attribute repository is missing: the name of a registered one");
  return read;
}

}  // namespace escrow::daemon
