#include "daemon/mount_options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>

#include "session/error.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;

namespace {

constexpr std::array<std::string_view, 10> kForKernel = {"suid",   "nosuid",  "dev",  "nodev",   "exec",
                                                         "noexec", "noatime", "sync", "dirsync", "nodiratime"};
// mount(8), "filesystem-independent mount options", and systemd.mount(5); atime is what there is without a word.
constexpr std::array<std::string_view, 21> kForOthers = {
    "rw",         "defaults", "auto",     "noauto",   "nofail",     "user",        "nouser",        "users",
    "owner",      "group",    "async",    "relatime", "norelatime", "strictatime", "nostrictatime", "lazytime",
    "nolazytime", "_netdev",  "diratime", "silent", "atime"};

template <std::size_t Count>
bool is_one_of(const std::array<std::string_view, Count>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::uint32_t parse_id(std::string_view key, std::string_view value) {
  std::uint32_t id = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), id);
  if (error != std::errc() || end != value.data() + value.size() || value.empty()) {
    throw Error(Errc::bad_request,
                "the mount option " + std::string(key) + " needs a number, not '" + std::string(value) + "'");
  }
  return id;
}

// One of Escrow's own; false: it is not.
bool apply_own(std::string_view key, std::string_view value, MountArguments& arguments) {
  if (key == "branch")
    arguments.opened.branch = value;
  else if (key == "path_prefix")
    arguments.opened.path_prefix = value;
  else if (key == "session")
    arguments.session = value;
  else if (key == "committer")
    arguments.opened.committer = value;
  else if (key == "issuer")
    arguments.opened.issuer = value;
  else if (key == "uid")
    arguments.opened.uid = parse_id(key, value);
  else if (key == "gid")
    arguments.opened.gid = parse_id(key, value);
  else if (key == "approval_expires")
    arguments.opened.approval_expires = value;
  else if (key == "umask")
    arguments.opened.umask = value;
  else if (key == "policy")
    arguments.opened.policies.emplace_back(value);
  else if (key == "trace")
    arguments.opened.trace = value;
  else
    return false;
  if (value.empty()) throw Error(Errc::bad_request, "the mount option " + std::string(key) + " needs a value");
  return true;
}

void apply_one(std::string_view option, MountArguments& arguments) {
  const std::size_t equals = option.find('=');
  const std::string_view key = option.substr(0, equals);
  const std::string_view value = equals == std::string_view::npos ? std::string_view() : option.substr(equals + 1);
  if (option.empty() || is_one_of(kForOthers, option) || key.starts_with("x-") || key == "comment") return;
  if (option == "ro") {
    arguments.opened.read_only = true;
  } else if (option == "xattr=off" || option == "xattr=user") {
    arguments.opened.xattr = value;
  } else if (option == "symlinks=any" || option == "symlinks=contained") {
    arguments.opened.symlinks = value;
  } else if (option == "io_uring=auto" || option == "io_uring=off") {
    arguments.opened.io_uring = value;
  } else if (option == "io=auto" || option == "io=cached" || option == "io=passthrough") {
    arguments.opened.io = value;
  } else if (option == "opens=auto" || option == "opens=none" || option == "opens=daemon") {
    arguments.opened.opens = value;
  } else if (option == "require_approval") {
    arguments.opened.require_approval = true;
  } else if (option == "allow_other") {
    arguments.allow_other = true;
  } else if (is_one_of(kForKernel, option)) {
    arguments.kernel_options.emplace_back(option);
  } else if (!apply_own(key, value, arguments)) {
    throw Error(Errc::bad_request,
                "unknown mount option '" + std::string(option) + "'; `escrow mount --help` lists those that exist");
  }
}

}  // namespace

void apply_mount_options(const std::string& text, MountArguments& arguments) {
  std::string_view left = text;
  while (!left.empty()) {
    const std::size_t comma = left.find(',');
    apply_one(left.substr(0, comma), arguments);
    left = comma == std::string_view::npos ? std::string_view() : left.substr(comma + 1);
  }
}

}  // namespace escrow::daemon
