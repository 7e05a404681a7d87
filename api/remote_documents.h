// What escrowd answers, read by a client of the command line: the reverse of resources.h.
//
// Pure functions. Throw Error{bad_request} for what is not such a document; members that are not known are ignored.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/protocol.h"
#include "api/resources.h"

namespace escrow::api {

// A session as a verb answered it: the warning is the verb's.
struct RemoteSession {
  SessionView view;
  std::string repository, warning;
  std::map<std::string, std::string> labels{};
};
RemoteSession session_from_json(std::string_view text);
// How its commit ended, when a verb that commits has answered.
CommitAnswer commit_answer(RemoteSession session);

struct RemoteSessions {
  std::vector<RemoteSession> sessions;
  std::string next;  // empty: this is the last page
};
RemoteSessions sessions_from_json(std::string_view text);

struct RemoteRun {
  std::string id;
  bool has_ended = false;
  std::array<bool, 2> is_truncated{};  // stdout, stderr: more was written than is kept
  std::optional<RemoteSession> session;  // nullopt: there is no record of it any more, or none that can be read
};
RemoteRun run_from_json(std::string_view text);

struct RemoteCommits {
  std::vector<CommitResource> commits;  // of the trailers those of the audit record
  std::string next;
};
RemoteCommits commits_from_json(std::string_view text);

struct RemoteAudit {
  std::vector<AuditResource> entries;
  std::string next;
};
RemoteAudit audit_from_json(std::string_view text);
GcResource gc_from_json(std::string_view text);
std::vector<Finding> findings_from_json(std::string_view text);

TrafficAnswer traffic_from_json(std::string_view text);

struct RemoteOmissions {
  std::vector<session::Omission> omitted;
  std::uint64_t more = 0;  // that were not kept
};
// Of a run, a line of JSON for each.
RemoteOmissions omissions_from_lines(std::string_view lines);
// As its registration was answered.
struct RemoteRepository {
  std::string path;
  bool is_made = false;  // by this very request
};
RemoteRepository repository_from_json(std::string_view text);
// The names of the registered repositories.
std::vector<std::string> repositories_from_json(std::string_view text);
// Of a reload: the members of the configuration that count from the next start on.
std::vector<std::string> at_next_start_from_json(std::string_view text);

}  // namespace escrow::api
