// The documents that escrowd answers with: sessions, changes, repositories, branches, commits. api/openapi.yaml
// describes them. Pure functions; each returns one JSON document and a newline.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/protocol.h"
#include "session/interfaces/object_store.h"

namespace escrow::api {

// A session as the API shows it.
struct SessionResource {
  SessionView view;
  std::string repository;
  std::string external_id;  // empty: none
  std::map<std::string, std::string> labels;
  std::string warning;  // of the verb that was asked for; empty: none
  std::uint64_t lease_ms = 0;  // 0: it has no lease
  std::optional<session::Timestamp> lease_expires, deadline;  // of an open session
};
std::string to_json(const SessionResource& resource);
// `next` is the cursor of the page that follows; empty: this is the last.
std::string to_json(const std::vector<SessionResource>& page, const std::string& next);

// A run as the API shows it.
struct RunResource {
  struct Stream {
    std::uint64_t bytes = 0;  // kept
    bool is_truncated = false;
  };
  std::string id;
  bool has_ended = false;
  bool is_cancelled = false;  // somebody asked for it
  std::vector<std::string> command;
  std::string user;
  std::uint32_t uid = 0, gid = 0;
  std::string mountpoint;  // as the command sees it
  std::optional<std::uint64_t> timeout_ms, memory_bytes, millicpus, max_processes;
  bool confined = true;
  bool network = false;
  session::Timestamp created;
  std::array<Stream, 2> streams;                     // stdout, stderr
  std::array<std::optional<std::string>, 2> output;  // their last bytes, where they were asked for
  // nullopt: its record is forgotten, or cannot be read at the moment.
  std::optional<SessionResource> session;
};
std::string to_json(const RunResource& run);
std::string to_json(const std::vector<RunResource>& page, const std::string& next);
// Of runs that were awaited.
std::string to_json(const std::vector<RunResource>& runs, bool is_done);

std::string changes_json(const std::vector<ChangeResource>& changes, const std::vector<session::Omission>& omitted);

struct FileResource {
  std::string path;
  std::uint32_t mode = 0;  // as git has it
  std::uint64_t size_bytes = 0;
};
std::string to_json(const FileResource& file);
// `next` is the cursor of the page that follows; empty: this is the last.
std::string to_json(const ListingAnswer& listing, const std::string& next);

struct RepositoryResource {
  std::string name, path, default_branch;
  std::string error;  // why it cannot be used; empty: it can
  std::optional<bool> is_made{};  // by this very request; nullopt: it asked for no such thing
};
std::string to_json(const RepositoryResource& repository);
std::string to_json(const std::vector<RepositoryResource>& repositories);

std::string branches_json(const std::vector<std::pair<std::string, session::ObjectId>>& branches);

struct CommitResource {
  session::ObjectId id;
  session::Commit commit;
  std::vector<std::pair<std::string, std::string>> trailers;
  bool is_claimed = false;  // no record of the service confirms them
};
std::string commits_json(const std::vector<CommitResource>& commits, const std::string& next);

// What became of a session, and how.
struct AuditResource {
  struct Step {
    session::Timestamp time;
    std::optional<session::State> from;  // nullopt: the session was created
    session::State to = session::State::open;
    std::string who, why;
  };
  SessionView view;
  std::vector<Step> history;  // oldest first
  std::uint64_t denied_calls = 0;
};
std::string to_json(const AuditResource& entry);
std::string to_json(const std::vector<AuditResource>& page, const std::string& next);

// What gc found and left.
struct GcResource {
  struct Holder {
    session::SessionId session;
    session::Timestamp since;  // when it was opened
    bool is_aside = false;  // it was set aside: the catalog does not know it
  };
  std::uint64_t objects_before = 0, objects_after = 0, packs_before = 0, packs_after = 0;
  std::uint64_t bytes_before = 0, bytes_after = 0;
  std::uint64_t sessions_forgotten = 0;
  std::optional<Holder> held_back;  // by the oldest session: nothing younger was dropped, whatever gc.pruneExpire says
};
std::string to_json(const GcResource& report);

// What verify found to be wrong.
struct Finding {
  std::string where, what;
};
std::string to_json(const std::vector<Finding>& findings);

// For cursors: opaque to clients.
std::string encode_cursor(const std::string& position);
std::optional<std::string> decode_cursor(const std::string& cursor);

}  // namespace escrow::api
