#include "daemon/host/local_author.h"

#include <optional>
#include <utility>

#include "storage/git/git_identity.h"

namespace escrow::daemon {

void set_local_author(session::SessionOptions& options, const SessionRequest& request, const std::string& repository) {
  if (!request.committer.empty()) return;
  std::optional<storage::GitIdentity> identity = storage::author_identity(repository);
  if (!identity) return;
  options.audit.author_name = std::move(identity->name);
  options.audit.author_email = std::move(identity->email);
}

}  // namespace escrow::daemon
