// A thread's rights on files as a user's, for as long as the object lives: user, group and further groups, without the
// capabilities of this process. The other threads keep theirs; the C library would change those of all of them.
//
// One thread makes and destroys it. Within another one it changes nothing, so a call may lead to itself again. What
// cannot be restored ends the process: nothing may go on with rights that are not its own.
// Sources: setfsuid(2), setfsgid(2), setgroups(2), capset(2), credentials(7).
#pragma once

#include <array>
#include <vector>

#include <linux/capability.h>

#include "daemon/process/command_spec.h"

namespace escrow::daemon {

class UserRights {
 public:
  // Throws Error{access_denied} where this process may not act as others.
  explicit UserRights(const CommandSpec::Identity& user);
  ~UserRights();
  UserRights(const UserRights&) = delete;
  UserRights& operator=(const UserRights&) = delete;

 private:
  using Capabilities = std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3>;
  static Capabilities capabilities();
  static bool set_capabilities(const Capabilities& wanted);
  void restore() const;

  const bool is_within_;              // another one: nothing to do
  const std::vector<gid_t> groups_;   // the process's own, as the next
  const Capabilities capabilities_;
  const bool has_groups_;             // of the user
};

}  // namespace escrow::daemon
