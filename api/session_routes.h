// A session's verbs in HTTP, on the server's side: one table of routes, read into the requests of protocol.h, and their
// answers as the documents that api/openapi.yaml describes. escrowd and the hosts of sessions both answer by it; a
// client of either is session_calls.h.
//
// A new verb: a request and an answer in protocol.h, a row of the table and a case of response_of() here, a case of
// call_of() and answer_of() there. Pure functions; what is wrong with a request is thrown as Problem.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "api/http_message.h"
#include "api/problem.h"
#include "api/protocol.h"
#include "api/request_fields.h"
#include "api/resources.h"
#include "api/router.h"

namespace escrow::api {

// What a diff's answer says of the files that a commit would leave out: how many they are.
inline constexpr const char* kOmittedHeader = "Escrow-Omitted";
// Of a file: its mode as git has it, its size, and what changes with its content.
inline constexpr const char* kModeHeader = "Escrow-Mode";
inline constexpr const char* kSizeHeader = "Escrow-Size";
inline constexpr const char* kVersionHeader = "ETag";

struct SessionCall {
  std::string session;  // its id, as the request has it
  Request request;
};
// Of a host's socket: every verb there is. Throws Problem{not_found}, {method_not_allowed}.
SessionCall read_session_call(const HttpRequest& request);

// ---- The same for a server that has further routes, and asks further things of its callers.
CommitRequest read_commit(const HttpRequest& request);
RollbackRequest read_rollback(const HttpRequest& request);
DiscardRequest read_discard(const HttpRequest& request);
DiffRequest read_diff(Query& query);
StatusRequest read_status(Query& query);
ListFilesRequest read_listing(Query& query);
// Whether the file is to be executable.
std::optional<bool> read_file_mode(Query& query);
void read_nothing(const HttpRequest& request);

// The body of a request as an object. Throws Problem{unsupported_media_type}, {malformed_json}.
RequestFields fields_of(const HttpRequest& request);

// ---- Answers. `session` is the session as it is now, for those that are its document.
HttpResponse response_of(const SessionCall& call, const Answer& answer, const std::function<SessionView()>& session);
// The head of a diff, which comes in parts.
HttpResponse diff_head(std::uint64_t omitted);
HttpResponse file_head(const FileAnswer& file);
// What a commit that met conflicts is refused with; the session stays open.
Problem conflict_problem(const std::string& session, std::vector<session::Conflict> conflicts);

}  // namespace escrow::api
