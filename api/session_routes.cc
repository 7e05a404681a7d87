#include "api/session_routes.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>
#include <string_view>
#include <utility>

#include "api/problem.h"
#include "api/request_fields.h"
#include "session/base/overloaded.h"

namespace escrow::api {

using session::Reason;

namespace {

constexpr std::uint64_t kMostNames = 1000;
constexpr std::uint64_t kMostBytes = 16u << 20;  // of a file, in one answer of a host
constexpr std::uint64_t kMaxOffset = std::uint64_t{1} << 62;

[[noreturn]] void refuse_value(const std::string& field, const std::string& why) {
  throw Problem(ProblemCode::invalid_value, why, {{"field", field}});
}

// Text without a NUL.
std::string plain_text(RequestFields& fields, const std::string& name) {
  std::string text = fields.text(name).value_or("");
  if (text.find('\0') != std::string::npos) fields.refuse(name, "has a NUL byte");
  return text;
}

std::vector<std::string> required_paths(RequestFields& fields) {
  std::vector<std::string> paths = fields.texts("paths").value_or(std::vector<std::string>());
  if (paths.empty()) fields.refuse("paths", "is missing");
  return paths;
}

// How the work has ended, as a host is told by whoever watched it; escrowd's clients say it in other words.
FinishRequest read_finish(const HttpRequest& request) {
  RequestFields fields = fields_of(request);
  const std::optional<Reason> reason = session::reason_from_name(fields.required_text("reason"));
  if (!reason) fields.refuse("reason", "is none");
  FinishRequest finish{.reason = *reason,
                       .exit_code = {},
                       .message = plain_text(fields, "message"),
                       .keep_result = fields.flag("keep_result").value_or(false),
                       .image = plain_text(fields, "image"),
                       .trigger_id = plain_text(fields, "trigger_id"),
                       .only_if_seen = fields.flag("only_if_seen").value_or(false)};
  if (const auto code = fields.number("exit_code", 0, 255)) finish.exit_code = static_cast<int>(*code);
  fields.refuse_others();
  return finish;
}

ResolveRequest read_resolve(const HttpRequest& request) {
  RequestFields fields = fields_of(request);
  ResolveRequest wanted{.paths = required_paths(fields)};
  const std::optional<session::Settle> how = session::settle_from_name(fields.required_text("how"));
  if (!how) fields.refuse("how", "is not mine, theirs or merged");
  wanted.how = *how;
  fields.refuse_others();
  return wanted;
}

SavepointRequest read_savepoint(const HttpRequest& request) {
  RequestFields fields = fields_of(request);
  SavepointRequest wanted{.verb = SavepointVerb::create, .name = fields.required_text("name")};
  fields.refuse_others();
  return wanted;
}

ForkRequest read_fork(const HttpRequest& request) {
  RequestFields fields = fields_of(request);
  ForkRequest wanted{.fork = fields.required_text("fork")};
  fields.refuse_others();
  return wanted;
}

LandRequest read_land(const HttpRequest& request) {
  RequestFields fields = fields_of(request);
  LandRequest wanted{.fork = fields.required_text("fork"), .message = plain_text(fields, "message")};
  const std::optional<session::Reason> reason = session::reason_from_name(fields.required_text("reason"));
  if (!reason) fields.refuse("reason", "is none");
  wanted.reason = *reason;
  if (const auto code = fields.number("exit_code", 0, 255)) wanted.exit_code = static_cast<int>(*code);
  fields.refuse_others();
  return wanted;
}

MountsRequest read_entry(const HttpRequest& request) {
  RequestFields fields = fields_of(request);
  MountsRequest wanted{.verb = fields.flag("replace").value_or(false) ? MountsVerb::replace : MountsVerb::add};
  const std::vector<std::string> entries = fields.documents("entry");
  if (entries.size() != 1) fields.refuse("entry", "is not one entry");
  wanted.entry = entries.front();
  wanted.rights = fields.text("rights").value_or("");
  fields.refuse_others();
  return wanted;
}

Request with_nothing(const Call& call, Request request) {
  call.query.refuse_others();
  read_nothing(call.request);
  return request;
}

ReadFileRequest read_part(Call& call) {
  ReadFileRequest wanted{.path = call.parameters[1],
                         .offset = call.query.take_number("offset", kMaxOffset).value_or(0),
                         .most_bytes = call.query.take_number("length", kMostBytes).value_or(kMostBytes)};
  call.query.refuse_others();
  return wanted;
}

// ---- The table.

struct Route {
  const char* method;
  const char* verb;  // what follows /v1/sessions/{session}
  Request (*read)(Call& call);
};

template <auto Read>
Request of_body(Call& call) {
  call.query.refuse_others();
  return Read(call.request);
}
template <auto Read>
Request of_query(Call& call) {
  return Read(call.query);
}
template <SavepointVerb Verb>
Request of_savepoint(Call& call) {
  const bool is_of_one = call.parameters.size() > 1;
  return with_nothing(call, SavepointRequest{.verb = Verb, .name = is_of_one ? call.parameters[1] : ""});
}
template <typename Made>
Request of_nothing(Call& call) {
  return with_nothing(call, Made{});
}
Request of_content(Call& call) {
  WriteFileRequest write{.path = call.parameters[1], .executable = read_file_mode(call.query)};
  if (call.request.content) write.content = call.request.content->descriptor();
  return write;
}
Request of_mounts(Call& call) { return with_nothing(call, MountsRequest{}); }
Request of_entry(Call& call) {
  return with_nothing(call, MountsRequest{.verb = MountsVerb::remove, .path = call.parameters[1]});
}
Request of_file(Call& call) { return with_nothing(call, RemoveFileRequest{.path = call.parameters[1]}); }

constexpr std::array kRoutes = {
    Route{"GET", "", of_query<read_status>},
    Route{"POST", "/commit", of_body<read_commit>},
    Route{"POST", "/rollback", of_body<read_rollback>},
    Route{"POST", "/finish", of_body<read_finish>},
    Route{"POST", "/discard", of_body<read_discard>},
    Route{"POST", "/update", of_nothing<UpdateRequest>},
    Route{"POST", "/unmount", of_nothing<UnmountRequest>},
    Route{"GET", "/unresolved", of_nothing<ResolveRequest>},
    Route{"POST", "/resolve", of_body<read_resolve>},
    Route{"GET", "/diff", of_query<read_diff>},
    Route{"GET", "/export", of_nothing<ExportRequest>},
    Route{"GET", "/changes", of_nothing<ChangesRequest>},
    Route{"GET", "/entries", of_query<read_listing>},
    Route{"GET", "/files/{path}", [](Call& call) -> Request { return read_part(call); }},
    Route{"PUT", "/files/{path}", of_content},
    Route{"DELETE", "/files/{path}", of_file},
    Route{"GET", "/savepoints", of_savepoint<SavepointVerb::list>},
    Route{"POST", "/savepoints", of_body<read_savepoint>},
    Route{"POST", "/savepoints/{savepoint}/restore", of_savepoint<SavepointVerb::restore>},
    Route{"DELETE", "/savepoints/{savepoint}", of_savepoint<SavepointVerb::drop>},
    Route{"POST", "/forks", of_body<read_fork>},
    Route{"POST", "/land", of_body<read_land>},
    Route{"GET", "/mounts", of_mounts},
    Route{"POST", "/mounts", of_body<read_entry>},
    Route{"DELETE", "/mounts/{path}", of_entry},
    Route{"GET", "/traffic", of_nothing<TrafficRequest>},
};

std::string octal_mode(std::uint32_t mode) {
  std::array<char, 16> text;
  std::snprintf(text.data(), text.size(), "%06o", static_cast<unsigned>(mode));
  return text.data();
}

HttpResponse about(SessionView session, const std::string& warning, std::vector<session::Omission> omitted = {}) {
  session.omitted = std::move(omitted);
  return json_answer(to_json(SessionResource{.view = std::move(session), .warning = warning}));
}

// Of a file that was written or removed.
HttpResponse changed_file(const Request& request, const FileAnswer& file) {
  const auto* const write = std::get_if<WriteFileRequest>(&request);
  const std::string& path = write != nullptr ? write->path : std::get<RemoveFileRequest>(request).path;
  HttpResponse response =
      json_answer(to_json(FileResource{.path = path, .mode = file.mode, .size_bytes = file.size_bytes}));
  if (file.is_new) response.status = 201;
  return response;
}

HttpResponse file_part(const FileAnswer& file) {
  HttpResponse response = file_head(file);
  response.body = file.bytes;
  return response;
}

}  // namespace

SessionCall read_session_call(const HttpRequest& request) {
  const std::size_t question = std::min(request.target.find('?'), request.target.size());
  const std::string_view path = std::string_view(request.target).substr(0, question);
  std::string allowed;
  for (const Route& route : kRoutes) {
    const auto parameters = match_path(std::string("/v1/sessions/{session}") + route.verb, path);
    if (!parameters) continue;
    if (request.method != route.method) {
      allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
      continue;
    }
    const std::size_t behind = std::min(question + 1, request.target.size());
    Call call{.request = request,
              .route = {},
              .parameters = *parameters,
              .query = Query(std::string_view(request.target).substr(behind)),
              .on_begin = {},
              .was_left = {}};
    return {.session = call.parameters.front(), .request = route.read(call)};
  }
  if (allowed.empty()) {
    throw Problem(ProblemCode::not_found,
                  "the session's host knows no " + request.method + " of " + std::string(path));
  }
  throw Problem(ProblemCode::method_not_allowed, request.method + " is not possible here; " + allowed + " is",
                {{"allowed", allowed}});
}

RequestFields fields_of(const HttpRequest& request) {
  if (request.content || (!request.body.empty() && media_type(request.content_type) != "application/json")) {
    throw Problem(ProblemCode::unsupported_media_type, "the body is '" + request.content_type +
                                                           "'; send Content-Type: application/json");
  }
  return RequestFields(request.body, "the request");
}

void read_nothing(const HttpRequest& request) { fields_of(request).refuse_others(); }

CommitRequest read_commit(const HttpRequest& request) {
  RequestFields fields = fields_of(request);
  CommitRequest wanted{.message = plain_text(fields, "message"),
                       .include_ignored = fields.flag("include_ignored").value_or(false)};
  fields.refuse_others();
  return wanted;
}

RollbackRequest read_rollback(const HttpRequest& request) {
  RequestFields fields = fields_of(request);
  const RollbackRequest wanted{.keep_result = fields.flag("keep_result").value_or(false)};
  fields.refuse_others();
  return wanted;
}

DiscardRequest read_discard(const HttpRequest& request) {
  RequestFields fields = fields_of(request);
  std::vector<std::string> paths = fields.texts("paths").value_or(std::vector<std::string>());
  if (paths.empty()) fields.refuse("paths", "is missing: what is to be taken back");
  fields.refuse_others();
  return {.paths = std::move(paths)};
}

DiffRequest read_diff(Query& query) {
  const std::string name = query.take("format").value_or("patch");
  DiffRequest wanted{.path = query.take("path").value_or(""), .since = query.take("since").value_or("")};
  query.refuse_others();
  const std::optional<DiffFormat> format = diff_format_from_name(name);
  if (!format) refuse_value("format", "\"format\" is patch, stat or name_status");
  wanted.format = *format;
  return wanted;
}

StatusRequest read_status(Query& query) {
  const std::string with_changes = query.take("with_changes").value_or("false");
  query.refuse_others();
  if (with_changes != "true" && with_changes != "false") {
    refuse_value("with_changes", "\"with_changes\" is true or false");
  }
  return {.with_changes = with_changes == "true"};
}

// The cursor is the last name of the page before.
ListFilesRequest read_listing(Query& query) {
  ListFilesRequest wanted{.path = query.take("path").value_or(""), .after = {}, .most_entries = kMostNames};
  if (const auto cursor = query.take("cursor")) {
    std::optional<std::string> after = decode_cursor(*cursor);
    if (!after) refuse_value("cursor", "this is no cursor of this API");
    wanted.after = *std::move(after);
  }
  wanted.most_entries = std::max<std::uint64_t>(1, query.take_number("limit", kMostNames).value_or(kMostNames));
  query.refuse_others();
  return wanted;
}

std::optional<bool> read_file_mode(Query& query) {
  const std::optional<std::string> mode = query.take("mode");
  query.refuse_others();
  if (mode && *mode != "100644" && *mode != "100755") refuse_value("mode", "\"mode\" is 100644 or 100755");
  return mode ? std::optional(*mode == "100755") : std::nullopt;
}

HttpResponse diff_head(std::uint64_t omitted) {
  return {.status = 200,
          .content_type = "text/x-diff",
          .body = {},
          .headers = {{kOmittedHeader, std::to_string(omitted)}}};
}

HttpResponse file_head(const FileAnswer& file) {
  return {.status = 200,
          .content_type = "application/octet-stream",
          .body = {},
          .headers = {{kModeHeader, octal_mode(file.mode)},
                      {kSizeHeader, std::to_string(file.size_bytes)},
                      {kVersionHeader, "\"" + file.version + "\""}}};
}

Problem conflict_problem(const std::string& session, std::vector<session::Conflict> conflicts) {
  const std::string count = std::to_string(conflicts.size());
  return {"session " + session + " was not committed: others changed " + count +
              " of its paths differently; it stays open, and nothing is lost",
          std::move(conflicts)};
}

HttpResponse response_of(const SessionCall& call, const Answer& answer, const std::function<SessionView()>& session) {
  return std::visit(
      session::Overloaded{
          [&](const SessionView& it) { return json_answer(to_json(SessionResource{.view = it})); },
          [&](const CommitAnswer& it) {
            const bool is_refused = !it.conflicts.empty() && std::holds_alternative<CommitRequest>(call.request);
            if (is_refused) return problem_response(conflict_problem(call.session, it.conflicts));
            return about(session(), it.warning, it.omitted);
          },
          [&](const RollbackAnswer& it) { return about(session(), it.warning); },
          [&](const UnmountAnswer&) { return about(session(), {}); },
          [&](const DiscardAnswer& it) { return json_answer(to_json(it, call.session) + "\n"); },
          [&](const UpdateAnswer& it) { return json_answer(to_json(it, call.session) + "\n"); },
          [&](const ResolveAnswer& it) { return json_answer(to_json(it, call.session) + "\n"); },
          [&](const SavepointsAnswer& it) { return json_answer(to_json(it, call.session) + "\n"); },
          [&](const ForkAnswer&) { return json_answer("{}\n"); },
          [&](const LandAnswer& it) { return json_answer(to_json(it)); },
          [&](const MountsAnswer& it) { return json_answer(to_json(it, call.session) + "\n"); },
          [&](const DiffBegin& it) { return diff_head(it.omitted); },
          [&](const DiffPart&) { return diff_head(0); },
          [&](const DiffEnd& it) { return diff_head(it.omitted.size()); },
          [&](const ChangesAnswer& it) { return json_answer(changes_json(it.changes, it.omitted)); },
          [&](const FileAnswer& it) {
            return std::holds_alternative<ReadFileRequest>(call.request) ? file_part(it)
                                                                         : changed_file(call.request, it);
          },
          [&](const ListingAnswer& it) {
            const bool is_last = it.is_whole || it.entries.empty();
            return json_answer(to_json(it, is_last ? "" : encode_cursor(it.entries.back().name)));
          },
          [&](const TrafficAnswer& it) { return json_answer(to_json(it)); },
      },
      answer);
}

}  // namespace escrow::api
