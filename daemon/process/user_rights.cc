#include "daemon/process/user_rights.h"

#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>

#include "session/base/error.h"

namespace escrow::daemon {

namespace {

thread_local unsigned depth = 0;

std::vector<gid_t> groups_of_process() {
  std::vector<gid_t> groups(static_cast<std::size_t>(::getgroups(0, nullptr)));
  groups.resize(static_cast<std::size_t>(::getgroups(static_cast<int>(groups.size()), groups.data())));
  return groups;
}

bool set_groups(const std::vector<gid_t>& groups) {
  return ::syscall(SYS_setgroups, groups.size(), groups.data()) == 0;
}

// They say what was before, and not whether they could: asked once more, with what nobody can be, they say it.
bool set_ids(uid_t uid, gid_t gid) {
  ::setfsgid(gid);
  ::setfsuid(uid);
  return static_cast<gid_t>(::setfsgid(static_cast<gid_t>(-1))) == gid &&
         static_cast<uid_t>(::setfsuid(static_cast<uid_t>(-1))) == uid;
}

}  // namespace

// Those of files setfsuid(2) takes from everybody but root.
UserRights::Capabilities UserRights::capabilities() {
  Capabilities found{};
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  ::syscall(SYS_capget, &header, found.data());
  return found;
}

bool UserRights::set_capabilities(const Capabilities& wanted) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  return ::syscall(SYS_capset, &header, wanted.data()) == 0;
}

UserRights::UserRights(const CommandSpec::Identity& user)
    : is_within_(depth != 0),
      groups_(is_within_ ? std::vector<gid_t>() : groups_of_process()),
      capabilities_(is_within_ ? Capabilities() : capabilities()),
      has_groups_(!is_within_ && set_groups(user.groups)) {
  if (is_within_) return;
  Capabilities none = capabilities_;
  for (__user_cap_data_struct& word : none) word.effective = 0;
  if (!has_groups_ || !set_ids(user.uid, user.gid) || !set_capabilities(none)) {
    restore();
    throw session::Error(session::Errc::access_denied,
                         "this process lacks the capabilities to read directories as another user");
  }
  depth = 1;
}

UserRights::~UserRights() {
  if (is_within_) return;
  restore();
  depth = 0;
}

void UserRights::restore() const {
  const bool is_restored = set_capabilities(capabilities_) && set_ids(::geteuid(), ::getegid()) &&
                           (!has_groups_ || set_groups(groups_));
  if (!is_restored) std::abort();
}

}  // namespace escrow::daemon
