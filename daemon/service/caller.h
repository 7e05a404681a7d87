// Who asks escrowd for something, and what the configuration lets them: proved by the kernel or
// by a token, never claimed.
// Plain values; constant.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/http_message.h"
#include "daemon/service/escrowd_config.h"
#include "session/interfaces/session_record.h"

namespace escrow::daemon {

inline constexpr unsigned kOverflowId = 65534;  // "nobody" wherever nobody has changed it (user_namespaces(7))

struct Caller {
  std::string principal;  // "user:NAME"
  unsigned uid = api::kNobodysId, gid = api::kNobodysId;
  std::optional<std::vector<unsigned>> groups;  // of the process that asks; nullopt: it came over TCP with a token
  // Whatever this service can it could do itself (local_peer.h), or its token is an operator's.
  bool has_our_rights = false;
  bool is_operator = false;
  bool is_reviewer = false;

  bool is_remote() const { return !groups; }
  // A session is its issuer's; reviewers and operators see all, operators may do all.
  bool may_see_of(const std::string& issuer) const { return is_reviewer || may_end_of(issuer); }
  bool may_end_of(const std::string& issuer) const { return is_operator || issuer == principal; }
  bool may_see(const session::SessionRecord& record) const { return may_see_of(record.options.audit.issuer); }
  bool may_end(const session::SessionRecord& record) const { return may_end_of(record.options.audit.issuer); }
  // Reviewers and operators decide about sealed results.
  bool may_review() const { return is_reviewer || is_operator; }
  // Only one who can do so without us.
  bool may_become_anybody() const { return uid == 0 && has_our_rights; }
};

// The user and group of this machine that files of a principal belong to: those of its name ("user:NAME"), or those
// that the configuration's `accounts` give it; else nobody (kOverflowId).
struct Account {
  unsigned uid = kOverflowId, gid = kOverflowId;
};
Account account_of(const EscrowdConfig& config, const std::string& principal);

// Of a request over TCP the principal is the token's, and the user that of its account.
// Operators are those whom the configuration names. Root is one only with the rights of this service: in a container it
// may have none. So is the service's own user, who need not be named unless it is root.
Caller caller_of(const LiveConfig& config, const api::HttpRequest& request);
// Throws api::Problem{forbidden}: only operators `verb` repositories.
void check_operator(const LiveConfig& config, const Caller& caller, const std::string& verb);
// Whose token it is, by the configuration's hashes alone (service_tokens.h knows the others); empty: nobody's. Takes
// the same time whatever it has in common with a valid one.
std::string principal_of_token(const LiveConfig& config, std::string_view token);
// Whether a list of the configuration names the principal.
bool has_principal(const std::vector<std::string>& principals, const std::string& principal);
// Whether the configuration's `run_as` lets the principal be `committer`.
bool is_granted(const EscrowdConfig& config, const std::string& principal, const std::string& committer);
// Whether the caller may open a session that commits as `committer`.
bool may_run_as(const LiveConfig& config, const Caller& caller, const std::string& committer);

}  // namespace escrow::daemon
