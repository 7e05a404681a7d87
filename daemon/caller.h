// Who asks escrowd for something, and what the configuration lets them: proved by the kernel, never claimed.
// Plain values; constant.
#pragma once

#include <string>

#include "daemon/escrowd_config.h"
#include "session/session_record.h"

namespace escrow::daemon {

struct Caller {
  std::string principal;  // "user:NAME"
  unsigned uid = 0, gid = 0;
  bool is_operator = false;
  bool is_reviewer = false;

  // A session is its issuer's; reviewers and operators see all, operators may do all.
  bool may_see(const session::SessionRecord& record) const { return is_reviewer || may_end(record); }
  // Reviewers and operators decide about sealed results.
  bool may_review() const { return is_reviewer || is_operator; }
  bool may_end(const session::SessionRecord& record) const {
    return is_operator || record.options.audit.issuer == principal;
  }
};

Caller caller_of(const EscrowdConfig& config, unsigned uid, unsigned gid);
// Whether the caller may open a session that commits as `committer`.
bool may_run_as(const EscrowdConfig& config, const Caller& caller, const std::string& committer);

}  // namespace escrow::daemon
