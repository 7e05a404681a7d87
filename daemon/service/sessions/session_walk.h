// The sessions of several repositories in one order, read in batches: what has been read so far is all that it costs.
//
// Used by one thread. Throws what reading a catalog throws.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "daemon/service/service_repositories.h"
#include "storage/database/session_query.h"

namespace escrow::daemon {

class SessionWalk {
 public:
  // `query.limit` is the size of a batch. A repository that cannot be used has no sessions.
  SessionWalk(const std::vector<ServiceRepositories::Entry>& repositories, const storage::SessionQuery& query);

  // nullopt: that was all.
  std::optional<ServiceRepositories::Session> next();

 private:
  struct Stream {
    ServiceRepositories::Entry repository;
    storage::SessionQuery query;
    std::deque<session::SessionRecord> batch;
    bool is_over = false;
  };
  static void fill(Stream& stream);
  bool comes_before(const session::SessionRecord& one, const session::SessionRecord& other) const;

  const storage::SessionOrder order_;
  std::vector<Stream> streams_;
};

// A position in a list, for a cursor: fixed-width, so that it sorts as text. `by_id` it is the id alone.
std::string list_position(const session::Timestamp& created, const session::SessionId& id);
// Of what list_position() made. Throws Problem{invalid_value}: the client made the cursor up.
storage::SessionPosition list_position_from(const std::string& text, bool is_by_id = false);

}  // namespace escrow::daemon
