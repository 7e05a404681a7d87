#include "daemon/host/mount_options.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "session/base/error.h"

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

std::string value_of(std::string_view key, std::string_view value) {
  if (value.empty()) throw Error(Errc::bad_request, "the mount option " + std::string(key) + " needs a value");
  return std::string(value);
}

void apply_one(std::string_view option, MountArguments& arguments) {
  const std::size_t equals = option.find('=');
  const std::string_view key = option.substr(0, equals);
  const std::string_view value = equals == std::string_view::npos ? std::string_view() : option.substr(equals + 1);
  if (option.empty() || is_one_of(kForOthers, option) || key.starts_with("x-") || key == "comment") return;
  if (option == "ro") {
    arguments.opened.read_only = true;
  } else if (option == "allow_other") {
    arguments.allow_other = true;
  } else if (option == "in_container") {
    arguments.in_container = true;
  } else if (key == "session") {
    arguments.session = value_of(key, value);
  } else if (key == "trace") {
    arguments.trace = value_of(key, value);
  } else if (is_one_of(kForKernel, option)) {
    arguments.kernel_options.emplace_back(option);
  } else if (!set_request_field(arguments.opened, key, value, "the mount option")) {
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
