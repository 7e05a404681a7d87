#include "daemon/cli/mcp/mcp_sessions.h"

#include <algorithm>
#include <utility>

#include "api/json_document.h"
#include "daemon/host/kept_mounts.h"
#include "daemon/host/config.h"
#include "session/base/error.h"
#include "session/base/path_prefix.h"
#include "session/base/repo_path.h"

namespace escrow::daemon {

using api::JsonObject;
using api::McpAnswer;
using api::RequestFields;
using session::Errc;
using session::Error;
using session::SessionRecord;
using session::State;

namespace {

constexpr std::uint64_t kUsualDiffBytes = 8'000, kMostDiffBytes = 200'000;
constexpr std::uint64_t kUsualListed = 20, kMostListed = 200;

// By whom, and what is to become of it: what a model can do next.
std::string next_step(const SessionRecord& record) {
  switch (record.state) {
    case State::open:
      return "open: write files, run commands, then diff and commit or rollback";
    case State::awaiting_approval:
      return "sealed: a person decides with `escrow approve " + record.id.text() + "` or `escrow reject " +
             record.id.text() + "`; nothing more can be changed";
    case State::committing:
      return "a commit is under way; list_sessions shows what becomes of it";
    case State::committed:
      return record.commit ? "ended: it is on the branch" : "ended: there was nothing to commit";
    case State::commit_failed:
      return "ended without a commit; its result stays as refs/sessions/" + record.id.text();
    case State::rolled_back:
      return "ended: nothing of it is on the branch";
  }
  return {};
}

JsonObject describe_session(const SessionRecord& record) {
  JsonObject object;
  object.text("session", record.id.text()).text("state", name_of(record.state)).text("branch", record.options.branch);
  if (record.reason != session::Reason::none) object.text("reason", name_of(record.reason));
  if (!record.options.prefix.is_root()) object.text("path_prefix", record.options.prefix.text());
  if (!record.message.empty()) object.text("message", record.message);
  object.flag("needs_approval", record.options.require_approval);
  if (record.counts) object.counts("counts", *record.counts);
  if (record.commit) object.id("commit", record.commit);
  if (record.result) object.id("result", record.result);
  if (!record.review_comment.empty()) object.text("review_comment", record.review_comment);
  if (!record.last_error.empty()) object.text("last_error", record.last_error);
  object.time("created", record.created);
  object.text("next", next_step(record));
  return object;
}

bool is_of_mcp(const SessionRecord& record) { return record.options.audit.trigger == kMcpTrigger; }

}  // namespace

void check_mcp_settings(const McpSettings& settings) {
  RepositoryContext context(settings.repository);
  session_options(settings.session, context.repository().references(), "manual");
}

SessionRequest mcp_request(const McpSettings& settings, RequestFields& fields) {
  SessionRequest request = settings.session;
  const std::optional<std::string> branch = fields.text("branch"), prefix = fields.text("path_prefix");
  if (branch && !request.branch.empty() && *branch != request.branch) {
    fields.refuse("branch", "is refused: this server works on branch " + request.branch + " only");
  }
  if (branch) request.branch = *branch;
  if (prefix) {
    const session::RepoPath root = session::RepoPath::parse(request.path_prefix, "--path-prefix");
    const session::RepoPath wanted = session::parse_path_prefix(*prefix, "the argument path_prefix");
    if (!root.contains(wanted)) {
      fields.refuse("path_prefix", "is refused: this server works below '" + root.text() + "' only");
    }
    request.path_prefix = wanted.text();
  }
  request.require_approval = !settings.commits_unreviewed || request.require_approval;
  request.symlinks = "contained";
  request.trigger = kMcpTrigger;
  request.trigger_id = settings.client;
  return request;
}

McpSessions::McpSessions(const McpSettings& settings) : settings_(settings), context_(settings.repository) {
  context_.recover();
}

SessionRecord McpSessions::find(RequestFields& fields) {
  const session::SessionId id = context_.sessions().resolve(fields.required_text("session"));
  SessionRecord record = context_.sessions().status(id).record;
  if (!is_of_mcp(record)) {
    throw Error(Errc::no_session, "session " + id.text() + " was not opened by these tools, which leave it alone; "
                                  "open_session makes one");
  }
  return record;
}

SessionAccess McpSessions::access(const SessionRecord& record) { return {context_, record.id.text()}; }

std::string path_in_repository(const SessionRecord& record, const std::string& path) {
  const session::RepoPath below = session::RepoPath::parse(path, "the argument path");
  const std::string& prefix = record.options.prefix.text();
  return prefix.empty() ? below.text() : below.is_root() ? prefix : prefix + "/" + below.text();
}

McpAnswer mcp_open_session(const McpSettings& settings, RequestFields& fields) {
  const SessionRequest request = mcp_request(settings, fields);
  fields.refuse_others();
  McpSessions sessions(settings);
  RepositoryContext& context = sessions.context();
  const session::SessionOptions options = session_options(request, context.repository().references(), "manual");
  const std::unique_ptr<session::Session> opened =
      context.sessions().open(options, request.branch.empty(), session::SessionId::generate(),
                              preparation_of(request, std::nullopt, options, context.repository()));
  return {.document = describe_session(opened->record()).text(), .texts = {}};
}

McpAnswer mcp_list_sessions(const McpSettings& settings, RequestFields& fields) {
  const std::string wanted = fields.text("state").value_or("");
  const std::optional<State> state = wanted.empty() ? std::nullopt : session::state_from_name(wanted);
  if (!wanted.empty() && !state) fields.refuse("state", "is none of the states of a session: '" + wanted + "'");
  const std::string only = fields.text("session").value_or("");
  const std::uint64_t limit = fields.number("limit", 1, kMostListed).value_or(kUsualListed);
  fields.refuse_others();
  McpSessions sessions(settings);
  std::vector<JsonObject> found;
  std::uint64_t more = 0;
  std::vector<session::SessionManager::Listed> all = sessions.context().sessions().list();
  std::reverse(all.begin(), all.end());
  for (const session::SessionManager::Listed& listed : all) {
    const SessionRecord& record = listed.record;
    if (!is_of_mcp(record) || (state && record.state != *state) || !record.id.text().starts_with(only)) continue;
    if (found.size() == limit) {
      ++more;
    } else {
      found.push_back(describe_session(record));
    }
  }
  return {.document = JsonObject().objects("sessions", std::move(found)).number("more", more).text(), .texts = {}};
}

McpAnswer mcp_diff(const McpSettings& settings, RequestFields& fields) {
  const std::string format = fields.text("format").value_or("name_status");
  if (format != "name_status" && format != "stat" && format != "patch") {
    fields.refuse("format", "is name_status, stat or patch");
  }
  const std::string path = fields.text("path").value_or(""), since = fields.text("since").value_or("");
  const std::uint64_t offset = fields.number("offset", 0, UINT64_MAX / 2).value_or(0);
  const std::uint64_t limit = fields.number("limit", 1, kMostDiffBytes).value_or(kUsualDiffBytes);
  McpSessions sessions(settings);
  const SessionRecord record = sessions.find(fields);
  fields.refuse_others();
  api::DiffRequest request{.format = format == "patch" ? api::DiffFormat::patch
                                     : format == "stat" ? api::DiffFormat::stat
                                                        : api::DiffFormat::name_status,
                           .path = path.empty() ? "" : path_in_repository(record, path),
                           .since = since};
  std::string part;
  std::uint64_t size = 0;
  SessionAccess access = sessions.access(record);
  const std::vector<session::Omission> omitted = access.omitted(access.diff(request, [&](std::string_view text) {
    const std::uint64_t from = std::max(offset, size), until = std::min(offset + limit, size + text.size());
    if (from < until) part += text.substr(from - size, until - from);
    size += text.size();
  }));
  JsonObject document;
  document.text("session", record.id.text()).text("format", format).number("size_bytes", size).number("offset", offset);
  if (offset + part.size() < size) document.number("next_offset", offset + part.size());
  if (!omitted.empty()) document.omissions("left_out_of_the_commit", omitted);
  return {.document = document.text(), .texts = {std::move(part)}};
}

McpAnswer mcp_update(const McpSettings& settings, RequestFields& fields) {
  const std::vector<std::string> discarded = fields.texts("discard").value_or(std::vector<std::string>());
  McpSessions sessions(settings);
  const SessionRecord record = sessions.find(fields);
  fields.refuse_others();
  std::vector<std::string> paths;
  for (const std::string& path : discarded) paths.push_back(path_in_repository(record, path));
  if (!paths.empty()) sessions.access(record).discard(paths);
  const api::UpdateAnswer answer = sessions.access(record).update();
  JsonObject document;
  document.text("session", record.id.text()).id("base", answer.base).number("paths_taken_in", answer.merged);
  document.conflicts("conflicts", answer.conflicts);
  document.text("next", answer.conflicts.empty()
                            ? "the session is based on the branch's newest commit"
                            : "nothing was taken in: both sides changed these paths; give up the session's side of "
                              "them with \"discard\", read the branch's, and write the file again");
  return {.document = document.text(), .texts = {}, .is_error = !answer.conflicts.empty()};
}

McpAnswer mcp_commit(const McpSettings& settings, RequestFields& fields) {
  const std::string message = fields.text("message").value_or("");
  McpSessions sessions(settings);
  const SessionRecord record = sessions.find(fields);
  fields.refuse_others();
  if (!settings.commits_unreviewed && !record.options.require_approval && record.state == State::open) {
    throw Error(Errc::not_permitted, "session " + record.id.text() + " was opened without a review, and this server "
                                     "commits nothing unreviewed; a person can run `escrow commit " +
                                     record.id.text() + "`");
  }
  const api::CommitAnswer answer = sessions.access(record).commit({.message = message});
  sessions.context().tidy();
  const SessionRecord now = sessions.context().sessions().status(record.id).record;
  JsonObject document = describe_session(now);
  if (!answer.omitted.empty()) document.omissions("left_out_of_the_commit", answer.omitted);
  if (!answer.conflicts.empty()) {
    document.conflicts("conflicts", answer.conflicts);
    document.text("next", "nothing was committed, and the session stays open: the session and the branch both changed "
                          "these paths; call update with \"discard\" for the paths to give up, then commit again");
  }
  return {.document = document.text(), .texts = {}, .is_error = !answer.conflicts.empty()};
}

McpAnswer mcp_rollback(const McpSettings& settings, RequestFields& fields) {
  McpSessions sessions(settings);
  const SessionRecord record = sessions.find(fields);
  fields.refuse_others();
  sessions.access(record).rollback(false);
  return {.document = describe_session(sessions.context().sessions().status(record.id).record).text(), .texts = {}};
}

}  // namespace escrow::daemon
